# SPDX-License-Identifier: MIT
"""The HTML page of a run: results, curves, samples, configuration and machine."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ... import __version__
from ...backend.device import devices, get_threads
from ...backend.library import ggml_version, patch_count
from ...errors import FormatError, OutOfMemoryError
from ...io import atomic_write, read_regular
from ...train.memory import format_bytes
from ...train.metrics import read_metrics
from ..artifact import ArtifactDir
from .classes import classes
from .page import duration, escape, is_number, number, page, samples, table
from .training_curves import curves_svg, loss_svg, loss_unit

__all__ = [
    "CURVES",
    "UNSHOWN",
    "RunRecord",
    "flat",
    "points",
    "read_run",
    "results",
    "summary",
    "system_info",
    "write_report",
]

# The pictures: a title, the field of the lines of training, and the size of its unit.
CURVES = (
    ("learning rate", "lr", 1.0),
    ("gradient norm", "grad_norm", 1.0),
    ("{} per second", "tokens_per_s", 1.0),
    ("waiting for batches (ms)", "wait_s", 1e-3),
    ("memory (MB)", "memory_bytes", 1e6),
    ("model FLOP utilisation", "mfu", 1.0),
    ("loss scale", "loss_scale", 1.0),
)
UNSHOWN = ("step", "loss", "perplexity", "tokens")


@dataclass(frozen=True)
class RunRecord:
    """The content of a run's folder that pages show.

    Args:
        artifact: the folder.
        record: of config.json.
        lines: of metrics.jsonl.
        samples: of samples.jsonl.
        results: of results.json, which trainings on images write.
    """

    artifact: ArtifactDir
    record: dict[str, Any]
    lines: list[dict[str, Any]]
    samples: list[dict[str, Any]]
    results: dict[str, Any]

    @property
    def images(self) -> bool:
        """True for a run that learns images."""
        return self.record.get("task") == "image"

    @property
    def title(self) -> str:
        """The model and its size."""
        size = number(self.record.get("parameters"))
        return f"{self.record.get('arch', 'model')}, {size} parameters"


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
    run = read_run(folder)
    target = run.artifact.report if path is None else Path(path)
    with atomic_write(target, "w") as file:
        file.write(_page(run))
    return target


def flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values without the tables of a configuration's parts.

    Args:
        values: of a configuration.
    """
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= value if isinstance(value, dict) and value else {name: value}
    return found


def read_run(folder: str | Path) -> RunRecord:
    """Read what a page shows of a run.

    Args:
        folder: of the run.

    Raises:
        FormatError: the folder holds no run, or a file of it is damaged.
    """
    artifact = ArtifactDir(folder)
    if not artifact.holds_run:
        raise FormatError(f"{artifact.path}: holds no run of pyggml: give the folder of a run")
    results = artifact.path / "results.json"
    try:
        found = json.loads(read_regular(results)) if results.exists() else {}
    except (OSError, ValueError, RecursionError) as error:
        raise FormatError(f"{results}: not JSON: {error}: train on, or remove the file") from error
    return RunRecord(
        artifact,
        artifact.read_config(),
        read_metrics(artifact.metrics),
        read_metrics(artifact.samples),
        found if isinstance(found, dict) else {},
    )


def _page(run: RunRecord) -> str:
    parts = [
        table(results(run)),
        f'<h2>Curves over steps</h2><div class="curves">{_curves(run.lines, run.images)}</div>',
        classes(run.results),
    ]
    if run.samples:
        parts.append(f"<h2>Samples</h2>{samples(run.samples)}")
    for name, key in (("Model", "model"), ("Options", "options"), ("Environment", "system")):
        values = run.record.get(key)
        if isinstance(values, dict):
            parts.append(f"<h2>{name}</h2>{table(flat(values), many=True)}")
    return page(run.title, parts)


