# SPDX-License-Identifier: MIT
"""Fine-tuning by preferences: runs, exact resume, the kept reference, and what is refused."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from pyggml.data import Tokenizer
from pyggml.errors import ConfigError, FormatError
from pyggml.models import Llama, LlamaConfig
from pyggml.recipes import FinetuneConfig, FinetuneRun, finetune

SMALL = {"batch_size": 4, "steps": 6, "warmup": 0, "threads": 1, "lr": 3e-2, "lora_rank": 4,
         "answers": 1, "answer_tokens": 4, "val_fraction": 0.25, "method": "dpo", "save_every": 3,
         "eval_every": 0, "report": False}  # fmt: skip


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """A folder with a base, pairs and judged answers."""
    folder = tmp_path_factory.mktemp("preferences")
    pairs = [
        {"prompt": f"{n} and {n}? ", "chosen": f"It is {2 * n}.", "rejected": "No!"}
        for n in range(16)
    ]
    texts = [row["prompt"] + row["chosen"] + row["rejected"] for row in pairs]
    tokenizer = Tokenizer.train_bpe(texts, 280)
    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 16, "n_ffn": 32, "context": 128}
    model = Llama(LlamaConfig(vocab_size=tokenizer.vocab_size, **sizes))
    model.save(folder / "base.gguf", tokenizer, dtype="f16")
    write_rows(folder / "pairs.jsonl", pairs)
    judged = [
        {"prompt": row["prompt"], "completion": row[name], "label": name == "chosen"}
        for row in pairs
        for name in ("chosen", "rejected")
    ]
    write_rows(folder / "judged.jsonl", judged)
    return folder


def options(here, name, **changes):
    given = {"model": here / "base.gguf", "data": here / "pairs.jsonl", "artifact_dir": here / name}
    return {**given, **SMALL, **changes}


@pytest.fixture(scope="module")
def trained(here):
    return finetune(**options(here, "dpo", merge="base"))


def test_dpo_moves_the_margin_and_writes_an_adapter(trained):
    before, after = trained.comparison.before, trained.comparison.after
    assert before.loss == pytest.approx(np.log(2), abs=1e-4)
    assert abs(before.metrics["margin"]) < 1e-4
    assert after.metrics["margin"] > 0.05
    assert after.metrics["accuracy"] == 1.0
    assert after.loss < before.loss
    assert "perplexity" not in str(after)
    merged = trained.comparison.merged
    assert merged.metrics["margin"] == pytest.approx(after.metrics["margin"], abs=0.05)
    files = {path.name for path in trained.artifact.path.iterdir()}
    assert {"adapter.gguf", "adapter", "reference.json", "model.gguf"} <= files
    lines = [json.loads(line) for line in trained.artifact.metrics.read_text().splitlines()]
    assert any("margin" in json.dumps(line) for line in lines)
    assert "dpo" in dict(trained.describe())["method"]
    assert len(trained.sample()) == 2


@pytest.mark.parametrize("method", ["ipo", "orpo"])
def test_other_methods_run(here, method):
    run = finetune(**options(here, method, method=method))
    metrics = run.comparison.after.metrics
    assert metrics["margin"] > run.comparison.before.metrics["margin"]
    assert (run.artifact.path / "reference.json").exists() == (method == "ipo")


def test_kto_learns_of_judged_answers(here):
    run = finetune(**options(here, "kto", method="kto", data=here / "judged.jsonl"))
    assert run.comparison.after.metrics["margin"] > 0.02
    assert "kl" in run.comparison.after.metrics


def test_a_resumed_run_has_the_same_bits(here, trained, monkeypatch):
    folder = here / "resumed"
    shutil.copytree(trained.artifact.path, folder)
    for path in sorted((folder / "checkpoints").glob("step-*"))[1:]:
        shutil.rmtree(path)
    shutil.rmtree(folder / "checkpoints" / "best", ignore_errors=True)
    (folder / "checkpoints" / "latest").unlink(missing_ok=True)
    monkeypatch.setattr(
        "pyggml.recipes.tuning.preferences.document_logps",
        lambda *given: pytest.fail("the reference is computed again"),
    )
    run = FinetuneRun.resume(folder)
    assert 0 < run.trainer.step < 6
    run.train()
    for one, other in zip(trained.model.parameters(), run.model.parameters(), strict=True):
        assert np.array_equal(one.numpy(), other.numpy())


def test_a_reference_file_serves_several_runs(here, monkeypatch):
    shared = here / "shared.json"
    first = FinetuneRun.prepare(FinetuneConfig(**options(here, "a", reference=shared)))
    first.artifact.release()
    assert shared.exists()
    with monkeypatch.context() as patch:
        patch.setattr(
            "pyggml.recipes.tuning.preferences.document_logps",
            lambda *given: pytest.fail("the reference is computed again"),
        )
        config = FinetuneConfig(**options(here, "b", reference=shared, lr=1e-3))
        FinetuneRun.prepare(config).artifact.release()
    shared.write_bytes(shared.read_bytes()[:-3])
    with pytest.raises(FormatError, match="reference"):
        FinetuneRun.prepare(FinetuneConfig(**options(here, "c", reference=shared)))


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"train_on": "all"}, "train_on"),
        ({"too_long": "split"}, "too_long"),
        ({"packing": False}, "packing"),
        ({"method": "sft", "beta": 0.1}, "beta"),
        ({"simpo_gamma": 1.0}, "simpo_gamma"),
        ({"desirable_weight": 2.0}, "desirable_weight"),
        ({"method": "orpo", "reference": "r.json"}, "reference"),
        ({"reference": "nowhere/r.json"}, "`reference`=.*nowhere does not"),
        ({"method": "ipo", "label_smoothing": 0.1}, "label_smoothing"),
        ({"method": "other"}, "method"),
        ({"seq_len": 3}, "seq_len"),
    ],
)
def test_options_that_do_not_fit_are_refused(here, changes, name):
    with pytest.raises(ConfigError, match=name):
        FinetuneRun.prepare(FinetuneConfig(**options(here, "bad", **changes)))


def test_rows_of_another_kind_are_refused(here, tmp_path):
    with pytest.raises(ConfigError, match="kto"):
        FinetuneRun.prepare(FinetuneConfig(**options(here, "bad", data=here / "judged.jsonl")))
    path = write_rows(tmp_path / "rows.jsonl", [{"prompt": "a", "chosen": "b"}])
    with pytest.raises(FormatError, match=r"rows\.jsonl") as raised:
        FinetuneRun.prepare(FinetuneConfig(**options(here, "bad", data=path)))
    assert "1" in str(raised.value)
    talk = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    path = write_rows(tmp_path / "chats.jsonl", [{"messages": talk}])
    with pytest.raises(FormatError, match="`method`=sft"):
        FinetuneRun.prepare(FinetuneConfig(**options(here, "bad", data=path)))


def test_a_system_message_takes_a_template(here):
    config = FinetuneConfig(**options(here, "system", system="Be brief."))
    run = FinetuneRun.prepare(config)
    run.artifact.release()
    assert run.examples.template is not None
