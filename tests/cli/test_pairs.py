# SPDX-License-Identifier: MIT
"""Prompts and completions on the command line: only completions are learned."""

from __future__ import annotations

import csv
import json
import shutil

import numpy as np
import pytest

from pyggml.data import IGNORE_INDEX
from pyggml.recipes import LLMConfig, LLMRun
from pyggml.train import list_checkpoints

from .conftest import options
from .test_bad_input import check, train

# Of a prompt of 40 letters two rows of 16 have no letter of the completion.
ROWS = [{"q": f"{n} + {n} = ", "a": str(2 * n)} for n in range(40)]
LONG = [{"q": "please tell me what the number 7 may be:", "a": "7"}] * 3
FIELDS = ("--prompt-field", "q", "--completion-field", "a")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in [*ROWS, *LONG]))
    return path


def small(file, folder, **more):
    return LLMConfig(
        text=str(file), prompt_field="q", completion_field="a", artifact_dir=folder,
        tokenizer="chars", steps=4, layers=1, heads=2, embd=16, seq_len=16, batch_size=4, **more,
    )  # fmt: skip


def completions(run, batches):
    """The targets that count, as text, with | at the ends."""
    y = np.concatenate([batch.y.ravel() for batch in batches])
    eos = run.tokenizer.eos_id
    ids = y[y != IGNORE_INDEX]
    parts = np.split(ids, np.flatnonzero(ids == eos) + 1)
    return [run.tokenizer.decode(part[:-1]) for part in parts if part.size]


def test_only_completions_count(file, tmp_path):
    run = LLMRun.prepare(small(file, tmp_path / "run", val_fraction=0.0))
    loader = run.trainer.loader
    batches = [next(loader) for _ in range(len(loader))]
    rows = loader.dataset
    every = [rows.batch(np.arange(len(rows)))]
    assert sorted(completions(run, every)) == sorted(row["a"] for row in [*ROWS, *LONG])
    assert all(batch.tokens for batch in batches)
    assert rows.skipped == 6
    described = dict(run.describe())
    assert "43 pairs, " in described["text"]
    assert described["tokens"].endswith("% text, 6 pieces without a completion left out")
    assert run.train().step == 4


def test_validation_and_other_texts_are_pairs_too(file, tmp_path):
    other = tmp_path / "other.csv"
    with open(other, "w", newline="") as table:
        writer = csv.DictWriter(table, ["q", "a"])
        writer.writeheader()
        writer.writerows(ROWS[:10])
    run = LLMRun.prepare(small(file, tmp_path / "run", eval_text=(f"other={other}",)))
    run.train()
    found = run.trainer.evaluations
    assert found["other"].tokens == sum(len(row["a"]) + 1 for row in ROWS[:10])
    validation = [*ROWS, *LONG][-5:]  # a tenth of 43, rounded up
    assert found["validation"].tokens == sum(len(row["a"]) + 1 for row in validation)


@pytest.mark.parametrize("tokenizer", [pytest.param("chars", marks=pytest.mark.slow), "bpe:300"])
def test_the_command(file, tmp_path, cli, tokenizer):
    base = ["train-llm", "--text", file, *FIELDS,
            *options(steps=8, save_every=4, keep=9, tokenizer=tokenizer)]  # fmt: skip
    code, out, err = cli(*base, "--artifact-dir", tmp_path / "whole")
    assert code == 0, err
    assert "43 pairs, " in out
    code, _, err = cli(*base, "--artifact-dir", tmp_path / "run")
    assert code == 0, err
    newest = list_checkpoints(tmp_path / "run" / "checkpoints")[-1]
    newest.rename(tmp_path / "away")
    shutil.rmtree(newest.parent / "best")  # of that step, too: a run goes on from it
    code, out, err = cli("train-llm", "--resume", "--artifact-dir", tmp_path / "run")
    assert code == 0, err
    assert "continuing after step 4" in out
    name = "model.safetensors"
    whole = tmp_path / "whole" / "checkpoints" / newest.name
    assert (newest / name).read_bytes() == (whole / name).read_bytes()
    saved = (tmp_path / "run" / "config.toml").read_text()
    assert 'prompt_field = "q"' in saved
    again = ("train-llm", "--resume", "--artifact-dir", tmp_path / "run")
    check(cli(*again, "--prompt-field", "a"), 2, "--prompt-field cannot change")
    lines = file.read_text().replace('"a": "7"', '"a": "8"')
    file.write_text(lines)
    check(cli(*again, "--steps", 12), 1, "the text has changed")


def test_one_column_may_have_the_usual_name(tmp_path, cli):
    path = tmp_path / "a.jsonl"
    rows = [{"prompt": row["q"], "answer": row["a"]} for row in ROWS]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, out, err = cli("train-llm", "--text", path, "--completion-field", "answer",
                         "--artifact-dir", tmp_path / "run", *options())  # fmt: skip
    assert code == 0, err
    assert "40 pairs, " in out


PAIR = b'{"q": "a", "a": "b"}\n'


