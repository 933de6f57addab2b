# SPDX-License-Identifier: MIT
"""Text of any kind and size on the command line: rows, stores, packing, prefetching."""

from __future__ import annotations

import gzip
import json
import os
import re

import pytest

from pyggml.recipes import LLMConfig, LLMRun
from pyggml.train import list_checkpoints, read_metrics

from .conftest import TEXT, options
from .test_bad_input import check, train

LINES = TEXT.splitlines() * 2


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """Nothing is left in the user's folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user-cache"))


def jsonl(path, field="text"):
    path.write_text("".join(json.dumps({field: line, "id": 1}) + "\n" for line in LINES))
    return path


def table(path, field="text"):
    rows = "".join(f'{n},"{line}"\n' for n, line in enumerate(LINES))
    path.write_text(f"id,{field}\n{rows}")
    return path


def packed(path, field="text"):
    with gzip.open(path, "wt") as file:
        file.writelines(json.dumps({field: line}) + "\n" for line in LINES)
    return path


def parquet(path, field="text"):
    pa = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(pa.table({field: LINES}), path)
    return path


KINDS = {"a.jsonl": jsonl, "a.csv": table, "a.jsonl.gz": packed, "a.parquet": parquet}


def weights(folder):
    newest = list_checkpoints(folder / "checkpoints")[-1]
    return newest.name, [
        (newest / name).read_bytes() for name in ("model.safetensors", "optimizer.safetensors")
    ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cached", [False, True])
def test_rows_are_documents(tmp_path, cli, kind, cached):
    path = KINDS[kind](tmp_path / kind, "body")
    more = ["--cache-dir", tmp_path / "cache"] if cached else []
    code, out, err = cli("train-llm", "--text", path, "--field", "body", "--artifact-dir",
                         tmp_path / "run", *options(), *more)  # fmt: skip
    assert code == 0, err
    assert f"{len(LINES)} documents, " in out
    # The vocabulary is that of the texts: no brace of JSON, no number of a row.
    tokenizer = json.loads((tmp_path / "run" / "tokenizer.json").read_text())
    assert not set('{}"1') & set(tokenizer["model"]["vocab"])
    left = sorted(p.name for p in tmp_path.iterdir() if p.name != kind)
    assert left == ["cache", "run"] if cached else ["run"]
    assert ("tokens in" in out) == cached
    code, out, err = cli("eval", "--model", tmp_path / "run", "--text", path, "--field", "body")
    assert code == 0, err


def test_rows_of_a_folder_and_lr_find(tmp_path, cli):
    (tmp_path / "rows").mkdir()
    jsonl(tmp_path / "rows" / "a.jsonl")
    table(tmp_path / "rows" / "b.csv")
    code, out, err = cli("train-llm", "--text", tmp_path / "rows", "--artifact-dir",
                         tmp_path / "run", *options())  # fmt: skip
    assert code == 0, err
    assert f"{2 * len(LINES)} documents, " in out
    file = tmp_path / "run" / "config.toml"
    code, out, err = cli("lr-find", "--config", file, "--tries", 8, "--start", 1e-4, "--end", 1e-2)
    assert code == 0, err
    assert "suggested" in out


def test_what_is_left_out_of_a_folder_is_told(tmp_path, cli):
    (tmp_path / "mixed").mkdir()
    jsonl(tmp_path / "mixed" / "a.jsonl")
    (tmp_path / "mixed" / "README.md").write_text(TEXT)
    code, out, err = cli("train-llm", "--text", tmp_path / "mixed", "--artifact-dir",
                         tmp_path / "run", *options())  # fmt: skip
    assert code == 0, err
    assert "note: records beside text in a folder are left out (a.jsonl): name the files" in out
    (tmp_path / "a.json").write_text(json.dumps(LINES))
    code, out, err = cli("train-llm", "--text", tmp_path / "a.json", "--artifact-dir",
                         tmp_path / "json", *options())  # fmt: skip
    assert code == 0, err
    assert "a.json is read as text, with its braces: for records write JSONL" in out


@pytest.mark.slow
def test_memory_and_disk_and_threads_give_the_same_weights(tmp_path, text_file, cli):
    """And what is cached is found again."""
    found = []
    for name, more in {
        "memory": ["--prefetch", 0],
        "ahead": ["--prefetch", 3],
        "disk": ["--cache-dir", tmp_path / "cache"],
        "again": ["--cache-dir", tmp_path / "cache"],
    }.items():
        folder = tmp_path / name
        code, out, err = cli("train-llm", "--text", text_file, "--artifact-dir", folder,
                             *options(), *more)  # fmt: skip
        assert code == 0, err
        assert "data wait " in out
        found.append(weights(folder))
    assert found[0] == found[1] == found[2] == found[3]
    assert len(list((tmp_path / "cache").iterdir())) == 1
    assert not (tmp_path / "user-cache").exists()


def test_large_text_goes_into_the_users_cache(tmp_path, text_file, cli, monkeypatch):
    from pyggml.recipes import corpus

    monkeypatch.setattr(corpus, "_IN_MEMORY_BYTES", 500)
    monkeypatch.setattr(corpus, "_VOCABULARY_BYTES", 1000)
    code, out, err = cli("train-llm", "--text", text_file, "--artifact-dir", tmp_path / "run",
                         *options(tokenizer="bpe:260"))  # fmt: skip
    assert code == 0, err
    for words in ("tokenizer: bpe:260, from 1.0 kB of 2.", "tokenizing 2.", "tokens in"):
        assert words in out, words
    stores = list((tmp_path / "user-cache" / "pyggml").iterdir())
    assert [store.name[:7] for store in stores] == ["tokens-"]


@pytest.mark.parametrize(
    "harm", [bytes, pytest.param(os.urandom, marks=pytest.mark.slow)], ids=["zeros", "noise"]
)
def test_a_damaged_cache_is_not_trained_on(tmp_path, text_file, cli, caplog, harm):
    """It would train on other text, or name the tokenizer, in every run that finds it."""
    found = []
    for name in ("whole", "damaged"):
        code, _, err = cli("train-llm", "--text", text_file, "--artifact-dir", tmp_path / name,
                           *options(), "--cache-dir", tmp_path / "cache")  # fmt: skip
        assert code == 0, err
        found.append(weights(tmp_path / name))
        (tokens,) = (tmp_path / "cache").glob("*/tokens.bin")
        if name == "whole":
            assert not caplog.records
            tokens.write_bytes(harm(tokens.stat().st_size))
    assert found[0] == found[1]
    assert "tokens.bin: must " in caplog.text
    assert "The text is tokenized again" in caplog.text


@pytest.mark.parametrize(
    "more",
    [
        pytest.param([], marks=pytest.mark.slow),
        pytest.param(["--packing"], marks=pytest.mark.slow),
        ["--cache-dir", "cache", "--packing"],
    ],
    ids=str,
)
def test_resume_is_exact(tmp_path, cli, monkeypatch, more):
    monkeypatch.chdir(tmp_path)
    path = jsonl(tmp_path / "a.jsonl")
    base = ["train-llm", "--text", path, *options(steps=12, save_every=4), *more]
    code, _, err = cli(*base, "--artifact-dir", "whole")
    assert code == 0, err
    code, _, err = cli(*base, "--artifact-dir", "broken", "--keep", 3)
    assert code == 0, err
    # As if killed after step 4; the best, of step 12, is one to go on from as well.
    for name in ("step-000008", "step-000012", "best"):
        (tmp_path / "broken" / "checkpoints" / name).rename(tmp_path / name)
    code, out, err = cli("train-llm", "--resume", "--artifact-dir", "broken")
    assert code == 0, err
    assert "continuing after step 4" in out
    assert weights(tmp_path / "broken") == weights(tmp_path / "whole")


def test_resume_refuses_other_text_of_the_same_size(tmp_path, cli):
    path = tmp_path / "a.txt"
    path.write_text(TEXT)
    base = ["train-llm", "--artifact-dir", tmp_path / "run"]
    code, _, err = cli(*base, "--text", path, *options())
    assert code == 0, err
    path.write_text(TEXT.replace("dog", "god"))
    check(cli(*base, "--resume", "--steps", 8), 1, "the text has changed")
    path.write_text(TEXT)
    for more in (["--packing"], ["--field", "body"], ["--separator", "."]):
        check(cli(*base, "--resume", *more), 2, f"{more[0]} cannot change")


def test_a_missing_text_to_evaluate_on_is_told_first(tmp_path, text_file, cli):
    result = train(cli, tmp_path, "--text", text_file, "--eval-text", f"x={tmp_path}/none.txt")
    check(result, 1, "none.txt: no such file")
    assert "tokenizer:" not in result[1]


def test_evaluations_that_take_longer_than_the_training_are_told(tmp_path, text_file, cli):
    base = ["train-llm", "--text", text_file, *options(val_fraction=0.5, eval_every=1)]
    code, out, err = cli(*base, "--artifact-dir", tmp_path / "a")
    assert code == 0, err
    assert re.search(r"note: each evaluation reads [\d,]+ tokens, 1\d times what is trained", out)
    code, out, err = cli(*base, "--artifact-dir", tmp_path / "b", "--eval-batches", 2)
    assert code == 0, err
    assert "note: each evaluation" not in out


def test_packing_keeps_documents_apart(tmp_path, cli):
    path = jsonl(tmp_path / "a.jsonl")
    config = LLMConfig(
        text=str(path), artifact_dir=tmp_path / "run", packing=True, tokenizer="chars", steps=2,
        layers=1, heads=2, embd=16, seq_len=128, batch_size=2,
    )  # fmt: skip
    run = LLMRun.prepare(config)
    batch = next(iter(run.trainer.loader))
    assert sorted(batch.inputs) == ["positions", "segments"]
    assert batch.inputs["segments"].max() >= 1
    assert run.train_tokens + run.val_tokens == run.data["tokens"]
    # Every token of the documents for validation is a target once, but for the first of each.
    result = run.train()
    documents = run.trainer.sets["validation"].loader.dataset.documents
    assert result.validation.tokens == documents.lengths.sum() - len(documents)
    assert "% text" in dict(run.describe())["tokens"]


def test_separators_make_documents(tmp_path, cli):
    path = tmp_path / "a.txt"
    path.write_text("<|endoftext|>".join(LINES))
    code, out, err = cli("train-llm", "--text", path, "--separator", "<|endoftext|>", "--packing",
                         "--artifact-dir", tmp_path / "run", *options())  # fmt: skip
    assert code == 0, err
    assert f"{len(LINES)} documents, " in out


def test_the_page_tells_of_the_wait(trained):
    page = (trained[0] / "report.html").read_text()
    assert "waiting for batches</td><td>" in page
    assert "% of the time" in page
    assert all("wait_s" in line for line in read_metrics(trained[0] / "metrics.jsonl")
               if line["kind"] == "train")  # fmt: skip


BAD_TEXT = [
    ("a.jsonl", b"", [], 1, ["empty"]),
    ("a.jsonl", b'{"body": "x"}\n', [], 1, ["a.jsonl:1", "'text'", "'body'", "--field"]),
    ("a.jsonl", b'{"text": "x"}\n{"no": 1}\n', [], 1, ["a.jsonl:2", "'no'"]),
    ("a.jsonl", b'{"text": 5}\n', [], 1, ["a.jsonl:1", "must be text", "int"]),
    ("a.jsonl", b'{"text": "x"\n', [], 1, ["a.jsonl:1", "not JSON"]),
    ("a.jsonl", b'{"text": "\xff"}\n', [], 1, ["a.jsonl:1", "UTF-8"]),
    ("a.jsonl", b"\0\1\2", [], 1, ["a.jsonl:1", "binary"]),
    ("a.jsonl", b'{"text": " "}\n', [], 1, ["a.jsonl"]),
    ("a.csv", b"id,body\n1,x\n", [], 1, ["a.csv:2", "'text'", "'body'", "--field"]),
    ("a.jsonl", b'[{"text": "x"}]', [], 1, ["a.jsonl:1", "one object on each line"]),
    ("a.csv", b"id,text\n1\n", [], 1, ["a.csv:2", "2 fields"]),
    ("a.csv", b"text\n", [], 1, ["a.csv"]),
    ("a.jsonl.gz", b"no gzip", [], 1, ["a.jsonl.gz", "not JSON"]),
    ("a.txt", gzip.compress(b"text", mtime=0), [], 1, ["a.txt", "gzip", "unpack"]),
    ("a.txt", b"PK\3\4", [], 1, ["a.txt", "zip"]),
    ("a.txt", b"text", ["--field", "body"], 2, ["--field body", "leave --field out"]),
    ("a.jsonl", b'{"text": "x"}\n', ["--separator", "|"], 2, ["--separator"]),
    ("a.txt", TEXT.encode(), ["--field", ""], 2, ["--field must not be empty"]),
    ("a.txt", TEXT.encode(), ["--separator", ""], 2, ["--separator must not be empty"]),
    ("a.txt", TEXT.encode(), ["--cache-dir", ""], 2, ["--cache-dir must"]),
    ("a.txt", TEXT.encode(), ["--cache-dir", "/proc/none"], 2, ["--cache-dir /proc/none"]),
    ("a.txt", TEXT.encode(), ["--packing"], 2, ["--packing needs documents", "--separator"]),
    ("a.txt", TEXT.encode(), ["--packing", "--stride", "4"], 2, ["--packing excludes --stride"]),
    ("a.txt", TEXT.encode(), ["--prefetch", "-1"], 2, ["--prefetch", "-1"]),
    ("a.txt", TEXT.encode(), ["--label-smoothing", "1"], 2, ["--label-smoothing", "< 1"]),
    ("a.txt", TEXT.encode(), ["--layer-lr-decay", "0"], 2, ["--layer-lr-decay", "> 0"]),
    ("a.txt", TEXT.encode(), ["--lr-scale", "x"], 2, ["--lr-scale must be PATTERN=FACTOR"]),
    ("a.txt", TEXT.encode(), ["--lr-scale", "nothing=2"], 2, ["--lr-scale", "'nothing'", "model."]),
    ("a.txt", TEXT.encode(), ["--no-decay", "nothing"], 2, ["--no-decay", "'nothing'", "model."]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "more", "code", "words"), BAD_TEXT, ids=str)
def test_bad_text_and_options(tmp_path, cli, name, content, more, code, words):
    (tmp_path / name).write_bytes(content)
    check(train(cli, tmp_path, "--text", tmp_path / name, *more), code, *words)


def test_a_parquet_file_without_the_column(tmp_path, cli):
    path = parquet(tmp_path / "a.parquet", "body")
    check(train(cli, tmp_path, "--text", path), 1, "a.parquet: row 0", "'text'", "--field")
    path.write_bytes(b"PAR1")
    check(train(cli, tmp_path, "--text", path), 1, "a.parquet", "damaged")


def test_rules_for_single_parameters_reach_the_optimizer(tmp_path, text_file, cli):
    code, _, err = cli(
        "train-llm", "--text", text_file, "--artifact-dir", tmp_path / "run", *options(layers=2),
        "--no-decay", "*embed*", "--lr-scale", "model.norm.*=0.5", "--lr-scale", "*.mlp.*=2",
        "--layer-lr-decay", "0.5", "--label-smoothing", "0.1",
    )  # fmt: skip
    assert code == 0, err
    saved = (tmp_path / "run" / "config.toml").read_text()
    for line in ('no_decay = ["*embed*"]', "layer_lr_decay = 0.5", "label_smoothing = 0.1",
                 'lr_scale = ["model.norm.*=0.5", "*.mlp.*=2"]'):  # fmt: skip
        assert line in saved
    again = LLMConfig.from_dict(json.loads((tmp_path / "run" / "config.json").read_text())["train"])
    assert again.optimizer.no_decay == ("*embed*",)
    code, out, err = cli("train-llm", "--resume", "--artifact-dir", tmp_path / "run",
                         "--steps", 8, "--label-smoothing", 0)  # fmt: skip
    assert code == 0, err
    assert "--label-smoothing was 0.1 and is now 0.0" in out


def test_a_cache_in_a_file_of_options_is_a_path(tmp_path, cli):
    (tmp_path / "run.toml").write_text("cache_dir = 5\n")
    check(train(cli, tmp_path, "--config", tmp_path / "run.toml"), 2, "--cache-dir must")


def test_lr_find_does_not_log(tmp_path, text_file, cli, monkeypatch):
    import sys

    monkeypatch.chdir(tmp_path)
    for package in ("tensorboard", "wandb"):
        monkeypatch.setitem(sys.modules, package, None)
    (tmp_path / "run.toml").write_text(
        f'text = ["{text_file}"]\ntokenizer = "chars"\nlayers = 1\nheads = 2\nembd = 16\n'
        'seq_len = 16\nbatch_size = 4\ntensorboard = true\nwandb = "project"\nsample_every = 2\n'
        "mfu = true\n"
    )
    code, out, err = cli("lr-find", "--config", "run.toml", "--tries", 8, "--start", 1e-4)
    assert code == 0, err
    assert "suggested" in out
    assert [p.name for p in tmp_path.iterdir()] == ["run.toml"]
