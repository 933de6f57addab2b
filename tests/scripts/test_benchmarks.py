# SPDX-License-Identifier: MIT
"""The benchmarks run, say what they promise, and refuse what they cannot do. No time is judged."""

from __future__ import annotations

import importlib.util
import json
import math
import re
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyggml
from pyggml.models import GPT2, GPT2Config

from ..distributed.ranks import run_code

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks"
SCRIPTS = [
    "checkpointing.py",
    "distributed.py",
    "finetune.py",
    "gemm.py",
    "gpu_model.py",
    "import_time.py",
    "inference.py",
    "loops.py",
    "memory.py",
    "models.py",
    "scaling.py",
    "scaling_model.py",
    "slow_network.py",
    "train_step.py",
]
MODEL = "--layers 1 --embd 32 --heads 2 --vocab 67 --batch 2 --seq 16 --threads 1".split()
ALONE = ["--only", "pyggml", "--json"]
STEP_KEYS: dict[str, type | tuple[type, ...]] = {
    "peer": str,
    "dtype": str,
    "status": str,
    "tok_s": float,
    "step_s": float,
    "cpu_s": float,
    "rss_mib": (float, type(None)),  # not every system tells
    "first": float,
    "last": float,
    "steps": int,
}


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


Run = Callable[..., Done]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a script's `main` in this process; its contenders get processes of their own."""
    monkeypatch.syspath_prepend(str(FOLDER))

    def call(script: str, *args: str, **environment: str) -> Done:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", [script, *args])
            for name, value in environment.items():
                patch.setenv(name, value)
            spec = importlib.util.spec_from_file_location("benchmark", FOLDER / script)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            patch.setitem(sys.modules, spec.name, module)  # where dataclasses look for it
            spec.loader.exec_module(module)
            capfd.readouterr()
            try:
                code = module.main()
            except SystemExit as ended:
                code = ended.code
        return Done(code, *capfd.readouterr())

    return call


def lines_of(done: Done) -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def check_step(result: dict[str, Any]) -> None:
    for key, kind in STEP_KEYS.items():
        assert isinstance(result[key], kind), f"{key}: {result[key]!r}"
    assert result["status"] == "ok"
    assert result["tok_s"] > 0
    assert 0 < result["step_min_s"] <= result["step_s"]
    # The first loss of random tokens is about that of equal chances; the same ones are learnt.
    assert abs(result["first"] - math.log(67)) < 0.1
    assert result["last"] < result["first"]


def test_every_script_is_tested() -> None:
    assert sorted(path.name for path in FOLDER.glob("*.py")) == SCRIPTS


