# SPDX-License-Identifier: MIT
"""The configurations of the recipes: agreement of options, sizes of models, files."""

from __future__ import annotations

import datetime
import json

import pytest

from pyggml.errors import ConfigError, ConfigTypeError
from pyggml.models import build
from pyggml.options import options_of
from pyggml.recipes import ImageConfig, LLMConfig, read_config, save_config
from pyggml.recipes.llm_config import DataOptions
from pyggml.recipes.options import OptimizerOptions
from pyggml.recipes.resume import identity, merge
from pyggml.recipes.sizes import estimate_parameters, model_config
from pyggml.train import TrainerOptions
from pyggml.train.options import CHECKPOINTS, LOADER, NAMED_SCHEDULE, PROGRESS, VALIDATION

# Options that cannot be used, and what the message must have.
BAD = [
    ({"tokenizer": "bpe:many"}, ["`tokenizer`", "bpe:many"]),
    ({"tokenizer": "bpe:100"}, ["`tokenizer`", "257"]),
    ({"tokenizer": "bpe:" + "9" * 30}, ["`tokenizer`", "1000000"]),
    ({"eval_text": ["train=a.txt"]}, ["`eval_text` needs names that differ", "train=a.txt"]),
    ({"eval_text": ["a=a.txt", "a=b.txt"]}, ["`eval_text` needs names that differ"]),
    ({"eval_text": ["caf\udce9.txt"]}, ["`eval_text` must be NAME=PATH; got 'caf\\xe9.txt'"]),
    ({"eval_text": ["caf\udce9=a.txt"]}, ["needs a NAME of letters", "'caf\\xe9=a.txt'"]),
    ({"lr_scale": ["x"]}, ["`lr_scale`"]),
    ({"optimizer_options": {"lr": 1}}, ["`optimizer_options`", "`lr`"]),
    ({"optimizer_options": {"params": 1}}, ["`optimizer_options`", "params"]),
    ({"optimizer_options": {"eps": -1}}, ["`optimizer_options`", ": eps"]),
    ({"schedule": "polynomial", "schedule_options": {"power": -1}}, ["_options`", ": power"]),
    ({"metrics": "nosuch"}, ["`metrics`", "f1_weighted", "f1_micro", "f1_binary"]),
    ({"memory_limit": "1.5"}, ["`memory_limit`"]),
    ({"heads": 3, "embd": 256}, ["`heads` must divide `embd`", "`embd`=258"]),
    ({"heads": 4, "kv_heads": 3}, ["`kv_heads` must divide `heads`"]),
    ({"seq_len": 65, "context": 64}, ["`seq_len`=65", "`context`=64"]),
    ({"epochs": 1, "steps": 1}, ["`epochs`", "`steps`"]),
    ({"packing": True, "stride": 3}, ["`packing`", "`stride`"]),
    ({"text": "a", "prompt_field": "q", "packing": False}, ["`packing`"]),
    ({"patience": 3, "val_fraction": 0.0}, ["`patience`", "`val_fraction`"]),
    ({"schedule": "plateau", "val_fraction": 0.0}, ["`schedule`", "`val_fraction`"]),
    ({"optimizer": "lbfgs"}, ["`optimizer`=lbfgs", "`clip`=0", "`weight_decay`=0"]),
    ({"fused_update": True}, ["`fused_update`", "`clip`=1"]),
    ({"fused_update": True, "clip": 0.0, "clip_value": 1.0}, ["`clip_value`=1"]),
    ({"fused_update": True, "clip": 0.0, "precision": "f16"}, ["`precision`=bf16"]),
    ({"fused_update": True, "clip": 0.0, "accumulate": 2}, ["`accumulate`=2"]),
]
# Options that nothing would read, and what the message must have besides.
UNREAD = [
    ({"beta2": 0.99, "optimizer": "sgd"}, "`optimizer`=sgd"),
    ({"beta2": 0.99, "optimizer_options": {"betas": [0.9, 0.9]}}, "`optimizer_options`"),
    ({"optimizer_options": {"momentum": 0.9}}, "momentum"),
    ({"schedule_options": {"power": 2}}, "total_steps; got power"),
    ({"schedule_options": {"power": 2}, "schedule": "plateau"}, "factor, .*got power"),
    ({"no_decay": "*attn*", "weight_decay": 0.0}, "`weight_decay`=0"),
    ({"min_lr": 0.1, "schedule": "constant"}, "`schedule`=constant"),
    ({"warmup": 3, "schedule": "one_cycle"}, "`schedule`=one_cycle"),
    ({"eval_every": 5, "val_fraction": 0.0}, "`val_fraction`=0"),
    ({"sample_every": 5, "sample_tokens": 0}, "`sample_tokens`=0"),
    ({"prompt": "The", "sample_tokens": 0}, "`sample_tokens`=0"),
    ({"eval_batches": 9, "val_fraction": 0.0}, "`val_fraction`=0"),
    ({"min_delta": 0.1, "val_fraction": 0.0}, "`val_fraction`=0"),
    ({"min_delta": 0.1, "keep_best": False}, "`patience`"),
    ({"metrics": "top5", "val_fraction": 0.0}, "`val_fraction`=0"),
    ({"keep_best": True, "val_fraction": 0.0}, "`val_fraction`=0"),
    ({"export": "best", "keep_best": False}, "`keep_best`=False"),
    ({"patience": 3, "eval_every": 0}, "`eval_every`=0"),
    ({"schedule": "plateau", "eval_every": 0}, "`eval_every`=0"),
    ({"field": "text"}, "`text`"),
    ({"separator": "--"}, "`text`"),
    ({"prompt_field": "q"}, "`text`"),
]


