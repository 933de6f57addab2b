# SPDX-License-Identifier: MIT
"""Options as fields: kinds, ranges, exclusion, composition."""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from pyggml.errors import ConfigError, ConfigTypeError
from pyggml.options import Options, check_needs, option, options_of
from pyggml.recipes.configuration import Configuration


def _even(value):
    if value % 2:
        raise ValueError(f"must be even; got {value}")
    return value


@dataclass(frozen=True, kw_only=True)
class Loop(Options):
    steps: int | None = option(None, "Steps.", least=1, chosen="1000")
    epochs: int | None = option(None, "Passes.", least=1, excludes="steps", flag="passes")
    lr: float = option(1e-3, "Rate.", above=0)
    share: float = option(0.1, "Share.", least=0, below=1)
    fused: bool = option(False, "Update early.")
    precision: str = option("f32", "Numbers.", choices=lambda: ("f32", "bf16"))
    extra: dict[str, object] = option({}, "More.")
    pairs: int = option(2, "Even.", read=_even)
    keep: int | None = option(None, "Kept.", otherwise=2, needs=("files",))
    every: int = option(0, "Between.", needs=("pairs", (3, "files")))


@dataclass(frozen=True, kw_only=True)
class Source(Options):
    text: tuple[str, ...] = option((), "Files.", is_path=True)
    name: str = option(MISSING, "name the data")
    prompt: str = option("", "Start.", may_be_empty=True)


class Run(Configuration):
    loop: Loop
    source: Source
    DEFAULTS: ClassVar[dict[str, object]] = {"epochs": 15, "lr": 0.5}
    LEFT_OUT = frozenset({"fused"})


def test_the_kind_is_that_of_the_annotation():
    kinds = {name: (each.kind, each.may_be_none) for name, each in options_of(Loop).items()}
    assert kinds["steps"] == ("whole", True)
    assert kinds["lr"] == ("number", False)
    assert kinds["fused"] == ("switch", False)
    assert kinds["extra"] == ("table", False)
    assert options_of(Source)["text"].kind == "texts"


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("steps", 0, ValueError),
        ("steps", "3", TypeError),
        ("steps", True, TypeError),
        ("lr", 0, ValueError),
        ("lr", None, TypeError),
        ("lr", float("nan"), ValueError),
        ("lr", 1e300, ValueError),
        ("share", 1.0, ValueError),
        ("fused", "yes", TypeError),
        ("precision", "f64", ValueError),
        ("extra", 3, TypeError),
        ("extra", ["a"], ValueError),
        ("extra", {"a": {"b": 1}}, TypeError),
        ("pairs", 3, ValueError),
    ],
)
def test_values_that_cannot_be_used(name, value, kind):
    with pytest.raises(kind, match=f"Loop: `{name}`") as caught:
        Loop(**{name: value})
    assert isinstance(caught.value, ConfigError)


def test_values_are_kept_in_one_form():
    loop = Loop(lr=1, extra=["momentum=0.9", "kind=fast"])
    assert isinstance(loop.lr, float)
    assert loop.extra == {"momentum": 0.9, "kind": "fast"}
    assert Source(text="a.txt", name="n").text == ("a.txt",)
    assert Source(text=[Path("a.txt")], name="n").text == ("a.txt",)
    with pytest.raises(ConfigError, match="`text`"):
        Source(text="", name="n")


def test_options_that_exclude_each_other():
    with pytest.raises(ConfigError, match="`epochs` and `steps`"):
        Loop(epochs=1, steps=1)
    assert Run(name="n").loop.epochs == 15
    assert Run(name="n", steps=3).loop.epochs is None
    assert Run(name="n", steps=3).replace(epochs=2).loop.steps is None


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"keep": 2}, "`keep` needs files; got nothing: save, or leave `keep` out"),
        ({"every": 3}, "`every`=3 needs files"),
        ({"every": 1, "pairs": 0}, "`every` needs `pairs`; got `pairs`=0"),
    ],
)
def test_options_that_nothing_reads(values, words):
    loop, known = Loop(), options_of(Loop)
    assert (loop.keep, loop.value("keep"), loop.value("lr")) == (None, 2, 1e-3)
    given = {**vars(loop), **values}
    check_needs("Loop", known, {**vars(loop), "every": 1}, {"files": ("nothing", "save")})
    with pytest.raises(ConfigError, match=words):
        check_needs("Loop", known, given, {"files": ("nothing", "save")})


def test_unknown_names_have_the_nearest_known_one():
    with pytest.raises(ConfigError, match=r"'stepps' \(did you mean steps\?\)"):
        Loop.from_dict({"stepps": 3})
    with pytest.raises(ConfigError, match=r"'passes' \(did you mean epochs\?\)"):
        Loop.from_dict({"passes": 3})  # which is the flag
    with pytest.raises(ConfigError, match=r"the table \[loopy\] \(did you mean loop\?\)"):
        Run.from_dict({"name": "n", "loopy": {"steps": 3}})
    with pytest.raises(ConfigError, match="'stepps'"):
        Run(name="n", loop={"stepps": 3})
    with pytest.raises(ConfigError, match="'fused'"):  # which the run sets itself
        Run(name="n", fused=True)
    with pytest.raises(ConfigTypeError):
        Run.from_dict([])


def test_a_configuration_takes_options_flat_or_in_parts():
    flat = Run(name="n", steps=3, text=("a", "b"))
    assert flat.loop.lr == 0.5  # the run's default
    assert flat == Run(loop={"steps": 3}, source=Source(name="n", text=("a", "b")))
    assert flat["steps"] == 3
    assert Run.from_dict(flat.to_dict()) == flat
    assert flat.to_dict()["source"] == {"text": ["a", "b"], "name": "n", "prompt": ""}
    assert flat.replace(loop={"lr": 2.0}).loop == Loop(steps=3, lr=2.0)
    assert repr(flat) == "Run(steps=3, epochs=None, text=('a', 'b'), name='n')"
    with pytest.raises(ConfigError, match="`name` must be given"):
        Run(steps=3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        flat.loop = Loop()


def test_an_option_is_in_one_part():
    class Twice(Configuration):
        one: Loop
        two: Loop

    with pytest.raises(TypeError, match="one part"):
        Twice.options()