def documented(page: str, language: str) -> str:
    """Return the first block of a language on a page."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    return str(re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)[0])


def test_the_documented_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(documented("guide/performance.md", "python"), {})
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[:4] == ["op", "calls", "ms", "share"]
    calls = {row.split()[0]: row.split()[1] for row in rows[:-1]}
    shown = dict(
        row.split()[:2] for row in documented("guide/performance.md", "text").splitlines()[1:]
    )
    assert shown.items() <= calls.items()
    assert len(shown) > 5
    assert json.loads((tmp_path / "step.json").read_text())["traceEvents"]


def test_the_documented_commands(run: Run) -> None:
    commands = [
        shlex.split(line)
        for line in documented("internals/benchmarks.md", "sh").replace("\\\n", " ").splitlines()
    ]
    assert {Path(command[1]).name for command in commands} == set(SCRIPTS)
    for _, script, *args in commands:
        # Options are read in order: those before --help are valid if its text comes.
        done = run(Path(script).name, *args, "--help")
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_blocks_computed_twice(run: Run) -> None:
    sizes = [*MODEL[2:], "--layers", "2", "--steps", "1", "--json"]
    none, every = lines_of(run("checkpointing.py", "--every", "0", "1", *sizes))
    assert every["loss"] == none["loss"]
    assert every["activations"] < none["activations"]
    assert every["planned"] - none["planned"] == every["activations"] - none["activations"]
    assert none["measured"] > 0
    assert min(none["cpu_s"], none["step_s"], every["cpu_s"], every["step_s"]) > 0


def test_a_training_step(run: Run) -> None:
    options = [*MODEL, *ALONE, "--steps", "3", "--rounds", "2"]
    (one,) = lines_of(run("train_step.py", *options))
    (same,) = lines_of(run("train_step.py", *options))
    (other,) = lines_of(run("train_step.py", *options, "--seed", "1"))
    (flash,) = lines_of(run("train_step.py", *options, "--attention", "flash"))
    check_step(one)
    assert (one["peer"], one["dtype"], one["steps"], one["tokens"]) == ("pyggml", "f32", 3, 32)
    assert 0 <= one["outside_share"] <= 1
    assert (one["first"], one["last"]) == (same["first"], same["last"])
    assert one["first"] != other["first"]
    assert flash["last"] == pytest.approx(one["last"], rel=1e-3)


def test_a_training_step_of_another_build(run: Run) -> None:
    options = [*MODEL, *ALONE, "--steps", "1"]
    done = run("train_step.py", *options, "--beside", sys.executable)
    one, other = lines_of(done)
    check_step(other)
    assert other["peer"] == f"pyggml of {sys.executable}"
    assert other["last"] == one["last"]
    done = run("train_step.py", *options, "--beside", "no-python")
    assert done.returncode == 2
    assert "must be a Python interpreter; got 'no-python'" in done.stderr


def test_a_training_step_as_a_table(run: Run) -> None:
    done = run("train_step.py", *MODEL, "--only", "pyggml", "--steps", "1", "--profile")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "threads 1" in lines[0]
    assert lines[1].split()[:3] == ["peer", "tok/s", "ratio"]
    assert lines[2].startswith("pyggml")
    assert any(line.startswith("OPT_STEP_ADAMW") for line in lines)


def test_a_peer_that_is_missing_and_one_that_breaks(run: Run, tmp_path: Path) -> None:
    (tmp_path / "jax.py").write_text("raise ModuleNotFoundError('no jax', name='jax')")
    (tmp_path / "torch.py").write_text("raise OSError('a library of it is damaged')")
    options = [*MODEL, "--json", "--only", "pyggml,torch,jax", "--steps", "1"]
    done = run("train_step.py", *options, PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    own, torch, jax = (json.loads(line) for line in done.stdout.splitlines())
    check_step(own)
    assert torch["status"].startswith("failed")
    assert "a library of it is damaged" in done.stderr
    assert jax == {"peer": "jax", "dtype": "f32", "threads": 1, "status": "not installed"}


def test_bf16_is_what_the_steps_multiply(run: Run) -> None:
    losses = {}
    for dtype in ("f32", "bf16"):
        done = run("train_step.py", *MODEL, *ALONE, "--dtype", dtype, "--steps", "2")
        assert done.returncode == 0, done.stderr
        (result,) = (json.loads(line) for line in done.stdout.splitlines())
        assert result["dtype"] == dtype
        check_step(result)
        losses[dtype] = result["last"]
    assert losses["bf16"] == pytest.approx(losses["f32"], rel=2e-2)
    if pyggml.bf16_matmuls():
        assert losses["bf16"] != losses["f32"]


def test_checkpointing_is_measured_or_refused(run: Run) -> None:
    done = run("train_step.py", *MODEL, *ALONE, "--checkpointing", "--steps", "1")
    model = GPT2(GPT2Config(vocab_size=3, context=2, n_embd=4, n_layer=1, n_head=1))
    if hasattr(model, "checkpointing"):
        assert done.returncode == 0, done.stderr
        check_step(json.loads(done.stdout.splitlines()[-1]))
        assert json.loads(done.stdout.splitlines()[-1])["checkpointing"] is True
    else:
        assert done.returncode == 2
        assert "no activation checkpointing; leave it out" in done.stderr


def test_memory(run: Run) -> None:
    (result,) = lines_of(run("memory.py", *MODEL, *ALONE))
    check_step(result)
    assert set(result["planned_mib"]) == {"parameters", "gradients", "optimizer", "activations"}
    if result["rss_mib"] is not None:
        assert 0 < result["import_mib"] <= result["model_mib"] <= result["rss_mib"]


@pytest.mark.parametrize("script", ["train_step.py", "memory.py"])
def test_updates_in_the_backward(run: Run, script: str) -> None:
    (result,) = lines_of(run(script, *MODEL, *ALONE, "--steps", "1", "--fused-update"))
    check_step(result)
    assert result["fused_update"] is True
    if script == "memory.py":
        assert result["planned_mib"]["gradients"] == 0


@pytest.mark.slow
def test_scaling(run: Run) -> None:
    options = [*MODEL, "--sweeps", "tokens", "depth", "--tokens", "16,32", "--depth", "2"]
    found = lines_of(run("scaling.py", *options, "--json", "--steps", "1"))
    for result in found:
        check_step(result)
        assert result["us_per_token"] > 0
    points = [(r["sweep"], r["value"], r["batch"], r["tokens"], r["layers"]) for r in found]
    assert points == [("tokens", 16, 1, 16, 1), ("tokens", 32, 2, 32, 1), ("depth", 2, 2, 32, 2)]


@pytest.mark.slow
def test_products(run: Run) -> None:
    shape = ["--tokens", "9", "--embd", "256", "--vocab", "67", "--layers", "proj", "head"]
    found = lines_of(run("gemm.py", *shape, *ALONE, "--rounds", "1", "--threads", "1"))
    assert len(found) == 2 * 3 * 4
    for result in found:
        key = (result["layout"], result["dtype"])
        assert result["peer"] == "pyggml"
        assert result["layer"] in ("proj", "head")
        if result["status"] != "ok":
            # What the backward needs of a type is the build's affair; the forward must be there.
            assert key[0] != "mul_mat", result["status"]
            assert result["status"].startswith("not supported: ")
            continue
        assert result["seconds"] > 0
        assert result["gflop_s"] > 0
        # Of the numbers' rounding to the type, whose steps are 2^-24, 2^-8, 1/127 and 1/8 or so.
        bound = {"f32": 1e-5, "bf16": 6e-3, "q8_0": 2e-2, "q4_K": 0.15}[result["dtype"]]
        assert result["error"] < bound, key


@pytest.mark.slow
def test_products_against_numpy_as_a_table(run: Run) -> None:
    options = "--tokens 5 --embd 32 --layers up --dtypes f32 bf16 --rounds 1 --threads 1".split()
    done = run("gemm.py", *options, "--only", "numpy,pyggml", "--openblas-core", "Haswell")
    assert done.returncode == 0, done.stderr
    assert "pyggml f32" in done.stdout
    assert "numpy-Haswell f32" in done.stdout
    assert "numpy bf16: not supported: NumPy has no bf16" in done.stdout


def test_import_time(run: Run) -> None:
    options = [*MODEL, "--rounds", "1", "--start-rounds", "1", "--only", "pyggml,numpy"]
    own, numpy = lines_of(run("import_time.py", *options, "--json"))
    assert (own["peer"], numpy["peer"]) == ("pyggml", "numpy")
    assert 0 < own["import_min_s"] <= own["import_s"]
    for key in ("model_s", "optimizer_s", "plan_s", "start_s", "first_step_s", "next_step_s"):
        assert own[key] > 0
    assert own["start_s"] == own["optimizer_s"] + own["plan_s"]
    assert "start_s" not in numpy


def test_finetune(run: Run) -> None:
    """Losses agree between types; adapters begin at zero, so that the first is the base's."""
    shape = "--shapes tiny --kinds f16,q8_0 --seq 16 --steps 1 --threads 1".split()
    first, second = lines_of(run("finetune.py", *shape, *ALONE))
    assert (first["status"], second["status"]) == ("ok", "ok")
    assert abs(first["first"] - second["first"]) < 0.01
    assert first["last"] < first["first"]
    assert run("finetune.py", "--shapes", "nope").returncode == 2


