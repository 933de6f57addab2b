# SPDX-License-Identifier: MIT
"""Options that several benchmarks take; bad ones end with exit code 2 and a message."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from .model import Spec


def positive(text: str) -> int:
    """A whole number of at least 1."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number >= 1; got {text!r}")
    return value


def counts(text: str) -> list[int]:
    """Whole numbers of at least 1, between commas."""
    return [positive(part) for part in text.split(",")]


def parser(description: str) -> argparse.ArgumentParser:
    """A parser with the options of every benchmark."""
    result = argparse.ArgumentParser(description=description, allow_abbrev=False)
    result.add_argument("--json", action="store_true", help="one JSON object a line, no table")
    return result


def add_only(target: argparse.ArgumentParser, peers: Sequence[str]) -> None:
    """`--only`: some of the contenders."""

    def chosen(text: str) -> list[str]:
        names = text.split(",")
        unknown = [name for name in names if name not in peers]
        if unknown:
            raise argparse.ArgumentTypeError(
                f"must be among {', '.join(peers)}; got {', '.join(unknown)}"
            )
        return [peer for peer in peers if peer in names]

    target.add_argument(
        "--only",
        type=chosen,
        default=list(peers),
        metavar="PEER[,PEER]",
        help=f"contenders: {', '.join(peers)} (default: all)",
    )


def add_model(
    target: argparse.ArgumentParser, default: Spec, dtypes: Sequence[str] = ("f32", "bf16")
) -> None:
    """The shape of the model and of a step."""
    for name, what in (
        ("layers", "blocks"),
        ("embd", "width of the stream"),
        ("heads", "attention heads; must divide the width"),
        ("vocab", "tokens of the vocabulary"),
        ("batch", "sequences of a step"),
        ("seq", "tokens of a sequence"),
    ):
        value = getattr(default, name)
        target.add_argument(
            f"--{name}", type=positive, default=value, metavar="N", help=f"{what} ({value})"
        )
    target.add_argument("--dtype", choices=dtypes, default="f32", help="of the products")
    target.add_argument(
        "--attention",
        choices=["auto", "plain", "flash"],
        default="",
        help="pyggml's (the model's default)",
    )
    target.add_argument("--seed", type=int, default=0, help="of weights and tokens (0)")


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def add_threads(target: argparse.ArgumentParser) -> None:
    """The number of threads."""
    default = min(2, cores())
    target.add_argument(
        "--threads", type=positive, default=default, metavar="N", help=f"of each ({default})"
    )


def add_steps(target: argparse.ArgumentParser, steps: int = 5) -> None:
    """How many steps are timed, and in how many rounds."""
    target.add_argument(
        "--steps", type=positive, default=steps, metavar="N", help=f"timed steps of each ({steps})"
    )
    target.add_argument(
        "--rounds",
        type=positive,
        metavar="N",
        help="turns that each has for its steps (as many as steps, at most 5)",
    )
    target.add_argument(
        "--warmup", type=positive, default=1, metavar="N", help="steps before, not timed (1)"
    )


def check_threads(target: argparse.ArgumentParser, wanted: int) -> None:
    """More threads than cores measure nothing."""
    if wanted > cores():
        target.error(f"argument --threads: must be at most the cores, {cores()}; got {wanted}")


def check_seed(target: argparse.ArgumentParser, seed: int) -> None:
    """NumPy's generators take no negative seed."""
    if seed < 0:
        target.error(f"argument --seed: must be >= 0; got {seed}")


def add_fused_update(target: argparse.ArgumentParser) -> None:
    """`--fused-update`: for everyone without clipping."""
    target.add_argument(
        "--fused-update",
        action="store_true",
        help="pyggml updates in the backward and keeps no gradients; nobody clips",
    )


def spec_of(target: argparse.ArgumentParser, args: argparse.Namespace) -> Spec:
    """The model that the options describe."""
    if args.embd % args.heads:
        target.error(f"argument --heads: must divide --embd {args.embd}; got {args.heads}")
    check_seed(target, args.seed)
    threads = getattr(args, "threads", 1)
    check_threads(target, threads)
    return Spec(
        layers=args.layers,
        embd=args.embd,
        heads=args.heads,
        vocab=args.vocab,
        batch=args.batch,
        seq=args.seq,
        dtype=args.dtype,
        threads=threads,
        checkpointing=getattr(args, "checkpointing", False),
        fused_update=getattr(args, "fused_update", False),
        attention=args.attention,
        seed=args.seed,
    )


def turns(target: argparse.ArgumentParser, args: argparse.Namespace) -> list[int]:
    """Steps of each round: as equal as can be."""
    rounds = args.rounds or min(args.steps, 5)
    if rounds > args.steps:
        target.error(f"argument --rounds: must be at most --steps {args.steps}; got {rounds}")
    return [args.steps // rounds + (i < args.steps % rounds) for i in range(rounds)]
