# SPDX-License-Identifier: MIT
"""The tables of "Coming from Keras" and "Coming from MLX" name what there is.

Each piece of code in a column "here" is parsed: its names must exist, and its calls must fit the
signatures.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import pyggml as pg
from pyggml import data, distributed, io, models, nn, optim, recipes, train
from pyggml.nn import functional
from pyggml.train.options import TrainerOptions

GUIDE = Path(__file__).parents[1] / "docs" / "guide"
# What the pieces of code may begin with; a class stands for its objects.
ROOTS: dict[str, Any] = {
    **{"pg": pg, "nn": nn, "optim": optim, "data": data, "io": io, "models": models},
    **{"distributed": distributed, "recipes": recipes, "F": functional},
    **{name: getattr(train, name) for name in train.__all__},
    **{name: getattr(models, name) for name in models.__all__},
    **{name: getattr(data, name) for name in data.__all__},
    **{"model": nn.Module, "x": pg.Tensor, "loss": pg.Tensor, "logits": pg.Tensor},
    **{"optimizer": optim.Optimizer, "trainer": train.Trainer, "tokenizer": data.Tokenizer},
    **{"train": data.ArrayDataset, "test": data.ArrayDataset, "schedule": optim.schedules.constant},
}
# Values that a call is given.
VALUES = {"y", "q", "k", "v", "a", "b", "f", "ids", "state", "step", "text", "weight", "loss"}
# Options by name, which a signature takes as `**options`.
OPTIONS: dict[Any, Any] = {
    train.Trainer: TrainerOptions.__dataclass_fields__,
    recipes.finetune: recipes.FinetuneConfig.options(),
}
# What is no Python.
OTHERS = {"adapter.gguf", "weight", "forward"}


def cells(page: str) -> list[str]:
    """Return the pieces of code in the second column of a page's tables."""
    text = (GUIDE / page).read_text("utf-8")
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| ")]
    assert all(len(row) == 5 for row in rows), "a row must have three columns"
    return [code for row in rows for code in re.findall(r"`([^`]+)`", row[2])]


def found(node: ast.expr) -> Any:
    """Return what a name stands for; an unknown one raises."""
    if isinstance(node, ast.Name):
        return ROOTS[node.id]
    if isinstance(node, ast.Call):  # of an object: Trainer(...).fit()
        return found(node.func)
    assert isinstance(node, ast.Attribute)
    owner = found(node.value)
    if owner is train.Trainer and node.attr == "history":
        return dict
    return getattr(owner, node.attr)


def check(code: str) -> None:
    """Raise for a piece of code with a name that is not there, or a call that does not fit."""
    tree = ast.parse(code, mode="eval")
    values: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            inner = [*node.args, *(keyword.value for keyword in node.keywords)]
            values |= {each for value in inner for each in ast.walk(value)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node in values and node.id in VALUES:
            continue
        if isinstance(node, (ast.Name, ast.Attribute)):
            found(node)
        if isinstance(node, ast.Call) and not any(ast.unparse(each) == "..." for each in node.args):
            fits(node)


def fits(call: ast.Call) -> None:
    """Bind the arguments of a call to the signature."""
    function, names = found(call.func), [keyword.arg for keyword in call.keywords]
    options = OPTIONS.get(function, ())
    owner = found(call.func.value) if isinstance(call.func, ast.Attribute) else None
    own = [None] if inspect.isclass(owner) and inspect.isfunction(function) else []
    named = {name: None for name in names if name not in options}
    if options:
        assert all(name in inspect.signature(function).parameters for name in named), names
    inspect.signature(function).bind(*own, *call.args, **named)


@pytest.mark.parametrize("page", ["keras.md", "mlx.md"])
def test_every_name_is_there_and_every_call_fits(page: str) -> None:
    pieces = cells(page)
    assert len(pieces) > 40
    wrong = []
    for code in pieces:
        if code in OTHERS:
            continue
        try:
            if code.startswith("pyggml "):
                command = pytest.importorskip("typer.main").get_command(
                    importlib.import_module("pyggml.cli.app").app
                )
                command.commands[code.split()[1]]
            else:
                check(code)
        except (SyntaxError, AttributeError, KeyError, TypeError, AssertionError) as error:
            wrong.append(f"{code}: {type(error).__name__} {error}")
    assert not wrong


@pytest.mark.parametrize(
    "code",
    [
        *("nn.Dense(64)", "nn.Linear(8, units=64)", "model.compile", "x.sum(axis=1)", "fit(model)"),
        *("Trainer(model, train, epoch=10)", "recipes.finetune(basis='a')", "optim.Adam()"),
        *("Trainer(model, train).evaluate(y, 1, 2)", "trainer.history.nothing"),
    ],
)
def test_what_is_not_there_is_found(code: str) -> None:
    with pytest.raises((AttributeError, KeyError, TypeError, AssertionError)):
        check(code)
