# SPDX-License-Identifier: MIT
"""`recipes.grpo`: a run with its files, resume, and what is refused."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from pyggml.data import Tokenizer
from pyggml.errors import ConfigError, FormatError
from pyggml.models import Llama, LlamaConfig, load, load_lora
from pyggml.recipes import grpo

ROWS = [{"prompt": f"{digit}=", "answer": str(digit)} for digit in range(10)]


def right(completions, answer, **rest):
    return [float(text == wanted) for text, wanted in zip(completions, answer, strict=True)]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    path = tmp_path_factory.mktemp("grpo") / "base.gguf"
    tokenizer = Tokenizer.chars(["0123456789="])
    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 16, "n_ffn": 32, "context": 16}
    Llama(LlamaConfig(vocab_size=tokenizer.vocab_size, **sizes)).save(path, tokenizer)
    return path


def run(model, folder, rows=ROWS, **options):
    given = {"num_generations": 4, "prompts_per_step": 2, "max_tokens": 2, "steps": 4, "lr": 1e-2,
             "beta": 0.01, "save_every": 2, "base": {"lora_rank": 2}}  # fmt: skip
    return grpo(model, rows, right, artifact_dir=folder, **{**given, **options})


def test_a_run_writes_its_files_and_resumes_to_the_same_bits(base, tmp_path):
    told = []
    whole = run(base, tmp_path / "whole", note=told.append)
    assert len(whole.rollouts) == 4
    assert "generation" in told[-1] and "training" in told[-1]  # noqa: PT018
    lines = (tmp_path / "whole" / "rollouts.jsonl").read_text().splitlines()
    assert [json.loads(line)["rollout"] for line in lines] == [0, 1, 2, 3]
    assert json.loads(lines[0])["kl"] == pytest.approx(0.0, abs=1e-6)
    assert whole.generation_s > 0
    assert whole.training_s > 0
    model, _ = load(base)
    load_lora(model, tmp_path / "whole" / "adapter.gguf")

    # A run that ends after half of the steps, and goes on.
    run(base, tmp_path / "half", steps=2)
    with pytest.raises(ConfigError, match="resume"):
        run(base, tmp_path / "half")
    again = run(base, tmp_path / "half", resume=True)
    assert [each.rollout for each in again.rollouts] == [2, 3]
    pairs = zip(whole.model.parameters(), again.model.parameters(), strict=True)
    assert all(np.array_equal(one.numpy(), other.numpy()) for one, other in pairs)
    assert len((tmp_path / "half" / "rollouts.jsonl").read_text().splitlines()) == 4


LONG = {"steps": 24, "save_every": 3}
GRPO = """
import sys
from tests.recipes.test_grpo import LONG, run

