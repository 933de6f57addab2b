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

# docs/design.md, "The package", lowest first; a row there may be several here.
LAYERS = [
    {"errors", "_early", "weak"},
    {"_ggml", "atomic", "memory", "random"},
    {"_lib"},
    {"dtypes", "order"},
    {"device", "precision"},
    {"node"},
    {"recording"},
    {"storage", "operators"},
    {"tensor"},
    {"ops", "differentiable"},
    {"activations", "anomaly", "custom", "effects", "fallback", "fold", "profiler", "recompute"},
    {"graph"},
    {"compiled", "gradients", "roofline"},
    {"grad0", "nn", "optim", "data", "io"},
    {"models"},
    {"train"},
    {"cli"},
]
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
    """The units of pyggml that a file imports, wherever in the file but for types alone."""
    found: set[str] = set()
    here = path.relative_to(PACKAGE.parent).with_suffix("").parts[:-1]
    typing_only = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = list(here[: len(here) - node.level + 1]) if node.level else []
            base += (node.module or "").split(".") if node.module else []
            # `from pyggml import x` names a unit only by what it imports.
            names = [[*base, alias.name] for alias in node.names] if len(base) == 1 else [base]
        else:
            continue
        found |= {name[1] for name in names if name[0] == "pyggml" and len(name) > 1}
        found |= {"pyggml"} if ["pyggml"] in names else set()
    return found


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_downwards(path: Path) -> None:
    me = unit(path)
    if me in ("__init__", "__main__"):
        return
    assert me in RANK, f"{me} has no layer; add it to docs/design.md and to LAYERS"
    for other in own_imports(parse(path), path) - {me}:
        if other.startswith("__"):
            continue
        assert other in RANK, f"{path.name} imports {other}, which is no unit of pyggml"
        assert RANK[other] < RANK[me], f"{me} must not import {other}"


def test_only_lib_imports_the_compiled_module() -> None:
    assert [unit(p) for p in FILES if "_ggml" in own_imports(parse(p), p)] == ["_lib"]


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
