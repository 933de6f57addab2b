# SPDX-License-Identifier: MIT
"""Step time and efficiency of 1 to 4,096 ranks, predicted; and the predictions held against steps.

    python benchmarks/scaling_model.py --measure --check --plot     # as root: slowed links
    python benchmarks/scaling_model.py --gbit 25 --alpha-us 5       # another network

`--measure` notes, on this machine, what a rank computes between what it sends, and the time of
messages; a replay of that over a link is the prediction (harness/cluster.py). `--check` compares it
with steps of 1, 2 and 4 real ranks. Ranks are hosts with a network card each; each computes as this
machine does, or `--faster` so many times.
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
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from harness import report
from harness.cluster import (
    Link,
    Trace,
    computing,
    fit,
    read_traces,
    replay,
    replay_rounds,
    stage_three,
)
from harness.link import run as run_hosts
from harness.link import slow_link
from harness.model import Spec

ROOT = Path(__file__).resolve().parents[1]
SPECS = {
    "small": Spec(layers=4, embd=256, heads=4, vocab=4096, batch=2, seq=128, threads=1),
    "large": Spec(layers=6, embd=384, heads=6, vocab=50257, batch=1, seq=128, threads=1),
    "GPT-2 124M": Spec(batch=2, seq=256, threads=2),
}
ZEROS = ("0", "1", "2")
LINKS = {"100 Mbit/s, 20 ms": (100, 20), "400 Mbit/s, 4 ms": (400, 4)}
LOCAL_STEPS, EVERY = 5, 50  # of DiLoCo: in the check, and in predictions
SIZES = (8, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 23)
RANKS = [2**i for i in range(13)]
LOOK_S = 5e-4  # half of the pause between two looks at messages


def jobs() -> dict[str, dict[str, Any]]:
    """Return what is measured: ranks, cases, and groups whose events are noted."""
    every = [(spec, zero) for spec in ("small", "large") for zero in ZEROS]
    first = [(spec, "0") for spec in ("small", "large")]
    found: dict[str, dict[str, Any]] = {
        "1 rank": {"ranks": 1, "cases": first, "sizes": [1], "rounds": 10},
        "2 ranks": {"ranks": 2, "cases": every, "sizes": [2], "rounds": 12},
        "4 ranks": {"ranks": 4, "cases": every, "sizes": [4], "rounds": 12},
    }
    for (name, given), spec in zip(LINKS.items(), ("small", "large"), strict=True):
        cases = [(spec, zero) for zero in (*ZEROS, "DiLoCo")]
        found[name] = {"ranks": 2, "cases": cases, "sizes": [2], "rounds": 4, "link": given}
    sizes = {"0": (1, 2), "1": (2, 4, 128), "2": (2, 4, 128), "DiLoCo": (2,)}
    groups = [("GPT-2 124M", method, *each) for method, each in sizes.items()]
    found["profile"] = {"ranks": 1, "cases": groups, "sizes": None, "rounds": 3}
    return found


def maker(name: str, method: str) -> Any:
    """Return what makes the step of a rank."""
    from harness import traces

    if method == "DiLoCo":
        return partial(traces.make_rounds, SPECS[name], every=LOCAL_STEPS)
    return partial(traces.make_step, SPECS[name], zero=int(method))


def work(job: dict[str, Any]) -> None:
    """Do a job as one of its ranks; rank 0 prints the results."""
    from harness import traces

    import pyggml as pg

    pg.distributed.init()
    # Ranks that share cores need processor time; how long it takes depends on the others.
    shared = job["ranks"] > len(os.sched_getaffinity(0))
    clock = time.process_time if shared else time.perf_counter
    found: list[dict[str, Any]] = []
    sizes = job["sizes"]
    # Only noted, all take turns in one run: their differences are those of the methods.
    runs = [[case] for case in job["cases"]] if sizes is not None else [job["cases"]]
    for cases in runs:
        makers, noted = [], []
        for name, method, *group in cases:
            pg.set_threads(SPECS[name].threads)
            makers.append(maker(name, method))
            noted += [(makers[-1], size) for size in group or sizes]
        rounds = job["rounds"] if cases[0][1] != "DiLoCo" else max(1, job["rounds"] // 2)
        own = makers[0] if sizes is not None else None
        step_s, events = traces.compare(own, noted, rounds, clock)
        for name, method, *group in cases:
            kept = {size: events.pop(0) for size in group or sizes}
            found.append({"spec": name, "method": method, "step_s": step_s, "events": kept})
    link = traces.measure_link(list(SIZES), 5) if job["ranks"] > 1 else {}
    if pg.distributed.rank() == 0:
        print(json.dumps({"cases": found, "link": link, "ranks": job["ranks"]}), flush=True)


def measure(path: Path, names: list[str]) -> dict[str, Any]:
    """Run the jobs and keep what they tell."""
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    mpiexec = shutil.which("mpiexec") or str(Path(sys.executable).parent / "mpiexec")
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    allowed |= {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
    for number, (name, job) in enumerate(jobs().items()):
        if names and name not in names:
            continue
        arguments = [str(Path(__file__).resolve()), "--worker", str(number)]
        if "link" in job:
            if os.geteuid():
                print(f"{name}: left out, as network namespaces need root", file=sys.stderr)
                continue
            with slow_link(*job["link"]):
                text = run_hosts(arguments)
        else:
            call = [mpiexec, "-n", str(job["ranks"]), sys.executable, *arguments]
            environment = {**os.environ, **allowed}
            done = subprocess.run(
                call, stdout=subprocess.PIPE, text=True, env=environment, check=False
            )
            if done.returncode:
                raise SystemExit(f"scaling_model: {name}: the ranks ended with {done.returncode}")
            text = done.stdout
        found[name] = {**json.loads(text.splitlines()[-1]), "machine": report.machine()}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found))
        print(f"{name}: measured", file=sys.stderr, flush=True)
    return found


def link_of(job: dict[str, Any]) -> Link:
    """Return the link that a job measured."""
    told = job["link"]
    large = [i for i, size in enumerate(told["size"]) if size >= 1 << 16]
    alpha, beta = fit([told["size"][i] for i in large], [told["message"][i] for i in large])
    gamma = told["add"][-1] / told["size"][-1]
    return Link(alpha, told["message"][0], beta, gamma, look_s=LOOK_S)


def shared_link(link: Link, job: dict[str, Any], cores: int) -> Link:
    """Return a link between ranks that share cores, whose operations a job of them timed."""
    told, shared = job["link"], min(1.0, cores / job["ranks"])
    costs = {}
    for kind in ("sum", "reduce", "send") if told else ():
        begin_s, byte_s = fit(told["size"], told[kind])
        costs[kind] = (begin_s * shared, byte_s * shared)
    return replace(link, cores=cores, look_s=0.0, costs=costs)


def traces_of(
    found: dict[str, Any], job: str, spec: str, method: str, size: int
) -> list[list[Trace]]:
    """Return the traces of a case's rounds, of the largest group of at most a size."""
    known = {
        int(each): rows
        for case in found[job]["cases"]
        if (case["spec"], case["method"]) == (spec, method)
        for each, rows in case["events"].items()
    }
    return read_traces(known[max(n for n in known if n <= size)])