def test_inference(run: Run) -> None:
    shape = (
        "--layers 1 --embd 64 --heads 2 --kv-heads 1 --vocab 70 --context 24 --prompt 20".split()
    )
    turns = "--decode 4 --depth 3 --rounds 1 --loads 1 --types q8_0 --threads 1".split()
    (found,) = lines_of(run("inference.py", *shape, *turns, *ALONE))
    assert (found["peer"], found["type"], found["status"]) == ("pyggml", "q8_0", "ok")
    for key in ("load_s", "prompt_tokens_s", "prompt_cpu_ms", "decode_tokens_s", "decode_cpu_ms"):
        assert found[key] > 0
    assert found["load_s"] < found["first_s"]
    assert found["difference"] == 0


@pytest.mark.mpi
@pytest.mark.slow
def test_ranks_against_one(run: Run) -> None:
    shape = [*MODEL[:-2], "--rounds", "2", "--late", "--json"]
    (times,) = lines_of(run("distributed.py", *shape, "--wire", "bf16", "--feedback"))
    assert set(times) == {"alone", "together", "independent", "late"}
    assert all(len(each) == 2 and min(each) > 0 for each in times.values())
    (stages,) = lines_of(run("distributed.py", *shape, "--memory"))
    assert set(stages) == {"0", "1", "2"}
    assert all(len(ranks) == 2 and min(map(min, ranks)) > 0 for ranks in stages.values())


