# SPDX-License-Identifier: MIT
"""Every example in a docstring runs.

An example may use what its module and its package have, the public names of `pyggml` and
`pyggml.nn`, `pg`, `np`, `nn`, a small language model `model` and a parameter `w` of shape (4, 4).
"""

from __future__ import annotations

import builtins
import doctest
import importlib
import pkgutil
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml import models, nn

ROOT = Path(pg.__file__).parent
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
# What an example may need that an installation can lack, by what its text names.
NEEDS = {
    "tokenizers": r"\bTokenizer\b|train_bpe|Corpus|TokenStore",
    "PIL.Image": r"\bImage|PIL",
    "safetensors": r"safetensors",
    "jinja2": r"ChatTemplate|encode_chats",
    "matplotlib": r"plot_",
    "typer": r"\bcli\b",
    "tensorboard": r"TensorBoardWriter",
    "wandb": r"WandbWriter",
}


def modules_with_examples() -> list[str]:
    """Return the modules whose source has an example."""
    found = []
    for info in pkgutil.walk_packages([str(ROOT)], "pyggml."):
        path = ROOT.joinpath(*info.name.split(".")[1:])
        path = path / "__init__.py" if info.ispkg else path.with_suffix(".py")
        if path.is_file() and ">>> " in path.read_text(encoding="utf-8"):
            found.append(info.name)
    return found


def namespace(module: Any) -> dict[str, Any]:
    """Return the names that a module's examples may use."""
    package = importlib.import_module(".".join(module.__name__.split(".")[:2]))
    faces = (pg, nn, package, importlib.import_module(module.__package__))
    public = {
        name: getattr(face, name)
        for face in faces
        for name in getattr(face, "__all__", ())
        if not hasattr(builtins, name)  # sum, round, …
    }
    model = models.build("gpt2", {"n_layer": 2, "n_head": 2, "n_embd": 16}, vocab_size=65)
    things = {"model": model, "w": nn.Parameter(np.ones((4, 4)))}
    return {"np": np, "pg": pg, "nn": nn, **things, **public, **vars(module)}


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module(name)
    text = Path(str(module.__file__)).read_text(encoding="utf-8")
    examples = "\n".join(re.findall(r"^\s*(?:>>>|\.\.\.) (.*)", text, re.MULTILINE))
    for package, pattern in NEEDS.items():
        if re.search(pattern, examples):
            pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    pg.seed(0)
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    finder = doctest.DocTestFinder(exclude_empty=True)
    report: list[str] = []
    for case in finder.find(module, name, extraglobs=namespace(module)):
        runner.run(case, out=report.append)
    assert not runner.failures, "".join(report)
