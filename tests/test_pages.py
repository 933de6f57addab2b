# SPDX-License-Identifier: MIT
"""Every Python block of the README and of docs/ runs, and the pages name what they must.

The blocks of a page follow one another: they run in order, with the same names, in an empty folder.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
        ('data="chats.jsonl")', 'data="chats.jsonl", answers=1, answer_tokens=4, epochs=1)'),
    ],
    "guide/preferences.md": [
        ("max_tokens=24, steps=50", "max_tokens=4, steps=1"),
        ("epochs=2", "epochs=1, answers=1, answer_tokens=4"),
        ("steps=20", "steps=2"),
    ],
    "quickstart.md": [
        ("range(20)", "range(2)"),
        ("steps=200", "steps=2, text='notes', tokenizer='chars', sample_tokens=4"),
    ],
}


def chats() -> None:
    """Make a file of chats."""
    rows = [[("user", f"{n} + {n}?"), ("assistant", f"It is {2 * n}.")] for n in range(40)]
    with Path("chats.jsonl").open("w", encoding="utf-8") as file:
        for row in rows:
            messages = [{"role": role, "content": content} for role, content in row]
            file.write(json.dumps({"messages": messages}) + "\n")


def base() -> None:
    """Make a model of a file, and chats."""
    chats()
    tokenizer = pg.data.Tokenizer.train_bpe([f"<|user|> {n} + {n}? It is." for n in range(9)], 280)
    sizes = {"vocab_size": tokenizer.vocab_size, "context": 64, "n_embd": 32, "n_ffn": 64}
    model = models.build("llama", {**sizes, "n_layer": 1, "n_head": 2})
    model.save("base.gguf", tokenizer, dtype="q8_0")


def pairs() -> None:
    """Make a model of a file, and preferences."""
    base()
    with Path("pairs.jsonl").open("w", encoding="utf-8") as file:
        for n in range(12):
            row = {"prompt": f"{n} + {n}?", "chosen": f"It is {2 * n}.", "rejected": "It is."}
            file.write(json.dumps(row) + "\n")


def reviews() -> None:
    """Make a model of another family, and texts with labels."""
    rows = [{"text": f"It {word} day {n}.", "label": label} for n in range(12)
            for word, label in (("broke on", "bad"), ("works on", "good"))]  # fmt: skip
    Path("reviews.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    tokenizer = pg.data.Tokenizer.train_bpe([row["text"] + " the second" for row in rows], 280)
    sizes = {"vocab_size": tokenizer.vocab_size, "context": 64, "n_embd": 32, "n_ffn": 64}
    model = models.build("llama", {**sizes, "n_layer": 1, "n_head": 2, "family": "qwen3"})
    model.save("qwen3.gguf", tokenizer)


def notes() -> None:
    """Make a folder of texts."""
    Path("notes").mkdir()
    Path("notes/one.txt").write_text("The sun rises in the east. " * 100, encoding="utf-8")


# What a page's blocks expect in their folder, and packages that they need.
FILES: dict[str, list[Callable[[], None]]] = {
    "README.md": [chats],
    "quickstart.md": [notes],
    "guide/finetuning.md": [base, reviews],
    "guide/preferences.md": [pairs],
}
NEEDS: dict[str, list[str]] = {
    "README.md": ["tokenizers", "matplotlib"],
    "quickstart.md": ["tokenizers"],
    "guide/data.md": ["tokenizers", "PIL.Image"],
    "guide/finetuning.md": ["tokenizers", "matplotlib"],
    "guide/preferences.md": ["tokenizers", "matplotlib"],
    "guide/tasks.md": ["sklearn", "tokenizers"],
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


TASKS = DOCS / "guide" / "tasks.md"
SECTIONS = [
    part for part in re.split(r"^## ", TASKS.read_text("utf-8"), flags=re.MULTILINE)[1:]
    if BLOCK.search(part)
]  # fmt: skip


@pytest.mark.parametrize("section", SECTIONS, ids=lambda part: part.splitlines()[0])
def test_each_task_runs_by_itself_in_fifteen_lines(
    section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in NEEDS["guide/tasks.md"]:
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    block = BLOCK.search(section)
    assert block is not None
    assert len(block[1].splitlines()) <= 15, "with its blank lines"
    exec(compile(block[1], "tasks.md", "exec"), {"__name__": "__page__"})