def alone_s(rounds: list[list[Trace]]) -> float:
    """Return the median seconds that rank 0 computes."""
    return statistics.median(computing(traces[0]) for traces in rounds)


def check(found: dict[str, Any]) -> None:
    """Print predicted and measured steps."""
    cores, rows = len(os.sched_getaffinity(0)), []
    here = link_of(found["2 ranks"])
    for name, job in found.items():
        ranks = job["ranks"]
        slow = name in LINKS
        link = link_of(job) if slow else shared_link(here, job, cores)
        for case in job["cases"]:
            if not case["step_s"]:
                continue
            rounds = traces_of(found, name, case["spec"], case["method"], ranks)
            times = 1 if case["method"] != "DiLoCo" else LOCAL_STEPS
            predicted = replay_rounds(rounds, ranks, link) / times
            measured = statistics.median(case["step_s"]) / times
            off = f"{predicted / measured - 1:+.1%}"
            method = case["method"] if times > 1 else f"ZeRO {case['method']}"
            spread = (max(case["step_s"]) - min(case["step_s"])) / times
            cells = [report.number(each * 1e3) for each in (predicted, measured, spread)]
            rows.append([name, case["spec"], method, *cells, off])
    report.print_table("ranks model method predicted(ms) measured(ms) spread(ms) off".split(), rows)
    for name in ("2 ranks", *(each for each in LINKS if each in found)):
        link = link_of(found[name])
        print(
            f"{name}: alpha {link.alpha * 1e6:.1f} us, 1 / beta {8e-9 / link.beta:.3f} Gbit/s, "
            f"gamma {link.gamma * 1e9:.3f} ns per byte"
        )