@pytest.mark.parametrize("zero", [0, 1, 2])
def test_what_a_rank_would_send_is_noted(monkeypatch: pytest.MonkeyPatch, zero: int) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    from harness import cluster, traces
    from harness.model import Spec

    spec = Spec(layers=1, embd=32, heads=2, vocab=67, batch=2, seq=16, threads=1)
    sizes = {"vocab_size": 67, "context": 16, "n_layer": 1, "n_head": 2, "n_embd": 32}
    params = 4 * sum(p.numel() for p in GPT2(GPT2Config(**sizes)).parameters())
    ranks = [traces.Recorder(2, rank) for rank in (0, 1)]
    for recorder in ranks:
        step = traces.make_step(spec, recorder, zero)
        step()
        recorder.start()
        step()
        recorder.end()
        sent = {"sum": 0, "arrival": 0}
        for event in recorder.events:
            if event.kind in sent:
                sent[event.kind] += event.number
        assert params <= sent["sum"] <= 1.1 * params  # with gaps between gradients, and counts
        assert sent["arrival"] == (params if zero else 0)
        kinds = [event.kind for event in recorder.events]
        assert ("arrive" in kinds) == (zero > 0)
        if zero:  # what the step before has sent arrives during this forward
            last = len(kinds) - kinds[::-1].index("arrive")
            assert "sum" in kinds[last:]
            assert kinds.index("arrival") > last
    link = cluster.Link(1e-3, 1e-3, 1e-6)
    found = [recorder.events for recorder in ranks]
    # Gradients that ranks divide, and parameters that they send, may hide behind computing.
    least = cluster.computing(found[0]) + (0 if zero else params * 1e-6 / 2)
    assert cluster.replay(found, 1, link) == cluster.computing(found[0])
    assert least < cluster.replay(found, 2, link) < cluster.replay(found, 64, link)
    asked = sum(event.kind in ("sum", "arrival") for event in found[0]) * 1e-3
    busy = [cluster.computing(trace) + asked for trace in [*found, *found[1:] * 2]]
    costs = dict.fromkeys(("sum", "reduce", "send"), (1e-3, 0.0))
    shared = cluster.Link(0, 0, 0, cores=2, costs=costs)
    assert cluster.replay(found, 4, shared) == pytest.approx(max(*busy, sum(busy) / 2))


