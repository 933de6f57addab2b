# SPDX-License-Identifier: MIT
"""What each preset takes to train: parameters, memory, tokens or images per second.

    python benchmarks/models.py                 # prints the tables of docs/reference/presets.md
    python benchmarks/models.py --write         # and rewrites them there, row by row
    python benchmarks/models.py --write --only bert --most 500   # some rows, the others stay

Every preset is built as it is by default. Those whose weights, gradients and moments fit into
6 GiB take training steps, each model in a process of its own. Time is that of the CPU, added over
all threads; the speed is that of the quickest step.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import pyggml as pg
from pyggml.data import Batch
from pyggml.models import MODELS, build
from pyggml.nn import init
from pyggml.optim import AdamW
from pyggml.train import TrainStep

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "presets.md"
_MIB = 1 << 20
# Weights, gradients and AdamW's two moments, f32 each.
STATE_BYTES = 16
# With activations, a larger model is beyond the 8 GB that a small machine has.
MOST_BYTES = 6 << 30
# The heads over BERT have its presets: one small and one of the usual size tell what a head adds.
_HEADED = {
    "bert-mlm": ("tiny", "bert-base-uncased"),
    "bert-classifier": ("tiny", "bert-base-uncased"),
    "bert-token-classifier": (),  # that of bert-classifier without the pooler
    "modern-bert-mlm": ("tiny", "modernbert-base"),
    "modern-bert-classifier": ("tiny", "modernbert-base"),
}
TRAINED = (
    "| model | preset | vocabulary | parameters | batch | MiB planned | MiB grown | a CPU-second |"
)
SIZED = "| model | preset | vocabulary | parameters | MiB |"


@dataclass(frozen=True)
class Preset:
    """A preset as it is built by default.

    Args:
        arch: key of `pyggml.models.MODELS`.
        name: of the preset.
        out: tokens of the vocabulary, or classes.
        parameters: how many.
        rows: of a batch.
        extent: tokens of a row, or side of an image.
    """

    arch: str
    name: str
    out: int
    parameters: int
    rows: int
    extent: int

    @property
    def state_bytes(self) -> int:
        """Memory of weights, gradients and moments."""
        return STATE_BYTES * self.parameters

    @property
    def is_trained(self) -> bool:
        """Whether it is measured."""
        return self.state_bytes <= MOST_BYTES

    def cells(self) -> list[str]:
        """What both tables tell of it; follows from the configuration alone."""
        text = hasattr(MODELS[self.arch].config_class, "vocab_size")
        out = f"{self.out:,}" if text else f"{self.out:,} classes"
        return [f"`{self.arch}`", f"`{self.name}`", out, f"{self.parameters:,}"]

    def batch(self) -> str:
        """Its batch in words."""
        text = hasattr(MODELS[self.arch].config_class, "vocab_size")
        return f"{self.rows} " + ("× " if text else f"of {self.extent} × ") + str(self.extent)


def presets() -> Iterator[Preset]:
    """Every preset, in the order of the page."""
    for arch, kind in MODELS.items():
        for name in kind.config_class.PRESETS:
            if name in _HEADED.get(arch, kind.config_class.PRESETS):
                yield _preset(arch, name)


def _preset(arch: str, name: str) -> Preset:
    config = MODELS[arch].config_class.preset(name)
    if hasattr(config, "count_parameters") and arch not in _HEADED:
        parameters = config.count_parameters()
    else:
        with init.empty_weights():
            parameters = build(arch, config).num_parameters()
    if hasattr(config, "vocab_size"):
        rows = 8 if parameters < 2e7 else 4 if parameters < 1e8 else 1
        return Preset(arch, name, config.vocab_size, parameters, rows, min(128, config.context))
    if arch == "mlp":
        return Preset(arch, name, config.classes, parameters, 64, round(config.inputs**0.5))
    if arch == "cnn":
        return Preset(arch, name, config.classes, parameters, 64, config.shape[0])
    large = config.stem == "large"
    return Preset(arch, name, config.classes, parameters, 4 if large else 32, 224 if large else 32)


def batch_of(model: Any, rows: int, extent: int) -> tuple[Any, int]:
    """Inputs and targets that fit, and how many tokens or images they are."""
    rng, config = np.random.default_rng(0), model.config
    vocab_size = getattr(config, "vocab_size", None)
    if vocab_size is None:
        channels = getattr(config, "channels", 1)
        x = rng.random((rows, channels, extent, extent), np.float32)
        return (x, rng.integers(0, config.classes, rows).astype(np.int32)), rows
    ids = rng.integers(0, vocab_size, (rows, extent)).astype(np.int32)
    if model.arch.endswith("classifier"):
        y = rng.integers(0, config.classes, rows).astype(np.int32)
        return Batch(ids, y, attention_mask=np.ones_like(ids)), ids.size
    if model.arch in ("bert", "modern-bert"):
        y = rng.standard_normal((rows, config.n_embd)).astype(np.float32)
        return Batch(ids, y, attention_mask=np.ones_like(ids)), ids.size
    return (ids, ids.copy()), ids.size


def embedding_loss(model: Any, x: Any, y: Any, attention_mask: Any) -> Any:
    """A loss for the bare BERT: how far its embeddings are from a direction each."""
    return (model.embed(x, attention_mask) * y).sum() / x.shape[0]


def resident_mib(peak: bool) -> float | None:
    """Resident memory of this process, now or at its highest; None where the system tells none."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return None
    found = re.search(rf"Vm{'HWM' if peak else 'RSS'}:\s+(\d+) kB", status)
    return int(found[1]) / 1024 if found else None


