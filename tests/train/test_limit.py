# SPDX-License-Identifier: MIT
"""Blocks that are computed twice: the same bits, less memory, chosen by a limit."""

from __future__ import annotations

import pytest

import pyggml as pg
from pyggml.data import TokenDataset
from pyggml.models import build
from pyggml.optim import SGD
from pyggml.train import (
    OutOfMemoryError,
    Trainer,
    TrainerOptions,
    TrainStep,
    format_bytes,
    parse_bytes,
)
from pyggml.train.memory.fit import choices

from .test_step import batch, gradients
from .tiny import SEQ_LEN, VOCAB, make_trainer, same, tokens

SIZES = {
    "llama": {"n_layer": 5, "n_head": 2, "n_kv_head": 1, "n_embd": 16, "context": 8},
    "gpt2": {"n_layer": 5, "n_head": 2, "n_embd": 16, "context": 8, "dropout": 0.1},
}


def step_of(arch, every, precision=None):
    pg.seed(0)
    model = build(arch, SIZES[arch], vocab_size=VOCAB)
    model.checkpointing = every
    return TrainStep(model, SGD(model.parameters(), lr=0.1), precision=precision)


@pytest.mark.parametrize("precision", ["f32", "bf16", pytest.param("f16", marks=pytest.mark.slow)])
@pytest.mark.parametrize("arch", SIZES)
def test_the_same_bits_whatever_is_computed_twice(arch, precision):
    plain = step_of(arch, False, precision)
    want = plain([batch(4)]), gradients(plain), plain.model.state_dict()
    for every in choices(5)[1:]:
        step = step_of(arch, every, precision)
        assert step([batch(4)]) == want[0], every
        assert same(gradients(step), want[1]), every
        assert same(step.model.state_dict(), want[2]), every


def test_choices_do_ever_more_twice():
    for n in (1, 2, 5, 12, 48):
        counts = [0 if every == 0 else len(range(0, n, every)) for every in choices(n)]
        assert counts == sorted(set(counts))
        assert counts[-1] == n


@pytest.mark.parametrize("arch", SIZES)
def test_more_computed_twice_takes_less_memory(arch):
    sizes = [step_of(arch, every).record((16, 8)).memory_bytes for every in choices(5)]
    assert sizes[-1] < 0.7 * sizes[0]
    assert sizes[-1] == min(sizes)
    # Not each less than the one before: of the last block both computings are there at the peak.
    assert all(size < sizes[0] for size in sizes[1:])


@pytest.mark.parametrize(
    ("bad", "kind"),
    [(-1, ValueError), ("all", TypeError), (1.5, TypeError), (None, TypeError)],
)
def test_a_model_raises_on_what_it_cannot_do(bad, kind):
    with pytest.raises(kind, match="checkpointing must be"):
        step_of("gpt2", bad)


@pytest.mark.parametrize(
    ("options", "spares"),
    [
        ({}, False),
        ({"checkpointing": "all"}, False),
        ({"checkpointing": "auto"}, True),
        ({"memory_limit": "1GB"}, True),
    ],
)
def test_a_run_that_must_fit_spares_memory(options, spares):
    assert make_trainer(**options).train_step.spares_memory is spares


def totals():
    """What each choice takes for the tiny trainer, which has two blocks."""
    found = {}
    for every in (0, 2, 1):
        trainer = make_trainer(checkpointing=every or "none", batch_size=16)
        found[every] = trainer.plan().total
    return found


def test_the_cheapest_choice_within_the_limit_is_taken():
    sizes = totals()
    assert sizes[1] < sizes[2] < sizes[0]
    for limit, want in ((sizes[0], 0), (sizes[0] - 1, 2), (sizes[2] - 1, 1)):
        trainer = make_trainer(memory_limit=limit, batch_size=16, steps=1)
        assert trainer.plan().total == sizes[want] <= limit
        assert trainer.model.checkpointing == want
    trainer.fit()  # what was planned is what runs
    assert trainer.plan().total == sizes[1]


