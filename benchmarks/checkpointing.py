# SPDX-License-Identifier: MIT
"""Memory and time of a training step by the blocks that are computed twice, and what plan() says.

python benchmarks/checkpointing.py --every 0 2 1 --steps 3
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from harness import options

if TYPE_CHECKING:
    from pyggml.train import StepMetrics

_CLEAR, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


def _kib(name: str) -> int:
    """A line of the process's status, in bytes."""
    for line in _STATUS.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise SystemExit(f"{_STATUS} does not tell {name}: this needs Linux")


def measure(args: argparse.Namespace) -> dict[str, float]:
    """One choice, in a process of its own."""
    import pyggml as pg
    from pyggml.data import TokenDataset
    from pyggml.models import GPT2, GPT2Config
    from pyggml.optim import AdamW, decay_groups
    from pyggml.train import Callback, Trainer

    class Note(Callback):
        """The seconds, those of the CPU, and the loss of each step."""

        def __init__(self) -> None:
            self.times: list[float] = []
            self.cpu: list[float] = []
            self._used = 0.0
            self.losses: list[float] = []

        def start(self) -> None:
            self._used = time.process_time()

        def on_step(self, trainer: Trainer, metrics: StepMetrics) -> None:
            self.times.append(metrics.elapsed_s - sum(self.times))
            used = time.process_time()
            self.cpu.append(used - self._used)
            self._used = used
            self.losses.append(metrics.loss)

    pg.set_threads(args.threads)
    before = _kib("VmRSS")
    model = GPT2(
        GPT2Config(
            args.vocab, context=args.seq, n_layer=args.layers, n_head=args.heads, n_embd=args.embd
        )
    )
    rng = np.random.default_rng(0)
    ids = rng.integers(0, args.vocab, args.batch * args.seq + 1).astype(np.int32)
    note = Note()
    trainer = Trainer(
        model,
        TokenDataset(ids, args.seq),
        optimizer=AdamW(decay_groups(model, 0.1), lr=1e-4),
        batch_size=args.batch,
        steps=args.steps,
        clip=1.0,
        checkpointing=args.every[0] or "none",
        callbacks=[note],
    )
    plan = trainer.plan()
    note.start()
    _CLEAR.write_text("5")  # the peak counts from here: making the weights had one of its own
    trainer.fit()
    measured = _kib("VmHWM") - before
    return {
        "every": args.every[0],
        "activations": plan.activations,
        "planned": plan.total,
        "measured": measured,
        "ratio": measured / plan.total,
        "step_s": statistics.median(note.times),
        "cpu_s": statistics.median(note.cpu),
        "loss": note.losses[-1],
    }


def _every(text: str) -> int:
    """Of how many blocks one is computed twice; 0 for none."""
    return 0 if text == "0" else options.positive(text)


def main() -> int:
    """Measure every choice, one process after another."""
    parser = options.parser(__doc__ or "")
    parser.add_argument(
        "--every", type=_every, nargs="+", default=[0, 2, 1], metavar="N",
        help="of N blocks one is computed twice; 0: none (0 2 1)",
    )  # fmt: skip
    sizes = {"layers": 12, "embd": 768, "heads": 12, "vocab": 50257, "batch": 4, "seq": 256}
    for name, value in {**sizes, "steps": 3}.items():
        parser.add_argument(
            f"--{name}", type=options.positive, default=value, metavar="N", help=f"({value})"
        )
    options.add_threads(parser)
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.embd % args.heads:
        parser.error(f"argument --heads: must divide --embd {args.embd}; got {args.heads}")
    options.check_threads(parser, args.threads)
    if args.alone:
        print(json.dumps(measure(args)))
        return 0
    if not args.json:
        print("every  activations     planned    measured   ratio   step s    cpu s       loss")
    same = [f"--{name}={getattr(args, name)}" for name in (*sizes, "steps", "threads")]
    for every in args.every:
        command = [sys.executable, __file__, "--alone", "--every", str(every), *same]
        found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        if args.json:
            print(json.dumps(found))
            continue
        mb = [f"{found[name] / 1e6:>9.0f} MB" for name in ("activations", "planned", "measured")]
        print(f"{every:>5}{''.join(mb)}{found['ratio']:>8.3f}{found['step_s']:>9.2f}", end="")
        print(f"{found['cpu_s']:>9.2f}{found['loss']:>11.5f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
