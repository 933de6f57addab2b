# SPDX-License-Identifier: MIT
"""Print the rows of the package, the modules of each folder, and import cycles: `just layers`.

Reads the sources and imports nothing; tests/test_layers.py asserts what is printed here.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "pyggml"

# docs/internals/design.md, "The layers", lowest first; names in one row don't import each other.
ROWS = [
    {"absent", "_cpu", "_ggml"},
    {"errors"},
    {"checks"},
    {"options"},
    {"backend"},
    {"tensors", "io"},
    {"ops", "data"},
    {"graph", "testing"},
    {"debug"},
    {"nn", "optim", "distributed"},
    {"models"},
    {"train"},
    {"recipes"},
    {"cli", "grad0"},
]
MOST_SINGLES = 6
MOST_FILES = 20
_PRIVATE = re.compile(r"_[a-z]\w*")


def module_of(path: Path) -> str:
    """Return the dotted name of a file below the package; "" is the package itself."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


# Demos are installed beside the package's own files; they are programs, and no part of it.
FILES = {
    module_of(path): path for path in sorted(PACKAGE.rglob("*.py")) if path.parent.name != "demos"
}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in FILES.items()}
FACES = {name for name, path in FILES.items() if path.name == "__init__.py"}


def imports(name: str) -> Iterator[str]:
    """Yield what a module imports from the package, for types only as well."""
    here = name.split(".") if name in FACES and name else name.split(".")[:-1]
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
            yield from (n.partition(".")[2] for n in found if n.partition(".")[0] == "pyggml")
        elif isinstance(node, ast.ImportFrom):
            base = [*here[: len(here) - node.level + 1]] if node.level else []
            base += node.module.split(".") if node.module else []
            if not node.level:
                if base[0] != "pyggml":
                    continue
                base = base[1:]
            for alias in node.names:
                full = ".".join([*base, alias.name])
                if base or full in FILES:
                    yield full if full in FILES else ".".join(base)


def row_of(name: str) -> int | None:
    """Return the number of a module's row; None where it has none."""
    unit = name.partition(".")[0]
    return next((i for i, row in enumerate(ROWS) if unit in row), None)


def cycles() -> list[list[str]]:
    """Return the groups of modules that import each other, packages' faces left out."""
    edges = {n: {t for t in imports(n) if t in FILES and t not in FACES} for n in FILES}
    reach: dict[str, set[str]] = {}
    for name in edges:
        found, todo = set(), [name]
        while todo:
            for target in edges[todo.pop()] - found:
                found.add(target)
                todo.append(target)
        reach[name] = found
    groups = {
        tuple(sorted({name} | {other for other in reach[name] if name in reach[other]}))
        for name in set(FILES) - FACES
        if name in reach[name]
    }
    return sorted(map(list, groups))


def private_touches(name: str) -> list[str]:
    """Return the private names that a module touches outside their class or file, with lines."""
    file = FILES[name].name
    found = [f"{file}:{node.lineno} .{node.attr}" for node in private_attributes(TREES[name])]
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.ImportFrom) and node.level:
            found += [
                f"{file}:{node.lineno} {alias.name}"
                for alias in node.names
                if _PRIVATE.fullmatch(alias.name) and alias.name != "_ggml"
            ]
    return found


def private_attributes(node: ast.AST, own: frozenset[str] = frozenset()) -> Iterator[ast.Attribute]:
    """Yield the uses of private attributes that are not those of the class around them.

    The methods of a class may use its private names of any object, such as of another instance.

    Args:
        node: what is searched.
        own: the names that the classes around it define.
    """
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Attribute) and _PRIVATE.fullmatch(child.attr):
            is_own = child.attr in own or _is_name(child.value, "self", "cls", "os", "sys")
            yield from () if is_own else (child,)
        inner = own | names_of(child) if isinstance(child, ast.ClassDef) else own
        yield from private_attributes(child, inner)


def names_of(tree: ast.ClassDef) -> frozenset[str]:
    """Return the names that a class defines: methods, fields, attributes of self and cls."""
    own: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            own.add(node.name)
        elif isinstance(node, ast.Attribute) and _is_name(node.value, "self", "cls"):
            own.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own.add(node.id)
    return frozenset(own)


def _is_name(node: ast.expr, *names: str) -> bool:
    return isinstance(node, ast.Name) and node.id in names


def singles() -> list[str]:
    """Return the modules right below the package."""
    return [name for name in FILES if name and "." not in name and name not in {*FACES, "__main__"}]


def folders() -> dict[str, int]:
    """Count the files of each folder, without the faces."""
    counts = Counter(name.rpartition(".")[0] for name in FILES if name not in FACES)
    return {name: counts[name] for name in sorted(FACES)}


def large_folders() -> list[str]:
    """Return the folders of too many files."""
    return [name for name, count in folders().items() if count > MOST_FILES]


def main() -> int:
    """Print the figures; return 1 where a rule is broken."""
    counts = folders()
    for i, row in enumerate(ROWS):
        parts = []
        for unit in sorted(row & FILES.keys()):
            below = [f"{f} {n}" for f, n in counts.items() if f == unit or f.startswith(f"{unit}.")]
            parts.append(f"{unit} ({', '.join(below)})" if below else unit)
        print(f"{i:2}  {'; '.join(parts)}")
    touched = [f"{name}: {touch}" for name in FILES for touch in private_touches(name)]
    broken = {
        f"modules in the root beyond the {MOST_SINGLES} allowed": singles()[MOST_SINGLES:],
        f"folders of more than {MOST_FILES} files": large_folders(),
        "cycles": [" ".join(loop) for loop in cycles()],
        "private names touched from outside": touched,
    }
    print(f"{len(FILES)} modules, {len(singles())} of them right below the package")
    for title, found in broken.items():
        print(f"{title}: {len(found) or 'none'}", *found, sep="\n    ")
    return int(any(broken.values()))


if __name__ == "__main__":
    sys.exit(main())