@pytest.mark.mpi
def test_threads_look_while_what_is_noted_would_be_under_way(tmp_path: Path) -> None:
    code = f"""
import json, sys, time
sys.path.insert(0, {str(FOLDER)!r})
import numpy as np
import pyggml as pg
from harness import traces
from harness.model import Spec

looks = 0

class Counted(traces.Progress):
    def advance(self, most=0):
        global looks
        looks += 1
        return super().advance(most)

def pause():
    global looks
    looks = 0
    time.sleep(0.1)
    return looks

traces.Progress, x = Counted, np.ones(8, np.float32)
rank = traces.Recorder(4, 0, looks=True)
counts = [pause()]
rank.begin_sum(x, 1); counts.append(pause())
number = rank.begin_arrival(x, 0); counts.append(pause())
rank.finish(1); rank.finish(); counts.append(pause())
rank.end(); counts.append(pause())
rank.start(); counts.append(pause())
rank.arrive(number); counts.append(pause())
spec = Spec(layers=1, embd=32, heads=2, vocab=67, batch=2, seq=16, threads=1)
make = lambda group: traces.make_step(spec, group, 2)
took, noted = traces.compare(make, [(make, 2), (make, 4)], 3)
if pg.distributed.rank() == 0:
    sizes = [[len(ranks) for ranks in rounds] for rounds in noted]
    print(json.dumps([counts, len(took), sizes]))
"""
    done = run_code(2, tmp_path, code)
    assert done.returncode == 0, done.stderr
    counts, took, sizes = json.loads(done.stdout.splitlines()[-1])
    none, one, two, arrivals, ended, again, arrived = counts
    assert [none, ended, arrived] == [0, 0, 0]
    assert min(one, two, arrivals, again) > 0
    assert (took, sizes) == (3, [[2, 2, 2], [4, 4, 4]])


def test_predictions_take_the_trace_of_the_largest_group_up_to_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    import scaling_model
    from harness.cluster import Link

    def trace(method: str, size: int) -> list[list[object]]:
        """Compute for 1 / size seconds; or take steps for 8, and compute an average for 0.5."""
        if method == "DiLoCo":
            return [[8.0, "sum", 0, None], [0.0, "wait", 0, None], [0.5, "end", 0, None]]
        return [[1 / size, "end", 0, None]]

    cases = [
        {"spec": spec, "method": method, "events": {str(n): [[trace(method, n)]] for n in sizes}}
        for spec, method, *sizes in scaling_model.jobs()["profile"]["cases"]
    ]
    link, found = Link(0.0, 0.0, 0.0), {"profile": {"cases": cases}}
    for method, ranks, seconds in (
        ("0", 1, 1), ("0", 2, 1 / 2), ("0", 4096, 1 / 2), ("1", 2, 1 / 2), ("1", 3, 1 / 2),
        ("2", 4, 1 / 4), ("3", 127, 1 / 4), ("1", 128, 1 / 128), ("2", 1, 1), ("DiLoCo", 2, 1.01),
    ):  # fmt: skip
        for faster in (1, 4):
            predicted = scaling_model.predict(found, method, ranks, link, faster)
            assert predicted == pytest.approx(seconds / faster), (method, ranks)


def test_sums_take_the_time_of_their_formulas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    from harness.cluster import Event, Link, fit, replay

    link, n = Link(0.01, 0.001, 1e-6, 2e-7), 1 << 20
    events = [Event(0.5, "sum", n), Event(0.0, "wait", 0)]
    # Rabenseifner's: 2 log2(p) alpha + 2 (p - 1) / p n beta + (p - 1) / p n gamma
    for ranks in (2, 4, 8):
        share, rounds = n * (ranks - 1) / ranks, math.log2(ranks)
        expected = 0.5 + 2 * rounds * 0.01 + 2 * share * 1e-6 + share * 2e-7
        assert replay([events], ranks, link) == pytest.approx(expected)
    # On one machine a rank awaits the other's part, twice: 2 + 2 seconds; a part takes 0.25.
    wait = Event(0.0, "wait", 0)
    uneven = [[Event(gap, "sum", n), wait, Event(3.0 - gap, "sum", n), wait] for gap in (1.0, 2.0)]
    shared = Link(0.0, 0.0, 0.0, cores=2, costs={"sum": (0.25, 0.0)})
    assert replay(uneven, 2, shared) == pytest.approx(4.5)
    hidden = [Event(0.0, "sum", n), Event(9.0, "wait", 0)]
    assert replay([hidden], 8, link) == 9.0
    late = [Event(0.5, "send", 8, 0), Event(0.0, "wait", 0)]
    assert replay([late], 2, link) == pytest.approx(0.501 + 8e-6)
    sizes = [1 << 16, 1 << 20, 1 << 22]
    assert fit(sizes, [0.01 + size * 1e-6 for size in sizes]) == pytest.approx((0.01, 1e-6))