def predict(found: dict[str, Any], method: str, ranks: int, link: Link, faster: float) -> float:
    """Return the seconds of a step of the profiled model on so many hosts."""
    traces = partial(traces_of, found, "profile", "GPT-2 124M")
    alone = alone_s(traces("0", 1)) / faster
    if ranks == 1:
        return alone
    if method == "DiLoCo":
        steps, *average = traces(method, ranks)[0][0]
        outer = [steps._replace(gap_s=0.0), *average]
        return alone + replay([outer], ranks, link, 1 / faster) / EVERY
    given = traces("2" if method == "3" else method, ranks)
    if method == "3":
        given = [[stage_three(each) for each in one] for one in given]
    return replay_rounds(given, ranks, link, 1 / faster)


METHODS = {"0": "plain", "1": "ZeRO 1", "2": "ZeRO 2", "3": "ZeRO 3", "DiLoCo": f"H = {EVERY}"}


def network(found: dict[str, Any], args: argparse.Namespace, gbit: float) -> Link:
    """Return a network of so many Gbit/s."""
    alpha, gamma = args.alpha_us * 1e-6, link_of(found["2 ranks"]).gamma
    return Link(alpha, alpha, 8 / (gbit * 1e9), gamma, 0, LOOK_S)


def tabulate(found: dict[str, Any], args: argparse.Namespace) -> None:
    """Print predictions for one network."""
    link = network(found, args, args.gbit)
    rows = []
    for ranks in RANKS:
        times = [predict(found, method, ranks, link, args.faster) for method in METHODS]
        alone = predict(found, "0", 1, link, args.faster)
        cells = [f"{t:,.2f} s {alone / t:.0%}" for t in times]
        rows.append([f"{ranks:,}", *cells])
    print(f"\nGPT-2 124M, 2 x 256 tokens a rank, {args.gbit:g} Gbit/s, alpha {args.alpha_us:g} us")
    report.print_table(["ranks", *METHODS.values()], rows)


def plot(found: dict[str, Any], args: argparse.Namespace) -> None:
    """Draw efficiencies: of plain ranks by link, and of each method on one link."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams |= {"svg.hashsalt": "pyggml", "svg.fonttype": "none", "font.size": 9}
    for name in ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"):
        matplotlib.rcParams[name] = "#848d97"  # is read on white and on black
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(9, 3.4), sharey=True, layout="constrained")
    by_link = {f"{gbit} Gbit/s": ("0", network(found, args, gbit)) for gbit in (1, 10, 100, 400)}
    given = network(found, args, args.gbit)
    by_method = {
        text if method != "DiLoCo" else f"DiLoCo, {text}": (method, given)
        for method, text in METHODS.items()
    }
    titles = ("plain data parallel", f"{args.gbit:g} Gbit/s")
    for panel, curves, title in zip(panels, (by_link, by_method), titles, strict=True):
        for label, (method, link) in curves.items():
            alone = predict(found, method, 1, link, args.faster)
            shares = [alone / predict(found, method, n, link, args.faster) for n in RANKS]
            panel.plot(RANKS, shares, label=label, linewidth=1.6)
        panel.set_xscale("log", base=2)
        panel.set_xticks(RANKS[::2], [f"{n:,}" for n in RANKS[::2]])
        panel.set(title=title, xlabel="ranks", ylim=(0, 1.25))
        panel.grid(alpha=0.25)
        panel.legend(frameon=False, fontsize=8)
    panels[0].set_ylabel("efficiency")
    target = ROOT / "docs" / "images" / "scaling.svg"
    figure.savefig(target, transparent=True, metadata={"Date": None})
    print(f"wrote {target.relative_to(ROOT)}")


def positive(text: str) -> float:
    """Return a number above 0."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number above 0; got {text!r}")
    return value


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--measure", action="store_true", help="do the measurements of a model")
    parser.add_argument("--only", action="append", default=[], choices=list(jobs()), metavar="JOB")
    parser.add_argument("--check", action="store_true", help="hold predictions against steps")
    parser.add_argument("--plot", action="store_true", help="write docs/images/scaling.svg")
    parser.add_argument("--data", type=Path, default=Path("artifacts/scaling.json"))
    parser.add_argument("--gbit", type=positive, default=10.0, help="the network's rate (10)")
    parser.add_argument("--alpha-us", type=positive, default=10.0, help="of a message (10)")
    parser.add_argument("--faster", type=positive, default=1.0, help="hosts than this one (1)")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker is not None:
        work(list(jobs().values())[args.worker])
        return 0
    if not args.measure and not args.data.exists():
        parser.error(f"--data: no such file: {args.data}; make it with --measure")
    found = measure(args.data, args.only) if args.measure else json.loads(args.data.read_text())
    if "2 ranks" not in found:
        parser.error(f"--data: {args.data} must have the job '2 ranks'; add it with --measure")
    if args.check:
        check(found)
    if "profile" in found:
        tabulate(found, args)
        if args.plot:
            plot(found, args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
