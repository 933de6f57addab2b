# SPDX-License-Identifier: MIT
"""The page of two runs side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import FormatError, OutOfMemoryError
from ...io import atomic_write
from .classes import classes
from .figure import FEW
from .page import escape, is_number, number, page, samples, table
from .report import CURVES, UNSHOWN, RunRecord, flat, points, read_run, results
from .training_curves import curves_svg, loss_name, smooth

__all__ = ["write_comparison"]

_LONGEST = 100
# Of these, averages are shown.
_NOISY = ("loss", "grad_norm", "wait_s")
_TABLES = (("Results", None), ("Model", "model"), ("Options", "options"), ("Environment", "system"))


def write_comparison(first: str | Path, second: str | Path, path: str | Path | None = None) -> Path:
    """Write a page of two runs side by side: curves, results, samples, and what differs.

    Args:
        first: the folder of a run.
        second: the folder of another run of the same kind.
        path: the page; None is `comparison.html` in the first folder.

    Returns:
        The path of the page.

    Raises:
        FormatError: a folder holds no run, both are the same, or the runs are of two kinds.
        OSError: the page cannot be written.

    Example:
        >>> write_comparison("artifacts/a", "artifacts/b").name  # doctest: +SKIP
        'comparison.html'
    """
    runs = [read_run(first), read_run(second)]
    folders = [run.artifact.path for run in runs]
    if folders[0].resolve() == folders[1].resolve():
        raise FormatError(
            f"{folders[1]}: the second run must be another one than the first: give its folder"
        )
    kinds = [str(run.record.get("task") or "train-llm") for run in runs]
    if kinds[0] != kinds[1]:
        raise FormatError(
            f"{folders[1]}: the runs must be of one kind, as others have other units; got "
            f"{kinds[0]} and {kinds[1]}: give two runs of the same command"
        )
    target = runs[0].artifact.comparison_page if path is None else Path(path)
    with atomic_write(target, "w") as file:
        file.write(_page(runs, _names(folders)))
    return target


def _names(folders: Sequence[Path]) -> list[str]:
    """Return the shortest ends of two paths that differ."""
    whole = [each.resolve().parts for each in folders]
    for count in range(1, max(map(len, whole)) + 1):
        names = ["/".join(parts[-count:]) for parts in whole]
        if names[0] != names[1]:
            return names
    return [str(each) for each in folders]


def _page(runs: Sequence[RunRecord], names: Sequence[str]) -> str:
    parts = [f'<h2>Curves over steps</h2><div class="curves">{_curves(runs, names)}</div>']
    for title, key in _TABLES:
        if key is None:
            values = [results(run) for run in runs]
        else:
            values = [_part(run, key) for run in runs]
        rows = {
            name: [each.get(name) for each in values]
            for name in dict.fromkeys([*values[0], *values[1]])
        }
        same = 0
        if key is not None:
            every = len(rows)
            rows = {name: pair for name, pair in rows.items() if pair[0] != pair[1]}
            same = every - len(rows)
        told = f"<p>{same} are the same in both.</p>" if same else ""
        shown = table(_short(rows), names) if rows else ""
        parts.append(f"<h2>{title}</h2>{shown}{told}")
    for title, found in (
        ("Samples", [samples(run.samples) for run in runs]),
        ("", [classes(run.results, 3) for run in runs]),
    ):
        if any(found):
            head = f"<h2>{title}</h2>" if title else ""
            opened, closed = ("<h3>", "</h3>") if title else ("<h2>", "</h2>")
            sides = "".join(
                f"<div>{opened}{escape(name)}{closed}{each or '–'}</div>"
                for name, each in zip(names, found, strict=True)
            )
            parts.append(f'{head}<div class="pair">{sides}</div>')
    return page(f"{names[0]} and {names[1]}", parts)


def _short(rows: Mapping[str, Sequence[Any]]) -> dict[str, list[str]]:
    """Return values that leave room for those beside them."""
    texts = {name: [number(each) for each in pair] for name, pair in rows.items()}
    return {
        name: [text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …" for text in pair]
        for name, pair in texts.items()
    }


def _part(run: RunRecord, key: str) -> dict[str, Any]:
    """Return a table of a run's record."""
    values = run.record.get(key)
    return flat(values) if isinstance(values, dict) else {}


def _curves(runs: Sequence[RunRecord], names: Sequence[str]) -> str:
    """Return the pictures of both runs, or a sentence in their place without matplotlib."""
    counted = "images" if runs[0].images else "tokens"
    loss = loss_name(runs[0].lines, runs[0].images)
    wanted = [(f"training {loss}", "train", "loss", 1.0)]
    metrics = dict.fromkeys(
        (str(line.get("kind")), name)
        for run in runs
        for line in run.lines
        for name, value in line.items()
        if line.get("kind") != "train" and is_number(value)
        if name == "loss" or name not in UNSHOWN
    )
    wanted += [
        (f"{kind} {loss if name == 'loss' else name.replace('_', ' ')}", kind, name, 1.0)
        for kind, name in metrics
    ]
    wanted += [(title.format(counted), "train", name, unit) for title, name, unit in CURVES]
    drawn = []
    try:
        for title, kind, name, unit in wanted:
            curves, told = {}, title
            for label, run in zip(names, runs, strict=True):
                found = points(run.lines, kind, name)
                values = [y / unit for _, y in found]
                if kind == "train" and name in _NOISY and len(values) > FEW:
                    values, told = smooth(values), f"{title}, smoothed"
                curves[label] = list(zip((x for x, _ in found), values, strict=True))
            drawn.append(curves_svg(told, curves))
    except (ImportError, OutOfMemoryError) as error:
        return f"<p>{escape(str(error))}</p>"
    return "".join(drawn)
