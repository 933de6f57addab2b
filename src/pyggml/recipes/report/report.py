# SPDX-License-Identifier: MIT
"""The HTML page of a run: results, curves, samples, configuration and machine."""

from __future__ import annotations

import html
import json
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ... import __version__
from ...backend.device import devices, get_threads
from ...backend.library import ggml_version, patch_count
from ...errors import FormatError, printable
from ...io import atomic_write
from ...train.metrics import read_metrics
from ..artifact import ArtifactDir
from .training_curves import curves_svg, loss_svg

__all__ = ["summary", "system_info", "write_report"]

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:1200px;padding:0 1rem;color:#222}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}h1,td{overflow-wrap:anywhere}
.curves{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr));gap:1rem}
svg{width:100%;height:auto;background:#fff;border:1px solid #e6e6e6;border-radius:6px}
svg *{stroke-linejoin:round;stroke-linecap:butt}
table{border-collapse:collapse}td{padding:.1rem 1rem .1rem 0;vertical-align:top}
td:first-child{color:#666;min-width:7rem}pre{background:#fafafa;border:1px solid #e6e6e6;
border-radius:6px;padding:.6rem;white-space:pre-wrap;overflow-wrap:anywhere}
details{margin:.4rem 0}
"""
# The pictures: a title, the field of the lines of training, and the size of its unit.
_CURVES = (
    ("learning rate", "lr", 1.0),
    ("gradient norm", "grad_norm", 1.0),
    ("{} per second", "tokens_per_s", 1.0),
    ("waiting for batches (ms)", "wait_s", 1e-3),
    ("memory (MB)", "memory_bytes", 1e6),
    ("model FLOP utilisation", "mfu", 1.0),
    ("loss scale", "loss_scale", 1.0),
)
_UNSHOWN = ("step", "loss", "perplexity", "tokens")


def system_info() -> dict[str, str]:
    """Return versions, system, threads and devices; nothing that names a person.

    Example:
        >>> sorted(system_info())
        ['Python', 'devices', 'ggml', 'pyggml', 'system', 'threads']
    """
    found = ", ".join(f"{device.name} ({device.description})" for device in devices())
    return {
        "pyggml": __version__,
        "ggml": f"{ggml_version()}, {patch_count()} patches",
        "Python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "devices": found,
        "threads": str(get_threads()),
    }


def write_report(folder: str | Path, path: str | Path | None = None) -> Path:
    """Write a run's page, which needs no other file and no network.

    Args:
        folder: the run's folder.
        path: the page; None is `report.html` in the folder.

    Returns:
        The path of the page.

    Raises:
        FormatError: the folder holds no run.
        OSError: the page cannot be written.

    Example:
        >>> write_report("artifacts/llm").name  # doctest: +SKIP
        'report.html'
    """
    artifact = ArtifactDir(folder)
    if not artifact.holds_run:
        raise FormatError(f"{artifact.path}: holds no run of pyggml: give the folder of a run")
    record = artifact.read_config()
    page = _page(record, read_metrics(artifact.metrics), read_metrics(artifact.samples))
    target = artifact.report if path is None else Path(path)
    with atomic_write(target, "w") as file:
        file.write(page)
    return target


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values without the tables of a configuration's parts."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= value if isinstance(value, dict) and value else {name: value}
    return found


def _escape(text: str) -> str:
    """Return a text of unknown origin as HTML."""
    return html.escape(printable(text, "\n\t"))


def _page(
    record: Mapping[str, Any], lines: list[dict[str, Any]], samples: list[dict[str, Any]]
) -> str:
    title = f"{record.get('arch', 'model')}, {_number(record.get('parameters'))} parameters"
    images = record.get("task") == "image"
    ends = summary(record, lines)
    parts = [
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{_escape(title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{_escape(title)}</h1>{_table(ends)}",
        f'<h2>Curves over steps</h2><div class="curves">{_curves(lines, images)}</div>',
    ]
    if samples:
        parts.append("<h2>Samples</h2>")
    for sample in samples:
        shown = " open" if sample is samples[-1] else ""
        text = _escape(str(sample.get("text", "")))
        parts.append(
            f"<details{shown}><summary>step {sample['step']:,}</summary><pre>{text}</pre></details>"
        )
    for name, key in (("Model", "model"), ("Configuration", "train")):
        values = record.get(key)
        if isinstance(values, dict):
            values = _flat(values)
            parts.append(f"<h2>{name}</h2>{_table(values)}")
    system = record.get("system")
    parts.append(f"<h2>System</h2>{_table(system if isinstance(system, dict) else {})}")
    return "".join([*parts, "</body></html>\n"])


def summary(record: Mapping[str, Any], lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the last numbers of every kind of line, as a report shows them.

    Args:
        record: the run's `config.json`.
        lines: the result of `read_metrics`.
    """
    # The fields of metrics speak of tokens; a run on images counts images in them.
    images = record.get("task") == "image"
    counted = "images" if images else "tokens"
    last = {str(line.get("kind")): line for line in lines}
    train = last.get("train", {})
    total = record.get("total_steps")
    ends: dict[str, Any] = {"steps": f"{_number(train.get('step', 0))} of {_number(total)}"}
    ends |= {"training loss": train.get("loss"), counted: train.get("tokens")}
    ends |= {"seconds": train.get("elapsed_s"), "waiting for batches": _waited(lines)}
    ends |= {"skipped steps": train.get("skipped"), "steps without a target": _empty(lines)}
    for kind, line in last.items():
        if kind == "train":
            continue
        best = min(
            (x["loss"] for x in lines if x.get("kind") == kind and _is_number(x.get("loss"))),
            default=None,
        )
        ends |= {f"{kind} loss": line.get("loss"), f"{kind} loss, lowest": best}
        others = {
            f"{kind} {counted if k == 'tokens' else k}": v
            for k, v in line.items()
            if _is_number(v) and k != "step" and not (images and k == "perplexity")
        }
        ends |= {name: value for name, value in others.items() if name not in ends}
    exported = record.get("exported")
    if isinstance(exported, dict):
        ends["model.gguf"] = f"the {exported.get('which')} weights, of step {exported.get('step')}"
    return {name: value for name, value in ends.items() if value is not None}


def _empty(lines: Sequence[Mapping[str, Any]]) -> int | None:
    """The number of steps without a target that counts; None for none."""
    found = [line for line in lines if line.get("kind") == "train" and "loss" in line]
    return sum(line["loss"] is None for line in found) or None


def _waited(lines: Sequence[Mapping[str, Any]]) -> str | None:
    """The share of the training's time that was spent waiting for batches."""
    took = _points(lines, "train", "elapsed_s")
    waited = [value for _, value in _points(lines, "train", "wait_s")]
    if not waited or len(waited) != len(took) or not took[-1][1] > 0:
        return None
    return f"{sum(waited) / took[-1][1]:.2%} of the time"


def _curves(lines: list[dict[str, Any]], images: bool) -> str:
    """The pictures, or a sentence in their place where matplotlib is not there."""
    kinds = list(dict.fromkeys(str(line.get("kind")) for line in lines))
    try:
        drawn = [loss_svg(lines, images)]
        for title, name, unit in _CURVES:
            points = [(x, y / unit) for x, y in _points(lines, "train", name)]
            drawn.append(curves_svg(title.format("images" if images else "tokens"), {"": points}))
        metrics = dict.fromkeys(
            name
            for line in lines
            for name, value in line.items()
            if line.get("kind") != "train" and _is_number(value) and name not in _UNSHOWN
        )
        for metric in metrics:
            named = {kind: _points(lines, kind, metric) for kind in kinds if kind != "train"}
            drawn.append(curves_svg(metric.replace("_", " "), named))
    except ImportError as error:
        return f"<p>{_escape(str(error))}</p>"
    return "".join(drawn)


def _points(lines: Sequence[Mapping[str, Any]], kind: str, name: str) -> list[tuple[float, float]]:
    return [
        (line["step"], float(line[name]))
        for line in lines
        if line.get("kind") == kind and _is_number(line.get(name))
    ]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _number(value: Any) -> str:
    if isinstance(value, bool) or not _is_number(value):
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


def _table(rows: Mapping[str, Any]) -> str:
    cells = "".join(
        f"<tr><td>{_escape(str(name))}</td><td>{_escape(_number(value))}</td></tr>"
        for name, value in rows.items()
        if value is not None
    )
    return f"<table>{cells}</table>"