@pytest.mark.parametrize(("fields", "words"), UNREAD, ids=[str(fields) for fields, _ in UNREAD])
def test_an_option_that_nothing_reads(tmp_path, fields, words):
    name = next(iter(fields))
    with pytest.raises(ConfigError, match=rf"`{name}`[ =].*{words}"):
        LLMConfig(**fields)
    with pytest.raises(ConfigError, match=rf"`{name}`[ =].*{words}"):
        LLMConfig(
            **{
                n: {m: v for m, v in fields.items() if m in options_of(kind)}
                for n, kind in LLMConfig.parts().items()
            }
        )
    lines = [f"{key} = {toml(value)}" for key, value in fields.items()]
    (tmp_path / "c.toml").write_text("\n".join(lines))
    with pytest.raises(ConfigError, match=rf"`{name}`[ =].*{words}"):
        read_config(tmp_path / "c.toml")


def toml(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(each)}" for key, each in value.items()) + "}"
    return json.dumps(value)


def test_every_need_is_known():
    words = {VALIDATION, CHECKPOINTS, LOADER, NAMED_SCHEDULE, PROGRESS}
    for parts in (LLMConfig.parts(), ImageConfig.parts()):
        known = words.union(*(options_of(kind) for kind in parts.values()))
        # Words of a part are those that it tells in some configuration.
        for part in (
            OptimizerOptions(optimizer="sgd"), DataOptions(),
            *(TrainerOptions(schedule=name) for name in ("constant", "one_cycle")),
        ):  # fmt: skip
            known |= part.missing().keys()
        for kind in parts.values():
            for each in options_of(kind).values():
                needs = {n if isinstance(n, str) else n[1] for n in each.needs}
                assert needs <= known, each.name


def test_none_stands_for_the_default():
    assert LLMConfig(lr=None, batch_size=None, text=None, optimizer_options=None) == LLMConfig()
    assert ImageConfig(data="digits", trainer={"batch_size": None})["batch_size"] == 32
    assert LLMConfig(val_fraction=0.0, eval_text="a=a.txt", patience=3)["patience"] == 3
    notes = []
    merge(LLMConfig(), {"batch_size": 8, "field": "text", "text": "a"}, notes.append)
    assert not notes


