# SPDX-License-Identifier: MIT
"""`pyggml finetune`: what it prints and leaves, and kills at any instant."""

from __future__ import annotations

import json
import random
import re
import signal
import time

import pytest

from pyggml.data import Tokenizer
from pyggml.models import Llama, LlamaConfig, load
from pyggml.train import read_metrics

from .test_train_llm import Running


def write_chats(path, count=30):
    rows = []
    for n in range(count):
        turns = [("system", "Add."), ("user", f"{n} and {n}?"), ("assistant", f"It is {2 * n}.")]
        rows.append({"messages": [{"role": role, "content": text} for role, text in turns]})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finetune")
    texts = [f"<|user|> {n} and {n}? <|assistant|> It is {2 * n}." for n in range(30)]
    tokenizer = Tokenizer.train_bpe(texts, 300)
    sizes = {"n_layer": 2, "n_head": 2, "n_embd": 32, "n_ffn": 64, "context": 64}
    for name, family in (("base", "llama"), ("qwen3", "qwen3")):
        model = Llama(LlamaConfig(vocab_size=tokenizer.vocab_size, family=family, **sizes))
        model.save(folder / f"{name}.gguf", tokenizer, dtype="q8_0")
    write_chats(folder / "chats.jsonl")
    return folder


def command(here, name, *more, steps=4):
    return [
        *("finetune", here / "base.gguf", "--data", here / "chats.jsonl"),
        *("--artifact-dir", here / name, "--threads", 1, "--steps", steps, "--warmup", 1),
        *("--batch-size", 2, "--lora-rank", 4, "--answers", 1, "--answer-tokens", 8, *more),
    ]


def test_the_command_trains_and_tells(here, cli):
    code, out, err = cli(*command(here, "run", "--show-sample", "--merge", "q8_0"))
    assert code == 0, err
    for said in (
        "30 chats", "template zephyr", "LoRA of rank 4 on 14 layers", "memory ", "⟦It is ",
        "base: validation loss", "trained  validation loss", "merged   validation loss",
        "expected It is ", f"--lora {here / 'run' / 'adapter.gguf'}",
    ):  # fmt: skip
        assert said in out, said
    left = {path.name for path in (here / "run").iterdir()}
    assert left == {
        "adapter", "adapter.gguf", "answers.json", "chat_template.jinja", "checkpoints",
        "config.json", "config.toml", "loss.png", "metrics.jsonl", "model.gguf", "report.html",
        "samples.jsonl",
    }  # fmt: skip
    template = (here / "run" / "chat_template.jinja").read_text()
    assert "generation" not in template.replace("add_generation_prompt", "")
    lines = read_metrics(here / "run" / "metrics.jsonl")
    assert sum(line["kind"] == "train" for line in lines) == 4
    more = ("--steps", 5, "--no-report")
    code, out, err = cli("finetune", "--resume", "--artifact-dir", here / "run", *more)
    assert code == 0, err
    assert "continuing after step 4" in out


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--targets", "nope"], "--targets"),
        (["--full"], "--lora-rank"),
        (["--merge", "q9"], "--merge"),
        (["--chat-template", "nope"], "--chat-template"),
        (["--data-weight", "other.jsonl=2"], "--data-weight"),
        (["--seq-len", "1000"], "--seq-len"),
        (["--memory-limit", "50kB"], "--batch-size"),
    ],
)
def test_wrong_options_are_named_by_their_flags(here, cli, more, said):
    code, _, err = cli(*command(here, "never", *more))
    assert code in (1, 2)
    assert err.startswith("error: ")
    assert said in err
    assert not (here / "never").exists()


# What is trained by each method, beside the adapters of rank 4 on chats.
ADAPTERS = ["--lora-rank", 4, "--lora-dropout", "0.1"]
ANSWERS = ["--answers", 1, "--answer-tokens", 8]
METHODS = {
    "sft": ("chats", [*ADAPTERS, *ANSWERS]),
    "dpo": ("pairs", [*ADAPTERS, *ANSWERS, "--method", "dpo"]),
    "qat": ("chats", [*ANSWERS, "--full", "--qat", "q4_0"]),
    "teacher": ("chats", [*ADAPTERS, *ANSWERS, "--teacher", "teacher.gguf"]),
    "classify": ("texts", [*ADAPTERS, "--task", "classify"]),
}
RESULTS = ("adapter.gguf", "adapter/adapter_model.safetensors", "model.gguf", "answers.json",
           "reference.json")  # fmt: skip


def write_other_rows(here):
    """Write preferences, texts with labels, and a teacher."""
    pairs = [{"prompt": f"{n} and {n}?", "chosen": f"It is {2 * n}.", "rejected": "It is."}
             for n in range(30)]  # fmt: skip
    texts = [{"text": f"It is {n}.", "label": n % 3} for n in range(30)]
    for name, rows in (("pairs", pairs), ("texts", texts)):
        (here / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    model, tokenizer = load(here / "base.gguf")
    for parameter in model.parameters():
        parameter.copy_(parameter.numpy() * 1.5)
    model.save(here / "teacher.gguf", tokenizer)


@pytest.mark.slow  # 10 processes each
@pytest.mark.parametrize("method", METHODS)
def test_kills_at_ten_instants_leave_the_same_bits(here, cli, method):
    write_other_rows(here)
    steps, (data, own) = 60, METHODS[method]
    own = [here / word if str(word).endswith(".gguf") else word for word in own]
    cache = ["--teacher-cache", here / "cache"] if "--teacher" in own else []
    base = "qwen3.gguf" if method == "classify" else "base.gguf"

    def arguments(name):
        return [
            *(here / base, "--data", here / f"{data}.jsonl", "--artifact-dir", here / name),
            *("--threads", 1, "--steps", steps, "--warmup", 1, "--batch-size", 2, "--lr", "0.01"),
            *("--save-every", 7, "--eval-every", 10, "--no-report", *own, *cache),
        ]

    code, _, err = cli("finetune", *arguments(f"{method}-whole"))
    assert code == 0, err
    files = [name for name in RESULTS if (here / f"{method}-whole" / name).exists()]
    whole = {name: (here / f"{method}-whole" / name).read_bytes() for name in files}
    assert len(files) >= 2
    rng, resumed = random.Random(3), 0
    for number in range(10):
        name = f"{method}-broken{number}"
        running = Running(*arguments(name), slowly=True, verb="finetune")
        at = 3 * rng.randrange(0, 19)
        running.wait_for(rf"^step {at}/{steps}" if at else "^base: ")
        time.sleep(rng.random() * 0.1)
        running.process.kill()
        code, _, _ = running.finish()
        assert code == -signal.SIGKILL
        code, out, err = cli("finetune", "--artifact-dir", here / name, "--resume")
        assert code == 0, err
        resumed += bool(re.search(r"continuing after step \d+\n", out))
        for file, content in whole.items():
            assert (here / name / file).read_bytes() == content, (number, file)
    assert resumed > 5