def test_parameters_arrive_while_the_next_forward_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    from harness.cluster import Event, Link, replay, stage_three

    def step(*sizes: int, late_s: float = 0.0) -> list[Event]:
        """Half a second, a sum of counts, a forward of 2, a backward of 1, a sum, parameters."""
        wait, forward = Event(0.0, "wait", 0), Event(2.0, "arrive", 0)
        sent = [Event(late_s, "arrival", size, 0) for size in sizes]
        start = [Event(0.5, "sum", 0), wait, forward]
        return [*start, Event(1.0, "sum", 0), wait, *sent, Event(0.0, "end", 0)]

    link = Link(0.0, 0.0, 1.0)  # a byte takes a second
    # The counts wait for the three arrivals that are under way, and the forward for the others.
    assert replay([step(1, 1, 1)], 2, link) == pytest.approx(3 + 3)
    assert replay([step(1, 1, 1, 1, 1)], 2, link) == pytest.approx(3 + 3)
    assert replay([step(1, 1, 1, 4, 1)], 2, link) == pytest.approx(3 + 5 + 1)
    shared = Link(0.0, 0.0, 0.0, cores=2, costs={"sum": (0.0, 0.0), "send": (0.25, 0.0)})
    assert replay([step(8), step(8, late_s=1.5)], 2, shared) == pytest.approx(3.5 + 1.5 + 0.25)
    assert sum(event.kind == "arrival" for event in stage_three(step(8, 8))) == 4
    left = [event.number for event in stage_three([Event(0.0, "arrive", 3), Event(0.0, "wait", 3)])]
    assert left == [6, 3]


@pytest.mark.parametrize(
    ("script", "args", "message"),
    [
        ("inference.py", "--library none.so", "--library: no such file: none.so"),
        ("inference.py", "--context 8", "--context: must hold --prompt"),
        ("train_step.py", "--layers 0", "--layers: must be a whole number >= 1; got '0'"),
        ("train_step.py", "--batch two", "--batch: must be a whole number >= 1; got 'two'"),
        ("train_step.py", "--heads 5", "--heads: must divide --embd 768; got 5"),
        ("train_step.py", "--dtype f8", "invalid choice: 'f8'"),
        ("train_step.py", "--only numpy", "must be among pyggml, torch, torch.compile, jax"),
        ("train_step.py", "--threads 9999", "--threads: must be at most the cores"),
        ("train_step.py", "--steps 2 --rounds 3", "--rounds: must be at most --steps 2; got 3"),
        ("train_step.py", "--seed -1", "--seed: must be >= 0; got -1"),
        ("train_step.py", "--profile --json", "--profile: prints pyggml's table"),
        ("train_step.py", "--step 3", "unrecognized arguments: --step 3"),
        ("memory.py", "--steps 0", "--steps: must be a whole number >= 1; got '0'"),
        ("scaling.py", "--tokens 100", "--tokens: must be multiples of --seq 256; got 100"),
        ("scaling.py", "--width 100", "--width: must be multiples of 64"),
        ("scaling.py", "--depth 1,,2", "--depth: must be a whole number >= 1; got ''"),
        ("scaling.py", "--sweeps height", "invalid choice: 'height'"),
        ("scaling_model.py", "--gbit 0", "--gbit: must be a number above 0; got '0'"),
        ("scaling_model.py", "--data none.json", "--data: no such file: none.json"),
        ("scaling_model.py", "--only 3", "--only: invalid choice: '3'"),
        ("slow_network.py", "--steps many", "--steps: invalid int value: 'many'"),
        ("gemm.py", "--layers tail", "invalid choice: 'tail'"),
        ("gemm.py", "--seed -1", "--seed: must be >= 0; got -1"),
        ("gpu_model.py", "--device gt710", "--device: invalid choice: 'gt710'"),
        ("checkpointing.py", "--embd 30 --heads 4", "--heads: must divide --embd 30; got 4"),
        ("checkpointing.py", "--every -1", "--every: must be a whole number >= 1; got '-1'"),
        ("checkpointing.py", "--threads 9999", "--threads: must be at most the cores"),
        ("distributed.py", "--ranks 0", "--ranks: must be a whole number >= 1; got '0'"),
        ("distributed.py", "--zero 4", "--zero: invalid choice: 4"),
        ("import_time.py", "--only tensorflow", "must be among pyggml, numpy, torch, jax"),
    ],
)
def test_bad_options(run: Run, script: str, args: str, message: str) -> None:
    done = run(script, *args.split())
    assert done.returncode == 2
    assert message in done.stderr
    assert not done.stdout


