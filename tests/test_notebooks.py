# SPDX-License-Identifier: MIT
"""The notebooks of docs/notebooks: clean in git, named on their page, and they learn."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
MOST_LINES = 200
# Paths of a machine, in either system's way.
MACHINE = re.compile(r"/(home|Users|tmp|root|work)/|[A-Z]:\\\\")
# Packages without which a notebook says nothing.
NEEDS = {
    "04_vae": ["sklearn"],
    "05_unet": ["sklearn"],
    "07_regression": ["sklearn"],
    "08_text_classification": ["tokenizers", "safetensors"],
    "09_finetune_lora": ["tokenizers", "safetensors", "matplotlib"],
    "10_to_llama_cpp": ["tokenizers"],
}


def test_there_are_ten_and_the_page_names_each() -> None:
    page = (FOLDER / "index.md").read_text("utf-8")
    named = re.findall(r"\]\((\w+\.ipynb)\)", page)
    assert named == [path.name for path in NOTEBOOKS]
    assert len(named) == 10


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_clean(path: Path) -> None:
    text = path.read_text("utf-8")
    notebook = json.loads(text)
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert set(notebook["metadata"]) == {"kernelspec", "language_info"}
    assert not MACHINE.search(text)
    cells = notebook["cells"]
    assert len({cell["id"] for cell in cells}) == len(cells)
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    for cell in code:
        assert (cell["outputs"], cell["execution_count"], cell["metadata"]) == ([], None, {})
        compile("".join(cell["source"]), path.name, "exec")
    assert cells[0]["cell_type"] == "markdown"
    assert "".join(cells[0]["source"]).startswith("# ")
    assert cells[-1] is code[-1]
    assert "".join(code[-1]["source"]).startswith("assert ")
    assert sum(len(cell["source"]) for cell in cells) <= MOST_LINES


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_the_form_of_nbformat(path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbformat.validate(nbformat.read(path, as_version=4))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_learns(path: Path, tmp_path: Path) -> None:
    """Its last cell asserts what it learnt; a cell that raises ends the test."""
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    for package in NEEDS.get(path.stem, []):
        pytest.importorskip(package)
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    client = nbclient.NotebookClient(notebook, timeout=60, resources=resources)  # of each cell
    done = client.execute()
    code = [cell for cell in done.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code)