@pytest.mark.parametrize(("fields", "words"), BAD, ids=[str(fields) for fields, _ in BAD])
def test_bad_options_are_named(fields, words):
    with pytest.raises(ConfigError) as caught:
        LLMConfig(**fields)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("memory_limit", True),
        ("memory_limit", 1.5),
        ("checkpointing", 2.0),
        ("optimizer_options", [("eps", 1)]),
        ("optimizer_options", {"eps": "x"}),
    ],
)
def test_wrong_kinds_are_type_errors(name, value):
    with pytest.raises(ConfigTypeError, match=f"`{name}`"):
        LLMConfig(**{name: value})


@pytest.mark.parametrize("name", [*LLMConfig.options()])
def test_any_value_is_taken_or_raises(name):
    day = datetime.date(1979, 5, 27)
    for value in (None, True, 0, 1, -1, 2**70, 1.5, float("nan"), "x", "", [], [1], {}, day):
        try:
            config = LLMConfig.from_dict({name: value})
        except ConfigError as error:
            assert str(error)  # noqa: PT017
        else:
            assert LLMConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_sizes_come_from_options_then_preset_then_default():
    arch, sizes = model_config(LLMConfig(), 300)
    assert (arch, sizes.vocab_size) == ("llama", 300)
    arch, sizes = model_config(LLMConfig(preset="gpt2-124m", layers=2), 300)
    assert (arch, sizes.n_layer, sizes.n_embd, sizes.context) == ("gpt2", 2, 768, 1024)
    arch, sizes = model_config(LLMConfig(arch="gpt2", preset="tiny"), 300)
    assert (arch, sizes.n_embd) == ("gpt2", 128)
    _, sizes = model_config(LLMConfig(preset="tiny", heads=8), 300)
    assert sizes.n_kv_head == 8
    _, sizes = model_config(LLMConfig(seq_len=48), 300)
    assert sizes.context == 48


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"preset": "huge"}, ["`preset`", "huge", "tiny", "gpt2-124m"]),
        ({"arch": "llama", "preset": "gpt2-124m"}, ["`preset`", "`arch`=llama"]),
        ({"arch": "gpt2", "kv_heads": 2}, ["`kv_heads`", "gpt2"]),
        ({"heads": 3}, ["`heads` must divide `embd`", "`heads`=3"]),
        ({"preset": "tiny", "embd": 130}, ["`heads` must divide `embd`"]),
        ({"kv_heads": 3}, ["`kv_heads` must divide `heads`"]),
        ({"preset": "tiny", "seq_len": 4096}, ["`seq_len`=4096", "`context`=4096"]),
        ({"layers": 2, "checkpointing": 3}, ["`checkpointing`=3", "`layers`=2"]),
        ({"embd": 12, "heads": 4}, ["`embd`"]),  # an odd head size has no rotary pairs
    ],
)
def test_sizes_that_do_not_go_together(fields, words):
    with pytest.raises(ConfigError) as caught:
        model_config(LLMConfig(**fields), 300)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("arch", ["llama", "gpt2"])
def test_parameter_estimate_is_close(arch):
    _, sizes = model_config(LLMConfig(arch=arch, preset="tiny"), 300)
    exact = build(arch, sizes).num_parameters()
    assert abs(estimate_parameters(sizes) - exact) < 0.01 * exact


FULL = LLMConfig(
    text=('a "b"\\c.txt', "ü\n\x7f\x01.txt"), preset="tiny", steps=7, lr=1e-5, weight_decay=1.0,
    checkpointing=3, memory_limit="2GiB", clip=1e22, metrics=("top5",), wandb="p", keep_best=False,
    optimizer="sgd", optimizer_options={"momentum": 0.9, "nesterov": True}, min_lr=0.0,
    schedule="polynomial", schedule_options={"power": 2},
)  # fmt: skip


@pytest.mark.parametrize("config", [LLMConfig(), FULL])
def test_a_file_gives_the_configuration_back(tmp_path, config):
    save_config(config, tmp_path / "c.toml")
    assert LLMConfig(**read_config(tmp_path / "c.toml")) == config
    # A run's own file, too.
    (tmp_path / "config.json").write_text(json.dumps({"train": config.to_dict(), "arch": "x"}))
    assert LLMConfig(**read_config(tmp_path / "config.json")) == config
    assert read_config(tmp_path / "c.toml").get("steps") == config.trainer.steps