def test_auto_leaves_a_tenth_of_the_free_memory(monkeypatch):
    sizes = totals()
    for limit, want in ((sizes[0] + 1, 0), (sizes[0] - 1, 2), (sizes[2] - 1, 1)):
        free = limit * 10 // 9 + 1
        monkeypatch.setattr("pyggml.train.trainer.free_memory", lambda model, free=free: free)
        trainer = make_trainer(memory_limit="auto", batch_size=16, steps=1)
        assert trainer.plan().total == sizes[want] <= 0.9 * free
        assert trainer.model.checkpointing == want


def test_what_cannot_fit_is_refused_with_the_numbers():
    trainer = make_trainer(memory_limit="10 kB", batch_size=16, steps=1)
    with pytest.raises(OutOfMemoryError) as caught:
        trainer.fit()
    for words in (
        "must fit into 10.0 kB", "without checkpointing", "with 1 block in 2",
        "with every block computed twice", "parameters", "activations", "`batch_size`",
        "`fused_update`, which keeps no gradients",
    ):  # fmt: skip
        assert words in str(caught.value)
    assert trainer.step == 0
    assert trainer.model.checkpointing is False


def test_a_given_choice_is_only_checked():
    with pytest.raises(OutOfMemoryError) as caught:
        make_trainer(memory_limit="10 kB", checkpointing="none").plan()
    assert "with every block" not in str(caught.value)


def test_without_a_limit_auto_keeps_everything():
    trainer = make_trainer(checkpointing="auto")
    trainer.plan()
    assert trainer.model.checkpointing == 0


def test_the_model_s_own_choice_stays():
    trainer = make_trainer()
    trainer.model.checkpointing = 2
    trainer.plan()
    assert trainer.model.checkpointing == 2


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (1, 1), ("17", 17), ("2GiB", 2**31), ("2gib", 2**31), ("1.5 kB", 1500), ("3MiB", 3 * 2**20),
        ("1TB", 10**12), ("5 B", 5),
    ],
)  # fmt: skip
def test_sizes(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("bad", ["", "GB", "-1", "0", 0, "1 XB", "1e9", "2GiBs", "1.5", True, 1.5])
def test_bad_sizes(bad):
    with pytest.raises(ValueError if isinstance(bad, str) or bad == 0 else TypeError, match="size"):
        parse_bytes(bad)


def test_sizes_of_any_magnitude_are_short():
    assert [format_bytes(10**n) for n in (0, 12, 18, 20)] == ["1 B", "1.0 TB", "1.0 EB", "100.0 EB"]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("all", True),
        ("none", False),
        ("3", 3),
        (1, True),
        ("1", True),
        ("auto", "auto"),
        (None,) * 2,
    ],
)
def test_spellings(given, kept):
    options = TrainerOptions(checkpointing=given)
    assert options.checkpointing is kept or options.checkpointing == kept
    assert TrainerOptions.from_dict(options.to_dict()) == options


def experts():
    """A model whose experts' gradients need memory of their own where they are added up."""
    pg.seed(0)
    sizes = {"n_layer": 2, "n_head": 2, "n_embd": 64, "context": 16, "family": "qwen3moe"}
    chosen = {"n_expert": 16, "n_expert_used": 2, "n_expert_ffn": 128}
    return build("llama", {**sizes, **chosen}, vocab_size=VOCAB)


@pytest.mark.parametrize("accumulate", [1, 4])
def test_the_plan_is_of_the_graphs_that_run(accumulate):
    model = experts()
    trainer = Trainer(
        model, TokenDataset(tokens(), SEQ_LEN), None, SGD(model.parameters(), lr=0.1),
        batch_size=1, accumulate=accumulate, steps=2,
    )  # fmt: skip
    planned = trainer.plan().activations
    trainer.fit()
    assert trainer.train_step.activation_bytes == planned


def test_adding_up_takes_the_memory_that_is_planned_for_it():
    def planned(accumulates):
        model = experts()
        step = TrainStep(model, SGD(model.parameters(), lr=0.1))
        step.accumulates = accumulates
        return step.record((1, SEQ_LEN)).memory_bytes

    assert planned(True) > 2 * planned(False)