run(*sys.argv[1:], **LONG, note=lambda line: print(line, flush=True))
"""


def numbers(folder):
    """Return what the rollouts told, but for times."""
    lines = (folder / "rollouts.jsonl").read_text().splitlines()
    pick = ("rollout", "reward", "reward_std", "kl", "length")
    return [[json.loads(line)[name] for name in pick] for line in lines]


@pytest.mark.slow  # 10 processes
def test_kills_at_ten_instants_leave_the_same_bits(base, tmp_path):
    whole = tmp_path / "whole"
    run(base, whole, **LONG)
    rng, root = random.Random(5), Path(__file__).parent.parent.parent
    for number in range(10):
        folder, at = tmp_path / f"broken{number}", f"rollout {rng.randrange(1, 24)}:"
        command = [sys.executable, "-c", GRPO, str(base), str(folder)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as process:
            next(line for line in process.stdout if line.startswith(at))
            time.sleep(rng.random() * 0.05)
            process.kill()
        run(base, folder, **LONG, resume=True)
        name = "adapter.gguf"
        assert (folder / name).read_bytes() == (whole / name).read_bytes(), (number, at)
        assert numbers(folder) == numbers(whole), (number, at)


def test_another_run_is_not_continued(base, tmp_path):
    with pytest.raises(ConfigError, match=r"`resume` needs the folder of a run; there is no"):
        run(base, tmp_path / "mistyped", resume=True)
    run(base, tmp_path / "run", steps=2)
    other = tmp_path / "other.gguf"
    model, tokenizer = load(base)
    model.parameters()[0].zero_()
    model.save(other, tokenizer)
    with pytest.raises(FormatError, match="base was"):
        run(other, tmp_path / "run", resume=True)
    with pytest.raises(FormatError, match="loss was"):
        run(base, tmp_path / "run", resume=True, beta=0.5)
    rows = [{**row, "answer": "0"} for row in ROWS]
    with pytest.raises(FormatError, match="rows was"):
        run(base, tmp_path / "run", rows, resume=True)
    with pytest.raises(ConfigError, match="did you mean lora_rank"):
        run(base, tmp_path / "misspelt", base={"lora_rnk": 8})


def test_lines_of_others_are_put_aside(base, tmp_path):
    for name in ("rollouts.jsonl", "metrics.jsonl"):
        (tmp_path / name).write_text("my notes\n")
    run(base, tmp_path, steps=2, num_iterations=2, save_every=1)
    for name, count in (("rollouts.jsonl", 1), ("metrics.jsonl", 2)):
        assert (tmp_path / f"{name}.left").read_text() == "my notes\n"
        assert len((tmp_path / name).read_text().splitlines()) == count
    # Of its own lines, those that are made again are dropped.
    run(base, tmp_path, steps=3, num_iterations=2, resume=True)
    lines = (tmp_path / "rollouts.jsonl").read_text().splitlines()
    assert [json.loads(line)["rollout"] for line in lines] == [0, 1]
    assert not (tmp_path / "rollouts.jsonl.left1").exists()


IN_PLACE = {
    "pipe": os.mkfifo,
    "folder": os.mkdir,
    "device": lambda path: os.symlink("/dev/full", path),
    "loop": lambda path: os.symlink(path.name, path),
    "link": lambda path: os.symlink("/nowhere/file", path),
}


@pytest.mark.skipif(os.name != "posix", reason="needs pipes and links")
@pytest.mark.parametrize("kind", IN_PLACE)
@pytest.mark.parametrize("name", ["rollouts.jsonl", "metrics.jsonl", "adapter.gguf"])
def test_what_has_the_name_of_a_result_is_found_before_the_training(base, tmp_path, name, kind):
    IN_PLACE[kind](tmp_path / name)
    before = os.lstat(tmp_path / name)
    with pytest.raises(ConfigError, match=f"{name} must be a file of the run"):
        run(base, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert os.lstat(tmp_path / name).st_ino == before.st_ino


def test_a_folder_that_cannot_be_made_is_told_before_the_base_is_read(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(ConfigError, match="give a folder"):
            run(tmp_path / "none.gguf", folder)


def test_columns_are_those_of_all_rows(base, tmp_path):
    seen = []

    def reward(completions, answer, **rest):
        seen.extend(answer)
        return [0.0] * len(completions)

    rows = [{"prompt": "1="}, {"prompt": "2=", "answer": "2"}]
    grpo(base, rows, reward, artifact_dir=tmp_path / "c", steps=1, max_tokens=1, num_generations=2)
    assert set(seen) == {None, "2"}
    with pytest.raises(FormatError, match="must not have the name completions"):
        grpo(base, [{"prompt": "1=", "completions": 1}], reward, artifact_dir=tmp_path / "d")


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"steps": "10"}, TypeError, "grpo: steps must be a whole number; got '10'"),
        ({"steps": None}, TypeError, "grpo: steps must be a whole number; got None"),
        ({"steps": 0}, ValueError, "grpo: steps must be .*>= 1; got 0"),
        ({"prompts_per_step": None}, TypeError, "grpo: prompts_per_step must be a whole number"),
        ({"prompts_per_step": np.ones(2)}, TypeError, "grpo: prompts_per_step must be a whole"),
        ({"seed": -1}, ValueError, "grpo: seed must be a whole number >= 0"),
        ({"callbacks": 5}, TypeError, "grpo: callbacks must be a list of Callback; got int"),
        ({"resume": 1}, TypeError, "grpo: resume must be True or False; got 1"),
        ({"clip": "x"}, TypeError, "`clip` must be a number; got 'x'"),
        ({"checkpoint_dir": "x"}, ConfigError, "checkpoint_dir"),
        ({"base": [1]}, TypeError, "`base`: options must be a dict"),
    ],
)
def test_wrong_options_are_told_before_the_base_is_read(tmp_path, options, error, told):
    with pytest.raises(error, match=told):
        run(tmp_path / "none.gguf", tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"reward_weights": 5}, TypeError, "reward_weights must be a list .*; got 5"),
        ({"reward_weights": ["a"]}, TypeError, "each of reward_weights must be a number; got 'a'"),
        ({"epsilon_high": "a"}, TypeError, "epsilon_high must be a number; got 'a'"),
        ({"top_p": float("nan")}, ValueError, "top_p must be a finite number > 0 and <= 1"),
        ({"rows": [{"prompt": "1=", 1: 2}]}, FormatError, "row 0: names of columns .*; got 1"),
    ],
)
def test_wrong_options_are_told_before_the_first_rollout(base, tmp_path, options, error, told):
    begun = []
    with pytest.raises(error, match=told):
        run(base, tmp_path / "run", note=begun.append, **options)
    assert begun == []


def test_bad_data_is_refused(base, tmp_path):
    with pytest.raises(FormatError, match="prompt"):
        grpo(base, [{"text": "1="}], right, artifact_dir=tmp_path)
    with pytest.raises(FormatError, match="prompt"):
        grpo(base, [], right, artifact_dir=tmp_path)
    messages = [{"role": "user", "content": "1="}]
    with pytest.raises(FormatError, match="template"):
        grpo(base, [{"prompt": messages}], right, artifact_dir=tmp_path)
