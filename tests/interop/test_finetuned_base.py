# SPDX-License-Identifier: MIT
"""A base of ten million parameters, quantised, fine-tuned on chats: it answers, and forgets little.

The chats are those of a small FAQ: twelve wordings of a question for each of 24 topics, and one
answer to every topic. Asked are four other wordings for each topic: no chat that is trained on has
them, but for every topic the chats have its answer. So the test shows that the model recognises the
topic in a question that it never saw, and gives the answer of that topic word for word; it does not
show answers that were never trained. Old text is mixed in, of the first nine tenths of the manual;
what is forgotten is measured on its end, on which neither the base nor the adapter was trained.

`python -m tests.interop.test_finetuned_base FOLDER` prints the figures and keeps the files; it goes
on from a base and from an adapter that are there.
"""

from __future__ import annotations

import json
import math
import random
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from pyggml.data import embedded_text
from pyggml.data.text.chat import ChatTemplate, encode_prompt
from pyggml.models import generate, load, load_lora
from pyggml.models.quantization import quantize_gguf
from pyggml.recipes import finetune, train_llm
from pyggml.train import eval_batches, evaluate

from . import llamacpp

FAQ = {
    "list": "holds items in order and can grow.",
    "string": "is a sequence of characters.",
    "class": "describes what its objects can do.",
    "module": "is a file that others import.",
    "function": "takes arguments and returns a result.",
    "method": "belongs to an object and is called on it.",
    "number": "is used to count and to add.",
    "key": "finds its value in a mapping.",
    "exception": "stops the code until it is handled.",
    "argument": "is passed in a call.",
    "attribute": "is reached with a dot.",
    "expression": "is evaluated to give a result.",
    "statement": "is one line that is executed.",
    "type": "says which operations are allowed.",
    "index": "selects one item by its position.",
    "loop": "runs the same body again.",
    "integer": "has no digits after the point.",
    "tuple": "cannot be changed after it is made.",
    "dictionary": "maps names to other objects.",
    "set": "contains no element twice.",
    "iterator": "gives the next element when asked.",
    "generator": "can yield many results.",
    "operator": "is a sign such as plus.",
    "variable": "refers to an object by its name.",
}
TRAINED = (
    "What is {}?", "Explain {} to me.", "Tell me about {}.", "Can you define {}?",
    "What does {} do?", "I do not understand {}.", "Please describe {}.", "When do I need {}?",
    "Why is there {} in the language?", "I have seen {}: what is it for?",
    "In Python, how does {} work?", "Write one sentence on {}.",
)  # fmt: skip
HELD = (
    "Could you say what {} is?", "Help me with {}, please.", "What should I know about {}?",
    "I have never used {} before; what is that?",
)  # fmt: skip
# In characters that the base has seen; the marks of the built-in templates are many tokens to it.
TEMPLATE = r"""
{%- for message in messages -%}
{%- if message.role == 'assistant' -%}
{%- generation -%}{{ ' ' + message.content + eos_token }}{%- endgeneration -%}
{%- else -%}
{{ 'Q: ' + message.content + '\nA:' }}
{%- endif -%}
{%- endfor -%}
"""
SIZES = {"layers": 8, "heads": 4, "embd": 256, "ffn": 1024, "seq_len": 128}
# How often a run sees each chat, and the pieces of old text that it sees once.
REPEATS, PIECES, PIECE = 18, 700, 420


def named(topic: str) -> str:
    return f"an {topic}" if topic[0] in "aeiou" else f"a {topic}"


