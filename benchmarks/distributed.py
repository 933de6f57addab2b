# SPDX-License-Identifier: MIT
"""Two ranks of one thread against one: GPT-2's training step, interleaved, and memory by rank.

The ceiling is two processes that compute at the same time and exchange nothing: they share caches,
memory bus and perhaps a core.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from harness import options, report, rss
from harness.model import BETAS, CLIP, EPS, LR, WEIGHT_DECAY, Spec, batch

_LARGE = {"layers": 12, "embd": 768, "heads": 12}


def parse() -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    parser = options.parser(__doc__ or "")
    options.add_model(parser, Spec(layers=6, embd=384, heads=6, batch=8))
    parser.add_argument("--large", action="store_true", help="GPT-2 124M: 12 blocks of 768")
    parser.add_argument("--ranks", type=options.positive, default=2, metavar="N", help="(2)")
    parser.add_argument("--rounds", type=options.positive, default=3, metavar="N", help="(3)")
    parser.add_argument("--zero", type=int, choices=(0, 1, 2, 3), default=0, help="what is divided")
    parser.add_argument("--wire", choices=("f32", "bf16"), default="f32", help="gradients sent")
    parser.add_argument("--feedback", action="store_true", help="error feedback of bf16")
    parser.add_argument("--late", action="store_true", help="also reduce after the backward")
    parser.add_argument("--memory", action="store_true", help="memory of the ranks by ZeRO stage")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.large:
        vars(args).update(_LARGE)
    return parser, args


class Worker:
    """One rank: a model, a step of its own, and one of all ranks."""

    def __init__(self, spec: Spec, args: argparse.Namespace) -> None:
        import pyggml as pg
        from pyggml import distributed
        from pyggml.models import GPT2, GPT2Config
        from pyggml.optim import AdamW
        from pyggml.train import TrainStep
        from pyggml.train.exchange import Exchange

        self.group = distributed.init()
        self.began = rss.now_mib() or 0.0
        pg.seed(0)
        config = GPT2Config(
            vocab_size=spec.vocab,
            context=spec.seq,
            n_layer=spec.layers,
            n_head=spec.heads,
            n_embd=spec.embd,
        )

        def make(exchanges: bool) -> TrainStep:
            model = GPT2(config)
            optimizer = AdamW(model, lr=LR, betas=BETAS, eps=EPS, weight_decay=WEIGHT_DECAY)
            exchange, group = None, None
            if exchanges:
                group = self.group
                exchange = Exchange(group, optimizer, args.wire == "bf16", args.feedback, args.zero)
            precision = None if spec.dtype == "f32" else spec.dtype
            return TrainStep(
                model, optimizer, CLIP, precision=precision, group=group, exchange=exchange
            )

        self.together = make(True)
        self.alone = None if args.memory else make(False)
        self.batch = batch(spec)

    def time(self, mode: str) -> float:
        """Return the seconds of one step of rank 0, or of the slowest rank."""
        self.group.barrier()
        takes_part = mode != "alone" or self.group.is_first
        took = 0.0
        if takes_part:
            step = self.together if mode in ("together", "late") else self.alone
            assert step is not None
            if step.exchange is not None:
                step.exchange.overlaps = mode == "together"
            began = time.perf_counter()
            step([self.batch])
            took = time.perf_counter() - began
        self.group.barrier()
        return max(self.group.gather(took))

    def memory(self) -> list[tuple[float, float, float]]:
        """Return for each rank the MiB planned and those that it took: now, and at most."""
        step = self.together
        for _ in range(3):
            step([self.batch])
        assert step.exchange is not None
        planned = sum(p.nbytes for p in step.model.parameters()) + step.optimizer.grad_nbytes
        planned += step.exchange.nbytes + step.optimizer.nbytes + step.activation_bytes
        windows = step.exchange.delivery.windows
        if windows is not None:
            planned -= windows.spared_bytes(step.record(self.batch))
        now, most = (rss.now_mib() or 0.0), (rss.peak_mib() or 0.0)
        own = (planned / 2**20, now - self.began, most - self.began)
        found: list[tuple[float, float, float]] = self.group.gather(own)
        return found


def work(parser: argparse.ArgumentParser, args: argparse.Namespace) -> int:
    args.threads = 1
    worker = Worker(options.spec_of(parser, args), args)
    if args.memory:
        found: Any = worker.memory()
    else:
        modes = ["alone", "together", "independent", *(["late"] if args.late else [])]
        for mode in modes:
            worker.time(mode)
        found = {mode: [] for mode in modes}
        for number in range(args.rounds):
            for mode in modes[number % len(modes) :] + modes[: number % len(modes)]:
                found[mode].append(worker.time(mode))
    if worker.group.is_first:
        print(json.dumps(found), flush=True)
    return 0


def start(args: argparse.Namespace, **changed: Any) -> Any:
    """Run the ranks, and return what rank 0 tells."""
    mpiexec = shutil.which("mpiexec") or shutil.which("mpiexec", path=Path(sys.executable).parent)
    if mpiexec is None:
        raise SystemExit("distributed: mpiexec must be in PATH; pip install 'pyggml[mpi]'")
    given = {**vars(args), **changed}
    words = []
    for name, value in given.items():
        if name in ("large", "json", "worker") or value in (None, False, ""):
            continue
        words += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    command = [mpiexec, "-n", str(args.ranks), sys.executable, __file__, *words, "--worker"]
    allowed = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, **allowed}, check=False
    )
    if done.returncode:
        raise SystemExit(f"distributed: the ranks failed with exit code {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def print_speed(args: argparse.Namespace, found: dict[str, list[float]]) -> None:
    seconds = {mode: statistics.median(times) for mode, times in found.items()}
    ceiling = args.ranks * seconds["alone"] / seconds["independent"]
    rows = []
    for mode, took in seconds.items():
        ranks = 1 if mode == "alone" else args.ranks
        speed = ranks * args.batch * args.seq / took
        times = ranks * seconds["alone"] / took
        share = f"{times / ceiling:.1%}" if mode != "alone" else ""
        rows.append([mode, report.number(took * 1e3), report.number(speed), f"{times:.3f}", share])
    report.print_table("mode step(ms) tok/s times of-ceiling".split(), rows)


def main() -> int:
    parser, args = parse()
    if args.worker:
        return work(parser, args)
    head = (
        f"GPT-2 {args.layers} x {args.embd}, vocabulary {args.vocab}, {args.batch} x {args.seq} "
        f"tokens a rank, {args.dtype}, {args.ranks} ranks of one thread, gradients sent as "
        f"{args.wire}; {report.machine()}; load before {os.getloadavg()[0]:.1f}"
    )
    if args.memory:
        stages = {stage: start(args, zero=stage) for stage in (0, 1, 2, 3)}
        if args.json:
            report.print_json([stages])
            return 0
        rows = [
            [f"{stage}", f"{rank}", *(report.number(v) for v in row), f"{row[2] / row[0] - 1:+.1%}"]
            for stage, ranks in stages.items()
            for rank, row in enumerate(ranks)
        ]
        print(head)
        report.print_table("zero rank planned(MiB) now(MiB) peak(MiB) off".split(), rows)
        return 0
    found = start(args)
    if args.json:
        report.print_json([found])
        return 0
    print(f"{head}, ZeRO {args.zero}")
    print_speed(args, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