def results(run: RunRecord) -> dict[str, Any]:
    """Return the last numbers of a run, the memory that was planned, and the most of the process.

    The plan counts tensors; the process also has Python, the libraries and the data.

    Args:
        run: the run.
    """
    found = summary(run.record, run.lines)
    planned = run.record.get("planned_bytes")
    if isinstance(planned, int):
        found["memory of tensors, as planned"] = format_bytes(planned)
    most = max((value for _, value in points(run.lines, "train", "memory_bytes")), default=None)
    if most is not None:
        found["memory of the whole process, at most"] = format_bytes(int(most))
    return found


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
    ends: dict[str, Any] = {"steps": f"{number(train.get('step', 0))} of {number(total)}"}
    unit = loss_unit(lines, images)
    ends |= {"training loss": _loss(train.get("loss"), unit), counted: train.get("tokens")}
    took: Any = train.get("elapsed_s")
    ends |= {"time": duration(took) if is_number(took) else None}
    ends |= {"waiting for batches": _waited(lines)}
    ends |= {"skipped steps": train.get("skipped"), "steps without a target": _empty(lines)}
    for kind, line in last.items():
        if kind == "train":
            continue
        best = min(
            (x["loss"] for x in lines if x.get("kind") == kind and is_number(x.get("loss"))),
            default=None,
        )
        ends |= {f"{kind} loss": _loss(line.get("loss"), unit)}
        ends |= {f"{kind} loss, lowest": _loss(best, unit)}
        others = {
            f"{kind} {counted if k == 'tokens' else k.replace('_', ' ')}": v
            for k, v in line.items()
            if is_number(v) and k != "step" and not (images and k == "perplexity")
        }
        ends |= {name: value for name, value in others.items() if name not in ends}
    exported = record.get("exported")
    if isinstance(exported, dict):
        ends["model.gguf"] = f"the {exported.get('which')} weights, of step {exported.get('step')}"
    return {name: value for name, value in ends.items() if value is not None}


def _loss(value: Any, unit: str) -> Any:
    """A loss with its unit."""
    return f"{number(value)} {unit}".rstrip() if is_number(value) else value


def _empty(lines: Sequence[Mapping[str, Any]]) -> int | None:
    """The number of steps without a target that counts; None for none."""
    found = [line for line in lines if line.get("kind") == "train" and "loss" in line]
    return sum(line["loss"] is None for line in found) or None


def _waited(lines: Sequence[Mapping[str, Any]]) -> str | None:
    """The share of the training's time that was spent waiting for batches."""
    took = points(lines, "train", "elapsed_s")
    waited = [value for _, value in points(lines, "train", "wait_s")]
    if not waited or len(waited) != len(took) or not took[-1][1] > 0:
        return None
    return f"{sum(waited) / took[-1][1]:.2%} of the time"


def _curves(lines: list[dict[str, Any]], images: bool) -> str:
    """The pictures, or a sentence in their place where matplotlib is not there."""
    kinds = list(dict.fromkeys(str(line.get("kind")) for line in lines))
    try:
        drawn = [loss_svg(lines, images)]
        for named, name, unit in CURVES:
            found = [(x, y / unit) for x, y in points(lines, "train", name)]
            title = named.format("images" if images else "tokens")
            drawn.append(curves_svg(title, {"": found}))
        metrics = dict.fromkeys(
            name
            for line in lines
            for name, value in line.items()
            if line.get("kind") != "train" and is_number(value) and name not in UNSHOWN
        )
        for metric in metrics:
            curves = {kind: points(lines, kind, metric) for kind in kinds if kind != "train"}
            drawn.append(curves_svg(metric.replace("_", " "), curves))
    except (ImportError, OutOfMemoryError) as error:
        return f"<p>{escape(str(error))}</p>"
    return "".join(drawn)


def points(lines: Sequence[Mapping[str, Any]], kind: str, name: str) -> list[tuple[float, float]]:
    """Return the points (step, value) of a field.

    Args:
        lines: of metrics.jsonl.
        kind: of the lines, such as train.
        name: of the field.
    """
    return [
        (line["step"], float(line[name]))
        for line in lines
        if line.get("kind") == kind and is_number(line.get(name))
    ]
