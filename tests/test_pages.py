# SPDX-License-Identifier: MIT
"""Every Python block of the README and of docs/ runs, and the pages name what they must.

The blocks of a page follow one another: they run in order, with the same names, in an empty folder.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml import models, nn, optim

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)

# Shorter runs of what takes long, by page: a text that the page has, and what is run in its place.
SHORTER: dict[str, list[tuple[str, str]]] = {
    "README.md": [
        ("train_bpe(texts, 2048)", "train_bpe(texts, 300)"),
        ("texts = embedded_text()", "texts = embedded_text()[:8]"),
        ("seq_len=128", "seq_len=32"),
        ("steps=200", "steps=10"),
        ("100, temperature", "10, temperature"),
        ('"epochs": 10', '"epochs": 2'),
    ],
    "quickstart.md": [
        ("range(20)", "range(2)"),
        ("steps=200", "steps=2, text='notes', tokenizer='chars', sample_tokens=4"),
    ],
}


def pets() -> None:
    """Make a folder of images of two classes."""
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    for name, level in (("cat", 60), ("dog", 170)):
        Path("pets", name).mkdir(parents=True)
        for number in range(20):
            pixels = level + rng.integers(0, 60, (int(rng.integers(20, 50)), 40, 3))
            image.fromarray(pixels.astype(np.uint8)).save(f"pets/{name}/{number}.png")


def notes() -> None:
    """Make a folder of texts."""
    Path("notes").mkdir()
    Path("notes/one.txt").write_text("The sun rises in the east. " * 100, encoding="utf-8")


# What a page's blocks expect in their folder, and packages that they need.
FILES: dict[str, list[Callable[[], None]]] = {"README.md": [pets], "quickstart.md": [notes]}
NEEDS: dict[str, list[str]] = {
    "README.md": ["tokenizers", "PIL.Image"],
    "quickstart.md": ["tokenizers"],
    "guide/data.md": ["tokenizers", "PIL.Image"],
    "guide/training.md": ["matplotlib"],
}


def name_of(path: Path) -> str:
    """Return the name of a page: README.md, or its path below docs/."""
    return str(path.relative_to(DOCS if DOCS in path.parents else ROOT))


def run(path: Path) -> dict[str, Any]:
    """Run the blocks of a page, and return the names that they made."""
    page, text = name_of(path), path.read_text(encoding="utf-8")
    for package in NEEDS.get(page, []):
        pytest.importorskip(package)
    for make in FILES.get(page, []):
        make()
    for long, _ in SHORTER.get(page, []):
        assert long in text, f"{page} has no {long!r}"
    names: dict[str, Any] = {"__name__": "__page__"}
    for block in BLOCK.finditer(text):
        code = block[1]
        for long, short in SHORTER.get(page, []):
            code = code.replace(long, short)
        above = "\n" * text.count("\n", 0, block.start(1))  # so that an error names its line
        exec(compile(above + code, str(path), "exec"), names)
    return names


@pytest.mark.parametrize(
    "path", [path for path in PAGES if BLOCK.search(path.read_text("utf-8"))], ids=name_of
)
def test_the_blocks_of_a_page_run(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(path)


def test_links_between_files_are_whole() -> None:
    """Files that mkdocs does not see as pages, README.md among them."""
    for path in [
        *ROOT.glob("*.md"),
        ROOT / "demos" / "README.md",
        ROOT / "patches" / "README.md",
        *PAGES,
    ]:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text("utf-8")):
            if ":" not in target and not target.startswith("pyggml"):
                there = (path.parent / target).resolve()
                if not re.fullmatch(r"pyggml[\w.]*\.md|options\.md", there.name):  # made by mkdocs
                    assert there.is_file(), f"{path.name}: {target}"


def test_the_guide_names_every_part() -> None:
    parts = {
        "guide/loop.md": [
            *nn.losses.__all__,
            *(kind.__name__ for kind in optim.optimizers().values()),
            *optim.schedule_functions(),
        ],
        "guide/models.md": [*models.MODELS, *(kind.__name__ for kind in models.MODELS.values())],
        "guide/data.md": pg.data.__all__,
    }
    for page, names in parts.items():
        text = (DOCS / page).read_text(encoding="utf-8")
        missing = [name for name in names if not re.search(rf"\b{re.escape(name)}\b", text)]
        assert not missing, page


def test_public_names_have_docstrings() -> None:
    """Constants apart; `just docs` looks at these too."""
    for package in [
        pg,
        pg.ops,
        nn,
        nn.functional,
        optim,
        pg.data,
        pg.io,
        models,
        pg.train,
        pg.recipes,
    ]:
        for name in package.__all__:
            value = getattr(package, name)
            if inspect.isclass(value):
                assert value.__dict__.get("__doc__"), f"{package.__name__}.{name}"
            elif inspect.isroutine(value):
                assert inspect.getdoc(value), f"{package.__name__}.{name}"
