# SPDX-License-Identifier: MIT
"""Fine-tuning a classifier or a reward: files, exact resume, and what is refused."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

import pyggml as pg
from pyggml.data import Tokenizer
from pyggml.errors import ConfigError, FormatError
from pyggml.models import GPT2, GPT2Config, Llama, LlamaConfig, load, load_lora
from pyggml.recipes import finetune

from .test_finetune import StopAt

SMALL = {"batch_size": 4, "steps": 12, "warmup": 1, "threads": 1, "lr": 2e-2, "lora_rank": 4,
         "task": "classify", "val_fraction": 0.25, "save_every": 5, "eval_every": 0,
         "report": False}  # fmt: skip


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """A folder with quantised bases, texts with labels, and pairs."""
    folder = tmp_path_factory.mktemp("classify")
    words = ("fine", "poor", "none")
    texts = [{"text": f"{n} is {words[n % 3]}", "label": words[n % 3]} for n in range(24)]
    tokenizer = Tokenizer.train_bpe([row["text"] for row in texts], 280)
    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 32, "n_ffn": 64, "context": 32}
    for family in ("qwen2", "qwen3"):
        model = Llama(LlamaConfig(vocab_size=tokenizer.vocab_size, family=family, **sizes))
        model.save(folder / f"{family}.gguf", tokenizer, dtype="q8_0")
    config = GPT2Config(vocab_size=tokenizer.vocab_size, n_layer=1, n_head=2, n_embd=32, context=32)
    GPT2(config).save(folder / "gpt2.gguf", tokenizer)
    write_rows(folder / "texts.jsonl", texts)
    pairs = [
        {"prompt": f"{n}? ", "chosen": f"{n} is fine", "rejected": f"{n} is none"}
        for n in range(16)
    ]
    write_rows(folder / "pairs.jsonl", pairs)
    return folder


def options(here, name, **changes):
    given = {"model": here / "qwen3.gguf", "data": here / "texts.jsonl"}
    return {**given, "artifact_dir": here / name, **SMALL, **changes}


@pytest.fixture(scope="module")
def trained(here):
    return finetune(**options(here, "run"))


def test_classes_are_learnt_and_written_for_llama_cpp(here, trained):
    found = trained.comparison
    assert found.after.metrics["accuracy"] == 1.0
    assert found.after.loss < found.before.loss
    assert found.merged.loss == pytest.approx(found.after.loss, abs=0.05)
    assert "perplexity" not in str(found.before)
    assert found.answers == []
    names = {path.name for path in trained.artifact.path.iterdir()}
    assert {"adapter", "model.gguf"} <= names
    assert not {"adapter.gguf", "model", "chat_template.jinja"} & names
    assert "--pooling rank" in trained.commands()[0]
    model, tokenizer = load(here / "run" / "model.gguf", keep_types=True)
    assert model.config.labels == ("fine", "none", "poor")
    ids = tokenizer.encode("77 is poor", add_special=True)
    assert model(pg.tensor(ids[None])).numpy().argmax() == 2
    assert trained.sample()[0][1][0].strip(" →") in model.config.labels


def test_a_run_without_a_file_names_the_folder_of_its_model(here, trained, tmp_path):
    shutil.copy(trained.artifact.config, tmp_path)
    with pytest.raises(FormatError, match=r"a run must hold model\.gguf; .*not finish"):
        load(tmp_path)
    model, tokenizer = load(here / "qwen3.gguf")
    model.save_pretrained(tmp_path / "model", tokenizer)
    with pytest.raises(FormatError, match=r"the folder of a run: give .*model$"):
        load(tmp_path)


def test_a_class_without_a_row_is_told(here):
    notes, names = [], ["fine", "none", "poor", "odd"]
    finetune(**options(here, "unseen", labels=names, steps=1), note=notes.append)
    assert "note: no row is of class odd: it is never right" in notes
    assert not [line for line in notes if "perplexity" in line]


def test_the_adapter_has_the_head(here, trained):
    base, _ = load(here / "qwen3.gguf", keep_types=True)
    model = pg.models.LlamaForSequenceClassification.from_body(base, 3)
    load_lora(model, here / "run" / "adapter")
    x = pg.tensor([[5, 6, 7]])
    np.testing.assert_array_equal(model(x).numpy(), trained.model.eval()(x).numpy())
    more = finetune(
        **options(here, "more", adapter=here / "run" / "adapter", lora_rank=None, steps=1)
    )
    assert more.comparison.before.loss == pytest.approx(trained.comparison.after.loss, abs=1e-5)


def test_a_resumed_run_ends_with_the_same_bits(here, trained):
    with pytest.raises(RuntimeError, match="stop"):
        finetune(**options(here, "broken"), callbacks=[StopAt(7, RuntimeError("stop"))])
    finetune(artifact_dir=here / "broken", resume=True)
    for name in ("model.gguf", "adapter/adapter_model.safetensors", "answers.json"):
        assert (here / "broken" / name).read_bytes() == (here / "run" / name).read_bytes()
    swapped = write_rows(here / "swapped.jsonl", [
        {**row, "label": {"fine": "poor", "poor": "fine"}.get(row["label"], row["label"])}
        for row in map(json.loads, (here / "texts.jsonl").read_text().splitlines())
    ])  # fmt: skip
    with pytest.raises(FormatError, match="`data`"):
        finetune(artifact_dir=here / "broken", resume=True, data=swapped)


def test_a_reward_prefers_what_is_chosen_and_is_a_folder(here):
    given = options(here, "reward", model=here / "qwen2.gguf", data=here / "pairs.jsonl")
    run = finetune(**given, merge="f32")
    assert run.comparison.before.loss == pytest.approx(np.log(2), abs=0.1)
    assert run.comparison.after.metrics["accuracy"] == 1.0
    assert run.comparison.merged.loss == pytest.approx(run.comparison.after.loss, abs=1e-4)
    assert run.commands() == []
    model, tokenizer = load(here / "reward" / "model")
    ids = [tokenizer.encode(f"3? 3 is {word}") for word in ("fine", "none")]
    good, bad = (model(pg.tensor(each[None])).item() for each in ids)
    assert good > bad
    # The token of the padding ends no text of the run, all of which end with the end of text.
    config = json.loads((here / "reward" / "model" / "config.json").read_text())
    assert config["pad_token_id"] != tokenizer.eos_id


def test_all_weights_can_be_trained_and_a_classifier_goes_on(here, trained):
    given = options(here, "full", full=True, lora_rank=None, lr=1e-3, model=here / "run", steps=2)
    run = finetune(**given)
    assert run.comparison.before.metrics["accuracy"] == 1.0
    assert run.adapted == []
    model, _ = load(here / "full" / "model.gguf", keep_types=True)
    assert model.score.weight.dtype.name == "f32"


@pytest.mark.parametrize(
    ("changes", "error", "named"),
    [
        ({"labels": ["fine", "poor"]}, FormatError, "texts.jsonl:3"),
        ({"labels": ["fine"]}, ConfigError, "labels"),
        ({"labels": ["x", "y"], "data": "pairs.jsonl"}, ConfigError, "labels"),
        ({"data": "one.jsonl"}, FormatError, "two classes"),
        ({"data": "lacks.jsonl"}, FormatError, "lacks.jsonl:2"),
        ({"method": "dpo"}, ConfigError, "`method`"),
        ({"train_on": "all"}, ConfigError, "`train_on`"),
        ({"too_long": "split"}, ConfigError, "`too_long`"),
        ({"answers": 2}, ConfigError, "`answers`"),
        ({"system": "x"}, ConfigError, "`system`"),
        ({"seq_len": 64}, ConfigError, "`seq_len`"),
        ({"val_fraction": 0.99}, ConfigError, "`val_fraction`"),
        ({"model": "gpt2.gguf"}, ConfigError, "Llama"),
        ({"model": "run", "labels": ["poor", "fine", "none"]}, ConfigError, "`labels`"),
        ({"model": "run", "data": "pairs.jsonl"}, ConfigError, "classes"),
        ({"model": "qwen2.gguf", "merge": "q8_0"}, ConfigError, "`merge`"),
        ({"task": "text", "labels": ["x", "y"]}, ConfigError, "`labels`"),
    ],
)
def test_what_cannot_be_is_named(here, trained, changes, error, named):
    write_rows(here / "one.jsonl", [{"text": str(n), "label": "x"} for n in range(4)])
    write_rows(here / "lacks.jsonl", [{"text": "a", "label": "x"}, {"text": "b"}])
    for name in ("model", "data"):
        if name in changes:
            changes = {**changes, name: here / changes[name]}
    with pytest.raises(error, match=named):
        finetune(**options(here, "never", **changes))
    assert not (here / "never").exists()


def test_the_predictions_of_the_validation_texts_are_written(here, trained):
    found = json.loads((here / "run" / "results.json").read_text())
    assert found["accuracy"] == trained.comparison.after.metrics["accuracy"] == 1.0
    assert list(found["classes"]) == ["fine", "none", "poor"]
    assert sum(map(sum, found["confusion"])) == found["texts"] == len(trained.examples.rows[1])
    assert found["worst"] == []
    logits = [np.tile([[3.0, 0.0, 0.0]], (found["texts"] + 2, 1))]  # a batch that is filled up
    worst = trained.examples.results(logits, trained.tokenizer).worst
    assert {each["predicted"] for each in worst} == {"fine"}
    assert all(each["text"].endswith(each["true"]) for each in worst), worst
