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
from pyggml.models import Llama, LlamaConfig
from pyggml.train import read_metrics

from .conftest import pyggml
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
    model = Llama(LlamaConfig(vocab_size=tokenizer.vocab_size, **sizes))
    model.save(folder / "base.gguf", tokenizer, dtype="q8_0")
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


@pytest.mark.slow  # 20 processes
def test_kills_at_ten_instants_leave_the_same_bits(here):
    steps = 60
    more = ["--save-every", 7, "--eval-every", 10, "--lora-dropout", "0.1", "--lr", "0.01"]
    done = pyggml(*command(here, "whole", *more, steps=steps))
    assert done.returncode == 0, done.stderr
    whole = {
        name: (here / "whole" / name).read_bytes()
        for name in ("adapter.gguf", "adapter/adapter_model.safetensors", "answers.json")
    }
    rng, resumed = random.Random(3), 0
    for number in range(10):
        name = f"broken{number}"
        running = Running(
            *command(here, name, *more, steps=steps)[1:], slowly=True, verb="finetune"
        )
        at = 3 * rng.randrange(0, 19)
        running.wait_for(rf"^step {at}/{steps}" if at else "^base: ")
        time.sleep(rng.random() * 0.1)
        running.process.kill()
        code, _, _ = running.finish()
        assert code == -signal.SIGKILL
        done = pyggml("finetune", "--artifact-dir", here / name, "--resume")
        assert done.returncode == 0, done.stderr
        resumed += bool(re.search(r"continuing after step \d+\n", done.stdout))
        for file, content in whole.items():
            assert (here / name / file).read_bytes() == content, (number, file)
    assert resumed > 5
