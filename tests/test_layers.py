# SPDX-License-Identifier: MIT
"""A module imports only from the rows below its own; folders are small and name what they offer."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

from .scripts.loading import load

layers = load(Path(__file__).parents[1] / "scripts" / "layers.py")
NAMES = sorted(name for name in layers.FILES if name not in ("", "__main__"))

# Only inside functions: `import pyggml` brings NumPy and cffi's module, no more.
LAZY = {
    "typer", "rich", "tokenizers", "safetensors", "matplotlib", "torch", "pyarrow", "PIL",
    "datasets", "tensorboard", "wandb", "tomli", "sklearn", "mpi4py",
}  # fmt: skip


def test_imports_point_downwards() -> None:
    wrong = []
    for name in NAMES:
        row = layers.row_of(name)
        assert row is not None, f"{name} has no row; add it to the design page and to ROWS"
        for target in layers.imports(name):
            below = layers.row_of(target)
            assert below is not None, f"{name} imports {target}, which has no row"
            if below >= row and target.partition(".")[0] != name.partition(".")[0]:
                wrong.append((name, target))
    assert wrong == []


def test_no_modules_import_each_other() -> None:
    assert layers.cycles() == []


def test_private_names_stay_in_their_class() -> None:
    assert [touch for name in NAMES for touch in layers.private_touches(name)] == []


def test_private_names_outside_their_class_are_found() -> None:
    source = """
        class Box:
            def __init__(self, other):
                self._size = other._size

        def size(box):
            return box._size
    """
    found = layers.private_attributes(ast.parse(textwrap.dedent(source)))
    assert [node.lineno for node in found] == [7]


def test_folders_are_small_packages() -> None:
    assert len(layers.singles()) <= layers.MOST_SINGLES
    assert layers.large_folders() == []
    assert {name.rpartition(".")[0] for name in layers.FILES} <= layers.FACES


def test_only_one_module_imports_the_compiled_one() -> None:
    found = [n for n in NAMES if any(t.partition(".")[0] == "_ggml" for t in layers.imports(n))]
    assert found == ["backend.library"]


def test_no_star_imports() -> None:
    for name, tree in layers.TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                assert all(alias.name != "*" for alias in node.names), f"{name}:{node.lineno}"


def test_lazy_imports_stay_inside_functions() -> None:
    for name, tree in layers.TREES.items():
        for node in outside_functions(tree):
            if isinstance(node, ast.Import):
                names = {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = {(node.module or "").split(".")[0]}
            else:
                continue
            if name.startswith("cli."):
                names -= {"typer"}  # what a command's signature is made of; nobody else imports it
            assert not names & LAZY, f"{name}:{node.lineno} imports {names} for everyone"


def outside_functions(node: ast.AST) -> list[ast.AST]:
    """Every node that runs when the module is imported."""
    found: list[ast.AST] = []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        found += [child, *outside_functions(child)]
    return found


def test_packages_say_what_they_offer() -> None:
    for name in layers.FACES:
        assert any(
            isinstance(node, (ast.Assign, ast.AnnAssign)) and "__all__" in ast.unparse(node)
            for node in layers.TREES[name].body
        ), name
