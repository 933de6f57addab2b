# SPDX-License-Identifier: MIT
"""`pyggml demo`: the demos, listed and run."""

from __future__ import annotations

import ast
import runpy
import sys
from pathlib import Path
from typing import Annotated

import typer

from .errors import friendly_errors

__all__ = ["demo", "demo_folder"]


def demo_folder() -> Path:
    """Return the folder of the demos: beside the package's source, or installed with it.

    Raises:
        FileNotFoundError: neither is there.
    """
    package = Path(__file__).resolve().parent.parent
    # In a clone, and so for an editable install: beside pyproject.toml and src.
    root = package.parents[1]
    if (root / "pyproject.toml").is_file() and (root / "demos").is_dir():
        return root / "demos"
    # The package may be spread over two places, one of them with what was built.
    from .. import __path__ as places

    for place in map(Path, places):
        if (place / "demos").is_dir():
            return place / "demos"
    raise FileNotFoundError(
        "demo: pyggml was installed without its demos; they are in the folder demos of its source"
    )


def summary(path: Path) -> str:
    """Return the first line of a demo's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.splitlines()[0] if text else ""


def demo(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(help="Which; without a name they are listed.")
    ] = None,
) -> None:
    """Run a demo, or list them all.

    Arguments after the name go to the demo: --plot FILE draws its curve, --help lists all of them.
    """
    with friendly_errors():
        from ..errors import ConfigError

        found = {path.stem: path for path in sorted(demo_folder().glob("*.py"))}
        if name is None:
            width = max(map(len, found))
            for each, path in found.items():
                print(f"{each:<{width}}  {summary(path)}")
            return
        chosen = name.removesuffix(".py").replace("-", "_")
        if chosen not in found:
            raise ConfigError(f"demo must be one of {', '.join(found)}; got {name!r}")
        path = found[chosen]
        before = sys.argv
        sys.argv = [str(path), *context.args]
        try:
            runpy.run_path(str(path), run_name="__main__")
        except SystemExit as end:
            if isinstance(end.code, str):
                print(end.code, file=sys.stderr)
            code = 1 if isinstance(end.code, str) else int(end.code or 0)
            raise typer.Exit(code) from None
        finally:
            sys.argv = before
