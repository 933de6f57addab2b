# SPDX-License-Identifier: MIT
"""A module imports only from the layers below its own; packages say what they offer."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import pyggml

PACKAGE = Path(pyggml.__file__).parent
# Demos are installed beside the package's own files; they are programs, and no part of it.
FILES = sorted(p for p in PACKAGE.rglob("*.py") if p.parent != PACKAGE / "demos")

# docs/internals/design.md, "The house", lowest first; names in one row don't import each other.
LAYERS = [
    {"errors", "_ggml"},
    {"checks"},
    {"options"},
    {"options"},
    {"backend"},
    {"tensors", "io"},
    {"ops", "data"},
    {"graph", "testing"},
    {"debug"},
    {"nn", "optim"},
    {"models"},
    {"train"},
    {"recipes"},
    {"cli", "grad0"},
]
# Arrows that still run upwards; the list only shrinks.
UPWARD = {
    ("tensors.node", "graph.custom_function"),
    ("graph.graph", "debug.anomaly"),
    ("graph.graph", "debug.profiler"),
}
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}

# Only inside functions: `import pyggml` brings NumPy and cffi's module, no more.
LAZY = {
    "typer", "rich", "tokenizers", "safetensors", "matplotlib", "torch", "pyarrow", "PIL",
    "datasets", "tensorboard", "wandb", "tomli", "sklearn",
}  # fmt: skip


def unit(path: Path) -> str:
    """The module or package right below pyggml that a file is or belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def own_imports(tree: ast.Module, path: Path) -> set[str]:
    """The modules of pyggml that a file imports, by dotted names; those for types count, too."""
    found: set[str] = set()
    here = path.relative_to(PACKAGE.parent).with_suffix("").parts[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = list(here[: len(here) - node.level + 1]) if node.level else []
            base += (node.module or "").split(".") if node.module else []
            names = [
                [*base, alias.name] if is_module([*base, alias.name]) else base
                for alias in node.names
            ]
        else:
            continue
        found |= {".".join(name[1:]) for name in names if name[0] == "pyggml" and len(name) > 1}
    return found


def is_module(name: list[str]) -> bool:
    """Whether a dotted name below pyggml is a file or a folder."""
    path = PACKAGE.joinpath(*name[1:])
    return name[0] == "pyggml" and (path.is_dir() or path.with_suffix(".py").is_file())


def module_of(path: Path) -> str:
    """The dotted name of a file below pyggml."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_downwards(path: Path) -> None:
    me = unit(path)
    if me in ("__init__", "__main__"):
        return
    assert me in RANK, f"{me} has no layer; add it to the design page and to LAYERS"
    for name in own_imports(parse(path), path):
        other = name.split(".")[0]
        if other == me or (module_of(path), name) in UPWARD:
            continue
        assert other in RANK, f"{path.name} imports {name}, which is no unit of pyggml"
        assert RANK[other] < RANK[me], f"{me} must not import {name}"


def test_only_lib_imports_the_compiled_module() -> None:
    found = [module_of(p) for p in FILES if "_ggml" in own_imports(parse(p), p)]
    assert found == ["backend.library"]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_star_imports_and_lazy_ones_stay_inside(path: Path) -> None:
    tree = parse(path)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert all(alias.name != "*" for alias in node.names), f"{path.name}:{node.lineno}"
    for node in outside_functions(tree):
        if isinstance(node, ast.Import):
            names = {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = {(node.module or "").split(".")[0]}
        else:
            continue
        if unit(path) == "cli" and path.name != "__init__.py":
            names -= {"typer"}  # what a command's signature is made of; nobody else imports these
        assert not names & LAZY, f"{path.name}:{node.lineno} imports {names} for everyone"


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


PACKAGES = [path for path in FILES if path.name == "__init__.py"]


@pytest.mark.parametrize("path", PACKAGES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_packages_say_what_they_offer(path: Path) -> None:
    targets = [
        target.id
        for node in parse(path).body
        if isinstance(node, (ast.Assign, ast.AnnAssign))
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    ]
    assert "__all__" in targets


def test_folders_are_packages() -> None:
    folders = {path.parent for path in FILES}
    assert [f for f in folders if not (f / "__init__.py").is_file()] == []