@pytest.mark.usefixtures("run")
def test_first_weights_are_those_of_the_model(tmp_path: Path) -> None:
    from harness.model import Spec, batch, parameters, read_weight, write_weights

    spec = Spec(layers=2, embd=8, heads=2, vocab=11, batch=3, seq=5, weights=str(tmp_path))
    write_weights(spec, tmp_path)
    config = GPT2Config(vocab_size=11, context=5, n_embd=8, n_layer=2, n_head=2)
    own = {name: p.shape for name, p in GPT2(config).named_parameters()}
    assert {name: shape for name, shape, _ in parameters(spec)} == own
    for name, shape in own.items():
        assert read_weight(spec, name).shape == shape
    ids, targets = batch(spec)
    assert ids.shape == targets.shape == (3, 5)
    assert np.array_equal(ids[:, 1:], targets[:, :-1])


@pytest.mark.usefixtures("run")
def test_losses_that_differ_are_found() -> None:
    from harness.training import compare

    def result(peer: str, first: float, last: float) -> dict[str, Any]:
        return {"peer": peer, "status": "ok", "first": first, "last": last}

    own = result("pyggml", 4.0, 3.0)
    missing = {"peer": "jax", "status": "not installed"}
    assert compare([own], "f32") == (True, "")
    agree, said = compare([own, result("torch", 4.002, 3.002), missing], "f32")
    assert agree
    assert said.startswith("losses agree: first within 5.0e-04, last within 6.7e-04 of pyggml's")
    for bad in (4.005, math.nan, math.inf):
        agree, said = compare([own, result("torch", 4.0, 3.0), result("jax", 4.0, bad)], "f32")
        assert not agree
        assert said.startswith("LOSSES DIFFER")
    assert compare([own, result("torch", 4.005, 3.0)], "bf16")[0]


@pytest.mark.usefixtures("run")
def test_rounds_are_interleaved() -> None:
    from harness.contenders import interleave

    class Fake:
        def __init__(self, name: str, lasts: int) -> None:
            self.name, self.status, self._left = name, "ok", lasts

        def ask(self, do: int) -> dict[str, Any] | None:
            if self._left == 0:
                self.status = "not supported: any more"
                return None
            self._left -= 1
            said.append(f"{self.name}{do}")
            return {"do": do}

    said: list[str] = []
    fakes: list[Any] = [Fake("A", 9), Fake("B", 1), Fake("C", 9)]
    answers = interleave(fakes, [{"do": i} for i in range(3)])
    assert said == ["A0", "B0", "C0", "A1", "C1", "A2", "C2"]
    assert [len(a) for a in answers] == [3, 1, 3]