def measure(preset: Preset, seconds: float) -> dict[str, float | None]:
    """Train for some time, at least two steps after the first; meant for a process of its own."""
    before = resident_mib(peak=False)
    pg.seed(0)
    model = build(preset.arch, preset.name)
    optimizer = AdamW(model.parameters(), lr=1e-4)
    own = embedding_loss if preset.arch in ("bert", "modern-bert") else None
    step = TrainStep(model, optimizer, loss=own)
    batch, units = batch_of(model, preset.rows, preset.extent)
    step([batch])
    quickest, end, steps = float("inf"), time.perf_counter() + seconds, 0
    while steps < 2 or time.perf_counter() < end:
        began = time.process_time()
        step([batch])
        quickest, steps = min(quickest, time.process_time() - began), steps + 1
    weights = sum(p.nbytes for p in model.parameters())
    planned = weights + optimizer.grad_nbytes + optimizer.nbytes + step.activation_bytes
    peak = resident_mib(peak=True)
    grown = None if before is None or peak is None else peak - before
    return {"planned_mib": planned / _MIB, "grown_mib": grown, "per_s": units / quickest}


def measure_apart(preset: Preset, seconds: float, threads: int) -> dict[str, float | None]:
    """`measure` in a process of its own, whose memory is the model's alone.

    Raises:
        RuntimeError: the process failed; with the last line that it said.
    """
    given = ["--seconds", str(seconds), "--threads", str(threads)]
    command = [sys.executable, __file__, *given, "--one", f"{preset.arch}:{preset.name}"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise RuntimeError(f"{preset.arch} {preset.name}: {said}")
    found: dict[str, float | None] = json.loads(done.stdout.splitlines()[-1])
    return found


def row_of(cells: list[str]) -> str:
    """A line of a table."""
    return f"| {' | '.join(cells)} |"


def trained_row(preset: Preset, found: dict[str, float | None]) -> str:
    """A line of the table of what was measured."""
    unit = "tokens" if hasattr(MODELS[preset.arch].config_class, "vocab_size") else "images"
    grown, speed = found["grown_mib"], found["per_s"]
    assert speed is not None
    return row_of(
        [
            *preset.cells(),
            preset.batch(),
            f"{found['planned_mib']:,.1f}",
            "–" if grown is None else f"{grown:,.1f}",
            f"{speed:,.0f} {unit}" if speed >= 10 else f"{speed:,.2f} {unit}",
        ]
    )


def sized_row(preset: Preset) -> str:
    """A line of the table of what was not."""
    return row_of([*preset.cells(), f"{preset.state_bytes / _MIB:,.1f}"])


def table(head: str, rows: list[str]) -> str:
    """A table in Markdown."""
    return "\n".join([head, "|" + "---|" * head.count(" | ") + "---|", *rows])


def rewrite(text: str, name: str, body: str) -> str:
    """A page with other text between the comments of a name.

    Raises:
        ValueError: the page has no such comments.
    """
    begin, end = f"<!-- {name}: benchmarks/models.py -->\n", f"\n<!-- end of {name} -->"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{PAGE}: must have {begin!r} and {end!r}")
    return before + begin + body + end + after


def rows_of(text: str) -> dict[tuple[str, str], str]:
    """The lines of a page that are of presets, by model and preset."""
    found = {}
    for line in text.splitlines():
        cells = [cell.strip(" `") for cell in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) in (5, 8):
            found[cells[0], cells[1]] = line
    return found


def write(rows: dict[tuple[str, str], str], machine: str | None) -> None:
    """Put rows into the page; those of presets that are no more go."""
    every = list(presets())
    text = PAGE.read_text(encoding="utf-8")
    kept = {**rows_of(text), **rows}
    trained = [kept[p.arch, p.name] for p in every if p.is_trained and (p.arch, p.name) in kept]
    text = rewrite(text, "trained", table(TRAINED, [r for r in trained if r.count("|") == 9]))
    text = rewrite(text, "sized", table(SIZED, [sized_row(p) for p in every if not p.is_trained]))
    if machine is not None:
        text = rewrite(text, "machine", f"Measured on {machine}.")
    PAGE.write_text(text, encoding="utf-8")


def main() -> int:
    """Print the tables, or write them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="for each model (5)")
    parser.add_argument("--threads", type=int, default=1, help="for computing (1)")
    parser.add_argument("--only", choices=sorted(MODELS), help="one architecture")
    parser.add_argument(
        "--most", type=float, metavar="MIB", help="of weights and their like (6144)"
    )
    parser.add_argument("--write", action="store_true", help="rewrite docs/reference/presets.md")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.seconds > 0:
        parser.error(f"--seconds must be above 0; got {options.seconds}")
    pg.set_threads(options.threads)
    if options.one:
        print(json.dumps(measure(_preset(*options.one.split(":")), options.seconds)))
        return 0
    from harness import report

    every, most = list(presets()), (options.most or MOST_BYTES / _MIB) * _MIB
    threads = f"{options.threads} thread{'s' if options.threads > 1 else ''}"
    load = ""
    if hasattr(os, "getloadavg"):
        load = f"; the load of other programs at the start was {os.getloadavg()[0]:.1f}"
    machine = f"{report.machine()}, {os.cpu_count()} cores, on {threads}{load}"
    print(table(TRAINED, []), flush=True)
    failed = False
    for preset in every:
        if not preset.is_trained or preset.state_bytes > most:
            continue
        if options.only in (None, preset.arch):
            try:
                row = trained_row(preset, measure_apart(preset, options.seconds, options.threads))
            except RuntimeError as error:
                print(f"FAILED: {error}", file=sys.stderr)
                failed = True
                continue
            print(row, flush=True)
            if options.write:  # each row at once: what ends the run loses none
                write({(preset.arch, preset.name): row}, machine)
    if options.only is None:
        print("\n" + table(SIZED, [sized_row(p) for p in every if not p.is_trained]))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
