# SPDX-License-Identifier: MIT
"""Hooks of mkdocs (`just docs`): make the pages that are written elsewhere, check the reference.

A page of the reference lists one package: every name of its `__all__`, by the docstrings. A public
name without a docstring is a warning, and so an error in a strict build.
"""

from __future__ import annotations

import inspect
import logging
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import griffe
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
log = logging.getLogger("mkdocs.hooks.pyggml")

# The packages that users import from; each has a page of the reference.
PACKAGES = [
    "pyggml",
    "pyggml.ops",
    "pyggml.nn",
    "pyggml.nn.functional",
    "pyggml.nn.init",
    "pyggml.distributed",
    "pyggml.optim",
    "pyggml.optim.schedules",
    "pyggml.data",
    "pyggml.io",
    "pyggml.models",
    "pyggml.train",
    "pyggml.train.distillation",
    "pyggml.train.preferences",
    "pyggml.recipes",
    "pyggml.debug",
    "pyggml.testing",
]
# Pages of the site that are files elsewhere in the repository.
COPIES = {
    "internals/patches.md": "patches/README.md",
    "internals/contributing.md": "CONTRIBUTING.md",
    "demos.md": "demos/README.md",
    "changelog.md": "CHANGELOG.md",
}


def public_names(package: str) -> dict[str, str]:
    """Return where the documentation of each public name of a package stands, modules left out.

    A function that has the name of its file (`ops.dropout`) is looked up in that file, as the
    reference finds the file first.
    """
    module = import_module(package)
    public = {name: getattr(module, name) for name in module.__all__}
    return {
        name: f"{value.__module__}.{name}"
        if getattr(value, "__module__", "").endswith(f".{name}")
        else f"{package}.{name}"
        for name, value in public.items()
        if not inspect.ismodule(value)
    }


def is_made(name: str, value: Any) -> bool:
    """Return whether another function makes this one: only the program knows its docstring."""
    return inspect.isfunction(value) and value.__code__.co_name != name


def reference(package: str) -> str:
    """Return the page of one package."""
    names = public_names(package)
    values = {name: getattr(import_module(package), name) for name in names}
    made = {name: value.__doc__ for name, value in values.items() if is_made(name, value)}
    own = [name for name, place in names.items() if place == f"{package}.{name}"]
    text = f"# {package}\n\n::: {package}\n    options:\n      members: {own}\n"
    for place in [place for place in names.values() if place.count(".") > package.count(".") + 1]:
        text += (
            f"\n::: {place}\n    options:\n      show_root_heading: true\n      heading_level: 3\n"
        )
    for name, doc in made.items():
        text += f"\n### `{name}` {{#{package}.{name}}}\n\n{doc}\n"
    return text


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of the reference and the copies."""
    for package in PACKAGES:
        page = File.generated(config, f"reference/{package}.md", content=reference(package))
        files.append(page)
    for page, source in COPIES.items():
        text = (ROOT / source).read_text(encoding="utf-8").replace("](docs/", "](../")
        files.append(File.generated(config, page, content=text))
    return files


@cache
def source() -> griffe.Object:
    """Return the package as its source has it."""
    return griffe.load("pyggml", search_paths=[ROOT / "src"], resolve_aliases=True)


def has_docstring(package: str, name: str, place: str) -> bool:
    """Return whether a public name has a docstring; those of the compiled module need none."""
    value = getattr(import_module(package), name)
    if is_made(name, value):
        return bool(value.__doc__)
    if name in ("ffi", "lib"):
        return True
    found = source()[place.partition(".")[2]]
    return (found.final_target if found.is_alias else found).docstring is not None


def on_post_build(config: Any) -> None:
    """Warn of each public name without a docstring."""
    for package in PACKAGES:
        for name, place in public_names(package).items():
            if not has_docstring(package, name, place):
                log.warning("%s.%s is public and has no docstring", package, name)