def test_files_are_flat_or_have_tables_and_names_may_have_dashes(tmp_path):
    (tmp_path / "c.toml").write_text(
        'batch-size = 3\nscores = ["top5"]\n[optimizer-options]\neps = 1e-6\n[trainer]\nkeep = 4\n'
    )
    assert read_config(tmp_path / "c.toml") == {
        "batch_size": 3,
        "metrics": ["top5"],
        "optimizer_options": {"eps": 1e-6},
        "keep": 4,
    }
    (tmp_path / "i.toml").write_text("epochs = 3\n")
    assert read_config(tmp_path / "i.toml", ImageConfig) == {"epochs": 3}


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("none.toml", None, "cannot be read"),
        ("c.toml", b"\xff", "not UTF-8"),
        ("c.toml", b"steps =", "not a TOML file"),
        ("c.toml", b"a." * 1500 + b"b = 1", "not a TOML file (maximum recursion"),
        ("c.json", b'{"a":' + b"[" * 2000 + b"]" * 2000 + b"}", "cannot be read as JSON (max"),
        ("c.toml", b"stepz = 3", "stepz"),
        ("c.toml", b"[trainer]\nstepz = 3", "stepz"),
        ("c.toml", b"steps = 0", "`steps`"),
        ("c.toml", b"text = 3", "`text`"),
        ("c.toml", b"optimizer = 3", "`optimizer`"),
        ("c.toml", b"checkpointing = []", "`checkpointing`"),
        ("c.toml", b"lr = 1979-05-27", "`lr`"),
        ("c.toml", b"steps = 2\n[trainer]\nsteps = 3", "`steps`"),
        ("c.toml", b"batch-size = 2\nbatch_size = 3", "`batch_size`"),
        ("c.toml", b'scores = "f1"\n[trainer]\nmetrics = "f1"', "`metrics`"),
        (
            "c.toml",
            b"[optimizer]\noptimizer_options = {eps = 1e-3}\n[optimizer_options]\neps = 1e-4",
            "[optimizer] and as [optimizer_options]",
        ),
        ("c.json", b'{"steps": 2, "steps": 3}', "`steps`"),
        ("c.json", b"[1]", "must hold options by name"),
        ("c.json", b"{", "cannot be read as JSON"),
        ("c.json", b'{"steps": ' + b"3" * 5000 + b"}", "cannot be read as JSON"),
        ("c.toml", b"steps = " + b"3" * 5000, "not a TOML file"),
    ],
)
def test_bad_files(tmp_path, name, content, words):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_config(path)
    assert str(path) in str(caught.value)
    assert words in str(caught.value)


def test_a_resumed_run_keeps_its_options_and_notes_others():
    notes = []
    before = LLMConfig(steps=9, layers=2)
    config = merge(
        before, {"epochs": 2, "lr": 1.0, "keep": 5, "arch": "llama"}, notes.append, identity
    )
    assert (config.trainer.steps, config.trainer.epochs, config.trainer.keep) == (None, 2, 5)
    assert config.model.arch is None  # llama is what the run had chosen
    assert sorted(line.split("`")[1] for line in notes) == ["epochs", "lr", "steps"]
    for changes in ({"layers": 3}, {"seed": 1}, {"arch": "gpt2"}):
        with pytest.raises(ConfigError, match=f"`{next(iter(changes))}` cannot change"):
            merge(before, changes, notes.append, identity)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("mfu", {"mfu": True}),
        ("mfu", TrainerOptions(mfu=True)),
        ("checkpointing", {"checkpointing": "all"}),
    ],
)
def test_an_option_that_a_run_does_not_read(name, part):
    with pytest.raises(ConfigError, match=name):
        ImageConfig(data="digits", trainer=part)
    assert ImageConfig(data="digits", trainer=TrainerOptions(steps=3)).trainer.steps == 3


def test_a_part_as_an_object_keeps_the_runs_own_rate():
    assert LLMConfig(trainer=TrainerOptions(steps=3))["lr"] == LLMConfig()["lr"]