@pytest.mark.parametrize(
    ("name", "content", "more", "code", "words"),
    [
        ("a.jsonl", PAIR * 9, ["--prompt-field", "q"], 1, ["a.jsonl:1", "'completion'", "'q'"]),
        ("a.jsonl", b'{"q": "a", "a": ""}\n', FIELDS, 1, ["a.jsonl:1", "a must not be empty"]),
        ("a.jsonl", b'{"q": 1, "a": ""}\n', FIELDS, 1, ["a.jsonl:1", "q must be text; got int"]),
        ("a.txt", b"text", FIELDS, 2, ["--completion-field are for records"]),
        ("a.jsonl", PAIR, [*FIELDS, "--field", "q"], 2, ["exclude --field"]),
        ("a.jsonl", PAIR, [*FIELDS, "--separator", "x"], 2, ["exclude --separator"]),
        ("a.jsonl", PAIR, [*FIELDS, "--stride", "2"], 2, ["exclude --stride"]),
        ("a.jsonl", PAIR, [*FIELDS, "--cache-dir", "x"], 2, ["exclude --cache-dir"]),
        ("a.jsonl", PAIR, ["--completion-field", "prompt"], 2, ["two columns; got 'prompt'"]),
        ("a.jsonl", PAIR, ["--prompt-field", ""], 2, ["--prompt-field must not be empty"]),
        ("a.jsonl", PAIR, FIELDS, 2, ["--val-fraction 0.1", "give more pairs"]),
        ("a.csv", b"q,a\n", FIELDS, 1, ["a.csv: must hold pairs; got none"]),
        ("a.jsonl", b'{"prompt": "a", "completion": "b"}', [], 1, ["--text", "--prompt-field"]),
        ("a.jsonl", b'{"p": "a"}', ["--prompt-field", "p"], 1, ["--text", "--completion-field"]),
    ],
    ids=str,
)  # fmt: skip
def test_bad_pairs_and_options(tmp_path, cli, name, content, more, code, words):
    (tmp_path / name).write_bytes(content)
    check(train(cli, tmp_path, "--text", tmp_path / name, *more), code, *words)


def test_pairs_need_a_text(tmp_path, cli):
    check(train(cli, tmp_path, *FIELDS), 2, "--prompt-field needs --text")


def test_the_vocabulary_is_of_prompts_and_completions(file, tmp_path):
    from pyggml.recipes.pairs import PairCorpus

    corpus = PairCorpus([file], "q", "a")
    texts = [row[name] for row in [*ROWS, *LONG] for name in ("q", "a")]
    assert list(corpus.pieces()) == texts
    some = list(corpus.pieces(corpus.size_bytes // 2 + 1))
    assert some == [text for i, text in enumerate(texts) if i // 2 % 2 == 0]


def test_a_model_is_evaluated_on_pairs_as_in_training(file, tmp_path, cli):
    other = tmp_path / "other.jsonl"
    other.write_text("".join(json.dumps(row) + "\n" for row in ROWS[:10]))
    base = ("train-llm", "--text", file, *FIELDS, "--eval-text", f"other={other}",
            "--artifact-dir", tmp_path / "run")  # fmt: skip
    code, _, err = cli(*base, *options(steps=4, tokenizer="chars"))
    assert code == 0, err
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    trained = [row for row in map(json.loads, lines) if row["kind"] == "other"][-1]
    measure = ("eval", "--model", tmp_path / "run", "--text", other, "--json")
    code, out, err = cli(*measure, *FIELDS)
    assert code == 0, err
    found = json.loads(out)
    assert found["tokens"] == trained["tokens"] == sum(len(row["a"]) + 1 for row in ROWS[:10])
    assert found["loss"] == pytest.approx(trained["loss"], rel=1e-5)
    check(cli(*measure, "--completion-field", "b"), 1, "must have the field 'prompt'")
    check(cli(*measure, "--prompt-field", ""), 2, "must not be empty")


def test_pairs_are_always_packed(file, tmp_path, cli):
    given = ("train-llm", "--text", file, *FIELDS, "--no-packing", "--artifact-dir", tmp_path)
    check(cli(*given, *options()), 2, "exclude --no-packing")


def test_a_rate_is_found_on_pairs(file, tmp_path, cli):
    sizes = tmp_path / "run.toml"
    sizes.write_text('layers = 1\nheads = 2\nembd = 16\ntokenizer = "chars"\nseq_len = 16\n')
    given = ("lr-find", "--config", sizes, "--text", file, "--batch-size", 4, "--tries", 8,
             "--json")  # fmt: skip
    code, out, err = cli(*given, *FIELDS, "--start", 1e-4, "--end", 1e-2)
    assert code == 0, err
    run = LLMRun.sketch(small(file, tmp_path / "run"))
    assert json.loads(out)["losses"] == pytest.approx(run.find_lr(1e-4, 1e-2, 8).losses, rel=1e-5)
    check(cli(*given, "--completion-field", "b"), 1, "must have the field 'prompt'")
    check(cli(*given, "--prompt-field", ""), 2, "--prompt-field must not be empty")