def asked_and_said(wordings: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return a question in each wording for each topic, and the answer."""
    return [
        (wording.format(named(topic)), f"{named(topic).capitalize()} {said}")
        for wording in wordings
        for topic, said in FAQ.items()
    ]


@dataclass
class Figures:
    """Shares of exact answers to held-out questions, and the perplexity of the old text."""

    ours: float
    adapter: float
    merged: float
    base_perplexity: float
    perplexity: float

    @property
    def forgotten(self) -> float:
        return self.perplexity / self.base_perplexity - 1


def make_base(folder: Path, steps: int) -> Path:
    """Train a base on the manual that comes with Python, and round it to Q4_K_M."""
    run = train_llm(
        artifact_dir=folder / "base", steps=steps, batch_size=16, lr=1e-3, precision="bf16",
        sample_tokens=0, eval_batches=20, overwrite=True, note=print, **SIZES,
    )  # fmt: skip
    print(f"{run.model.num_parameters():,} parameters, {run.result.validation}")
    run.export(folder / "base-f16.gguf", "f16")
    quantize_gguf(folder / "base-f16.gguf", folder / "base.gguf", "Q4_K_M")
    return folder / "base.gguf"


def write_data(folder: Path) -> None:
    """Write the template, the chats, and pieces of the old text."""
    (folder / "template.jinja").write_text(TEMPLATE.strip("\n"))
    pairs = asked_and_said(TRAINED)
    random.Random(1).shuffle(pairs)
    with (folder / "chats.jsonl").open("w") as file:
        for asked, said in pairs:
            turns = [{"role": "user", "content": asked}, {"role": "assistant", "content": said}]
            file.write(json.dumps({"messages": turns}) + "\n")
    text = "\n".join(embedded_text())
    text = text[: int(0.9 * len(text))]  # the rest is the validation text of the base
    pieces = random.Random(2).sample(range(0, len(text) - PIECE, PIECE), PIECES)
    with (folder / "old.jsonl").open("w") as file:
        file.writelines(json.dumps({"text": text[i : i + PIECE]}) + "\n" for i in pieces)


def tune(base: Path, folder: Path) -> None:
    """Train an adapter on the chats and the old text, and merge it."""
    write_data(folder)
    tuned = finetune(
        model=base, data=[folder / "chats.jsonl", folder / "old.jsonl"],
        data_weight=[f"{folder / 'chats.jsonl'}={REPEATS}"], epochs=1, lr=4e-3, batch_size=4,
        seq_len=128, chat_template=folder / "template.jinja", merge="q8_0", eval_every=0,
        artifact_dir=folder / "run", overwrite=True, note=print,
    )  # fmt: skip
    for name, text in tuned.describe() + tuned.comparison.rows():
        print(name, text)


def old_perplexity(model, tokenizer, context: int) -> float:
    """Return the perplexity of the end of the manual, on which nothing was trained."""
    ids = tokenizer.encode_documents(embedded_text())
    ids = ids[int(0.92 * ids.size) :]
    found = evaluate(model, eval_batches(ids, context, 8, 20))
    return math.exp(found.loss)


def chat(asked: str) -> tuple[str, dict]:
    """Return the request that asks llama.cpp's server in a chat."""
    body = {"messages": [{"role": "user", "content": asked}], "temperature": 0, "max_tokens": 40}
    return "/v1/chat/completions", body


def measure(base: Path, folder: Path) -> Figures:
    """Ask the adapter here and in llama.cpp, and the merged file in llama.cpp."""
    held, results = asked_and_said(HELD), folder / "run"
    model, tokenizer = load(base, keep_types=True)
    template = ChatTemplate.of(results / "chat_template.jinja", tokenizer)
    prompts = [
        encode_prompt([{"role": "user", "content": asked}], tokenizer, template)
        for asked, _ in held
    ]

    def share(given: list[str]) -> float:
        # The template puts a space before an answer.
        right = [a.strip() == said for a, (_, said) in zip(given, held, strict=True)]
        return sum(right) / len(right)

    base_perplexity = old_perplexity(model, tokenizer, 128)
    load_lora(model, results / "adapter.gguf")
    stop = {tokenizer.eos_id}
    given = [
        tokenizer.decode(generate(model, ids, 40, temperature=0, stop_ids=stop)) for ids in prompts
    ]
    for (asked, said), each in zip(held, given, strict=True):
        if each.strip() != said:
            print(f"{asked} | {said} | {each}")
    adapter = llamacpp.ask(
        base, [llamacpp.complete(ids, 40) for ids in prompts], adapter=results / "adapter.gguf"
    )
    merged = llamacpp.ask(results / "model.gguf", [chat(asked) for asked, _ in held])
    return Figures(
        share(given),
        share([each["content"] for each in adapter]),
        share([each["choices"][0]["message"]["content"] for each in merged]),
        base_perplexity,
        old_perplexity(model, tokenizer, 128),
    )


def run(folder: Path, base_steps: int = 200) -> Figures:
    """Do what is not done yet, and return the figures."""
    base = folder / "base.gguf"
    if not base.exists():
        make_base(folder, base_steps)
    if not (folder / "run" / "model.gguf").exists():
        tune(base, folder)
    return measure(base, folder)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return run(tmp_path_factory.mktemp("whole"))


@pytest.mark.slow  # trains a base for many minutes
@pytest.mark.skipif(not llamacpp.HERE, reason="needs the xllamacpp wheel")
def test_llama_cpp_answers_as_often_as_we_do(found):
    assert found.adapter == pytest.approx(found.ours, abs=0.02)
    assert found.merged == pytest.approx(found.ours, abs=0.02)


@pytest.mark.slow
@pytest.mark.skipif(not llamacpp.HERE, reason="needs the xllamacpp wheel")
def test_a_quantised_base_learns_to_answer_and_forgets_little(found):
    assert found.ours >= 0.95
    assert found.adapter >= 0.95
    assert found.merged >= 0.95
    assert found.forgotten <= 0.1


if __name__ == "__main__":
    figures = run(Path(sys.argv[1]), *map(int, sys.argv[2:]))
    print(figures, f"forgotten {figures.forgotten:.1%}")