@pytest.mark.slow
def test_peers_agree(run: Run) -> None:
    """All that are installed, both precisions: `lines_of` fails when losses differ."""
    pytest.importorskip("torch")
    for dtype in ("f32", "bf16"):
        options = [*MODEL, "--json", "--dtype", dtype, "--steps", "4"]
        found = lines_of(run("train_step.py", *options))
        ran = [r for r in found if r["status"] == "ok"]
        assert {"torch", "torch.compile"} <= {r["peer"] for r in ran}
        for result in ran:
            check_step(result)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_the_measured_peak_is_that_of_the_plan(run: Run) -> None:
    """A GPT-2 of 70 million parameters, each choice in a fresh process: within a twentieth."""
    sizes = "--layers 12 --embd 640 --heads 10 --vocab 16384 --batch 4 --seq 256".split()
    none, every = lines_of(
        run("checkpointing.py", "--every", "0", "1", *sizes, "--steps=2", "--threads=1", "--json")
    )
    assert every["loss"] == none["loss"]
    assert every["planned"] < 0.85 * none["planned"]
    for found in (none, every):
        assert found["measured"] == pytest.approx(found["planned"], rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["mlp", "bert", "t5"])
def test_small_presets_are_measured(run: Run, arch: str) -> None:
    done = run("models.py", "--seconds", "0.01", "--only", arch, "--most", "40")
    assert done.returncode == 0, done.stderr
    head, _, *rows = done.stdout.splitlines()
    assert head.split(" | ")[3:7] == ["parameters", "batch", "MiB planned", "MiB grown"]
    assert rows
    for row in rows:
        cells = [cell.replace(",", "") for cell in row.strip("| ").split(" | ")]
        name, _, _, parameters, _, planned, grown, speed = cells
        assert name == f"`{arch}`"
        # Weights, gradients and two moments of AdamW, and activations.
        assert float(planned) > 16 * int(parameters) / 2**20
        if grown != "–":  # a system that does not tell
            assert float(grown) > 0.5 * float(planned)
        assert float(speed.split()[0]) > 0


@pytest.mark.slow
def test_a_run_rewrites_its_rows_and_leaves_the_others(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docs" / "reference").mkdir(parents=True)
    (tmp_path / "benchmarks").mkdir()
    page = tmp_path / "docs" / "reference" / "presets.md"
    before = (ROOT / "docs" / "reference" / "presets.md").read_text("utf-8")
    page.write_text(before, "utf-8")
    for path in FOLDER.iterdir():
        (tmp_path / "benchmarks" / path.name).symlink_to(path)
    monkeypatch.setattr(sys.modules[__name__], "FOLDER", tmp_path / "benchmarks")
    done = run("models.py", "--write", "--seconds", "0.01", "--only", "mlp", "--most", "1")
    assert done.returncode == 0, done.stderr
    old, new = before.splitlines(), page.read_text("utf-8").splitlines()
    assert len(old) == len(new)
    changed = {a for a, b in zip(old, new, strict=True) if a != b}
    assert {line[:7] for line in changed} <= {"| `mlp`", "Measure"}
    assert done.stdout.count("| `mlp`") == 2
    assert all(line in new for line in done.stdout.splitlines() if line.startswith("| `mlp`"))
    page.write_text(before.replace("<!-- end of trained -->", ""), "utf-8")
    with pytest.raises(ValueError, match=r"presets\.md: must have '<!-- trained"):
        run("models.py", "--write", "--seconds", "0.01", "--only", "mlp", "--most", "0.1")


def test_a_time_of_nothing_is_refused(run: Run) -> None:
    done = run("models.py", "--seconds", "0")
    assert done.returncode == 2
    assert "--seconds must be above 0; got 0.0" in done.stderr


@pytest.mark.slow
def test_loops(run: Run) -> None:
    peers = ["pyggml", "pyggml.trainer", "pyggml.graph", "pyggml.loop"]
    found = lines_of(run("loops.py", *f"--only {','.join(peers)} --steps 2 --json".split()))
    each = [(r["layers"], r["peer"], r["status"]) for r in found]
    assert each == [(layers, peer, "ok") for layers in (4, 2) for peer in peers]
    for of_model in (found[:4], found[4:]):
        assert len({(r["first"], r["last"]) for r in of_model}) == 1
