# SPDX-License-Identifier: MIT
"""Keeps what scripts/gpu_check.sh finds: a line for each stage, its log judged, the results.

    gpu_report.py STATE OUT open                           what was running when a call ended
    gpu_report.py STATE OUT begin STAGE LIMIT [OP,OP,...]  before a stage
    gpu_report.py STATE OUT end STAGE STATUS SECONDS       after it
    gpu_report.py STATE OUT skip STAGE REASON              in its place
    gpu_report.py STATE OUT built STAGE                    skips it, status 1, after a failed build
    gpu_report.py STATE OUT show STAGE ...                 tables

STATE has stages.jsonl and STAGE.log; OUT gets results.json and logs.tar.gz after each of these.
The exit status of show is 1 if one of its stages failed, and 3 if none did, but one was cut short
or not started.
"""

from __future__ import annotations

import datetime
import io
import json
import math
import re
import sys
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

# timeout's own, and that of what it had to kill
TIMED_OUT = (124, 137)
ARCHIVE_BYTES = 15 * 2**20

_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_CASE = re.compile(r"(?:^|\s)([A-Z][A-Z0-9_]*)\((.*)\): ?(.*)$")
_SAID = re.compile(r"(?:^|\s)(OK|FAIL)\s*$")
_LATER = re.compile(r"^(?:.*\s)?(OK|FAIL)\s*$")
# the lines that scripts/gpu_check.sh adds
_ALONE = re.compile(r"^== ([A-Z0-9_]+) by itself$")
_DIED = re.compile(r"^== died with status (\d+)$", re.M)
# what ggml, the C library and the shell say of a program that ends itself
_CAUSE = re.compile(
    r"(?:CUDA|cuBLAS) error|GGML_(?:ASSERT|ABORT)|\.(?:cpp|cuh?|[ch]):\d+: |terminate called"
    r"|Assertion .* failed|Segmentation fault|Fatal Python error"
)


class Cases:
    """The cases of a log of test-backend-ops.

    Of a gradient, each case has two lines: the program writes "OK" as it begins it, and again, or
    something else, when it is done.

    Args:
        log: what the program printed; of an op that ran by itself, what came of that counts.
        grad: whether it was asked for gradients.

    Attributes:
        counts: op -> said -> how many; said is OK, FAIL, not supported or skipped.
        failed: the cases that failed.
        begun: the case of a gradient that has no end; empty if there is none.
    """

    def __init__(self, log: str, grad: bool = False) -> None:
        self.counts: dict[str, Counter[str]] = {}
        self.failed: list[str] = []
        self.begun = ""
        self._ended = ""
        op = case = ""
        for line in _ESCAPES.sub("", log).splitlines():
            if alone := _ALONE.match(line):
                op, case, self.begun = alone[1], "", ""
                self.counts.pop(op, None)
                self.failed = [each for each in self.failed if not each.startswith(f"{op}(")]
                continue
            if found := _CASE.search(line):
                op, params, rest = found.groups()
                case = f"{op}({params})"
            elif case and not re.match(r"\s*(Backend |\d+/\d+ )", line):
                rest = line  # something was printed between a case and what it came to
            else:
                case = ""
                continue
            if said := self._said(rest, bool(found)):
                self._add(op, case, said, grad)
                case = ""

    def _add(self, op: str, case: str, said: str, grad: bool) -> None:
        if grad and said == "OK" and self.begun != case:
            self.begun, self._ended = case, ""
            return
        self.begun = ""
        if grad and said == "FAIL" and self._ended == case:
            return  # each wrong gradient of a case has a line, and then the case
        self._ended = case
        self.counts.setdefault(op, Counter())[said] += 1
        if said == "FAIL":
            self.failed.append(case)

    @staticmethod
    def _said(rest: str, same_line: bool) -> str:
        if same_line and rest.startswith(("not supported", "skipping")):
            return "not supported" if rest.startswith("not") else "skipped"
        found = (_SAID if same_line else _LATER).search(rest)
        return found[1] if found else ""

    @property
    def done(self) -> int:
        """How many ran to their end."""
        return sum(c["OK"] + c["FAIL"] for c in self.counts.values())

    def missing(self, ops: list[str]) -> list[str]:
        """The ops of which no case ran."""
        return [op for op in ops if not self.counts.get(op, Counter())["OK"]]


def is_grad(stage: str) -> bool:
    """Whether the cases of a stage are gradients."""
    return stage == "grad" or stage.endswith("-grad")


def cause(log: str) -> str:
    """The first line that tells why a program has ended itself, or its last one."""
    lines = [line.strip() for line in _ESCAPES.sub("", log).splitlines() if line.strip()]
    lines = [line for line in lines if not _DIED.match(line)]
    for i, line in enumerate(lines):
        if _CAUSE.search(line):
            where = lines[i + 1] if i + 1 < len(lines) and "in function" in lines[i + 1] else ""
            return (line + (f" ({where})" if where else ""))[:300]
    return lines[-1][:300] if lines else "it printed nothing"


def deaths(log: str, grad: bool = False) -> list[str]:
    """Each program of a log that ended before its last line: of which op, how, and why."""
    parts = re.split(_ALONE.pattern, _ESCAPES.sub("", log), flags=re.M)
    told = []
    for op, part in zip(["", *parts[1::2]], parts[::2], strict=True):
        if died := _DIED.search(part):
            begun = Cases(part[: died.start()], grad).begun
            what = f"{op} by itself: " if op else ""
            what += f"status {died[1]}" + (f" in {begun}" if begun else "")
            told.append(f"{what}: {cause(part[: died.start()])}")
    return told


# of a process that was ended, as one that is cut short is
_ENDED = re.compile(
    r"process didn't terminate successfully|Target application returned an error"
    r"|Target application terminated before first instrumented API call"
)


def sanitizer_errors(logs: list[str], late: bool = False) -> tuple[int, list[str]]:
    """How many errors and hazards compute-sanitizer has told, and what kept it from looking.

    Args:
        logs: what it wrote of each program.
        late: whether it was cut short: it need not have come to its summary then.
    """
    errors, troubles = 0, []
    for log in logs or [""]:
        # a report begins with one space, what belongs to it with more
        reports = re.findall(r"^========= (?!COMPUTE-SANITIZER|Warning:)(\S.*)$", log, re.M)
        totals = [r for r in reports if re.match(r"\w+ SUMMARY:", r)]
        reports = [r for r in reports if r not in totals]
        ended = [r for r in reports if _ENDED.search(r)]
        if late:
            reports = [r for r in reports if r not in ended]
        own = [r for r in reports if re.match(r"Internal Sanitizer Error|Error:", r)]
        troubles += own
        counts = [
            int(m[1])
            for r in totals
            if (m := re.match(r"(?:ERROR|RACECHECK) SUMMARY: (\d+) (?:error|hazard)", r))
        ]
        if counts:
            # that a process was ended may be one of them
            errors += max(0, max(counts) - (len(ended) if late else 0))
        else:
            errors += len([r for r in reports if r not in own and r not in ended])
            if not late:
                troubles.append("no summary: nothing is known to have been checked")
    return errors, troubles


TRAINING = {"framework", "precision", "steps", "wanted_steps", "losses", "is_warm", "step_ms"}
TRAINING |= {"tokens_per_s"}


def training_of(log: str) -> dict[str, Any] | None:
    """What a training told last; a number that is not finite is None."""
    for line in reversed(log.splitlines()):
        if line.startswith("{"):
            try:
                found = json.loads(line, parse_constant=lambda _: None)
            except json.JSONDecodeError:  # cut short while it was written
                continue
            if isinstance(found, dict) and found.keys() >= TRAINING:
                return dict(_finite(found))
    return None


def _finite(value: Any) -> Any:
    """`value` with None for each number that JSON cannot hold, such as one read from 1e999."""
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _listed(words: list[str], most: int = 8) -> str:
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")


def judge(line: dict[str, Any], log: str, sanitizer: list[str]) -> tuple[str, str]:
    """The outcome of a stage that has ended, and the reason of one that has not passed.

    Args:
        line: the stage's, with status, seconds, limit and ops.
        log: what it printed.
        sanitizer: what compute-sanitizer wrote of each program; empty of other stages.
    """
    status, limit = line["status"], line["limit"]
    late = status in TIMED_OUT and line["seconds"] >= limit
    if line.get("ops"):
        return _judge_cases(line, limit if late else 0, log, sanitizer)
    if line["stage"].startswith("train-") and line["stage"] != "train-weights":
        return _judge_training(status, limit if late else 0, log)
    if late:
        built = re.findall(r"\[(\d+/\d+)\]", log)
        why = f"took longer than its limit of {limit} s"
        if built:
            why += f"; {built[-1]} of the build was done and is kept: run it again"
        return "failed", why
    return ("failed", f"status {status}: {_end(log)}") if status else ("passed", "")


def _judge_training(status: int, late: int, log: str) -> tuple[str, str]:
    found = training_of(log) or {"steps": 0, "wanted_steps": "its", "losses": []}
    steps = f"{found['steps']} of {found['wanted_steps']} steps"
    told = []
    if bad := [i for i, loss in enumerate(found["losses"], 1) if loss is None]:
        told.append(f"{len(bad)} losses are not finite, the first that of step {bad[0]}")
    if found.get("fallbacks"):
        told.append(
            f"left to the CPU: {_listed([f'{k} x {n}' for k, n in found['fallbacks'].items()])}"
        )
    if late:
        return ("failed" if told else "cut short"), "; ".join([*told, f"{steps} within {late} s"])
    if status or found["steps"] != found["wanted_steps"]:
        told.append(f"status {status} after {steps}: {cause(log)}")
    return ("failed", "; ".join(told)) if told else ("passed", "")


def _judge_cases(
    line: dict[str, Any], late: int, log: str, sanitizer: list[str]
) -> tuple[str, str]:
    ops, status, grad = line["ops"], line["status"], is_grad(line["stage"])
    cases = Cases(log, grad)
    missing = cases.missing(ops)
    told = []
    if cases.failed:
        told.append(f"{len(cases.failed)} cases failed: {_listed(cases.failed, 3)}")
    if line["stage"].startswith("sanitize-"):
        errors, troubles = sanitizer_errors(sanitizer, bool(late))
        if errors:
            told.append(f"compute-sanitizer told {errors} errors")
        if troubles:
            told.append(f"compute-sanitizer: {_listed(list(dict.fromkeys(troubles)), 3)}")
    told += deaths(log, grad)
    if late:
        count = f"{cases.done} cases within {late} s"
        if missing:
            count += f"; none of {_listed(missing, len(missing))}"
        return ("failed" if told else "cut short"), "; ".join([*told, count])
    if status and not told:
        told.append(f"status {status}: {cause(log)}")
    if missing:
        told.append(f"no case passed of {_listed(missing, len(missing))}")
    return ("failed", "; ".join(told)) if told else ("passed", "")


def _end(log: str) -> str:
    lines = [line.strip() for line in _ESCAPES.sub("", log).splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it printed nothing"


class Results:
    """The stages' lines and what is written of them."""

    def __init__(self, state: Path, out: Path) -> None:
        self.state, self.out = state, out
        state.mkdir(parents=True, exist_ok=True)
        out.mkdir(parents=True, exist_ok=True)
        self._file = state / "stages.jsonl"
        text = self._file.read_text() if self._file.exists() else ""
        self.lines: dict[str, dict[str, Any]] = {}
        for line in map(json.loads, text.splitlines()):
            self.lines[line["stage"]] = line

    def put(self, line: dict[str, Any]) -> None:
        """Add a stage's line, or replace it: the last one is the one run last."""
        self.lines.pop(line["stage"], None)
        now = datetime.datetime.now(datetime.timezone.utc)
        self.lines[line["stage"]] = {**line, "when": now.isoformat(timespec="seconds")}
        self.write()

    def begin(self, line: dict[str, Any]) -> None:
        """Put the line of a stage that begins, and remove what it has left the last time."""
        for path in self.state.glob(f"{line['stage']}.*"):
            path.unlink()
        self.put({**line, "outcome": "running"})

    def skip(self, stage: str, why: str) -> None:
        """Put the line of a stage that is not started; one that it has from earlier stays."""
        earlier = self.lines.get(stage, {"outcome": "not started"})
        if earlier["outcome"] == "not started":
            self.put({"stage": stage, "outcome": "not started", "why": why})
        else:
            # where it is: by its place it is older than the build, or is not
            earlier["not_started_again"] = why
            self.write()

    def sanitizer(self, stage: str) -> list[str]:
        """What compute-sanitizer wrote of each program of a stage."""
        paths = self.state.glob(f"{stage}.*txt") if stage.startswith("sanitize-") else ()
        return [self.log(path.name) for path in sorted(paths)]

    def log(self, name: str) -> str:
        path = self.state / name
        return path.read_text(errors="replace") if path.exists() else ""

    def write(self) -> None:
        """Write the lines, results.json and the archive of logs, each whole or not at all."""
        text = "".join(json.dumps(line) + "\n" for line in self.lines.values())
        _replace(self._file, text.encode())
        found = json.dumps(self.results(), indent=1, allow_nan=False) + "\n"
        _replace(self.out / "results.json", found.encode())
        _replace(self.out / "logs.tar.gz", archive(self.state))

    def results(self) -> dict[str, Any]:
        """All that is known as one object."""
        built = self.lines.get("build", {}).get("when", "")
        order = list(self.lines)
        found: dict[str, Any] = {
            "environment": self.log("environment.log")[-8000:],
            "stages": [],
            "cases": {},
            "sanitizer_errors": {},
            "training": {},
        }
        for name, line in self.lines.items():
            # of another build than the last one
            old = built and "build" in order and order.index(name) < order.index("build")
            mark = {"is_older_than_build": True} if old and name != "environment" else {}
            found["stages"].append({k: v for k, v in line.items() if k != "ops"} | mark)
            log = self.log(f"{name}.log")
            if line.get("ops"):
                cases = Cases(log, is_grad(name))
                found["cases"][name] = {
                    "counts": {op: dict(c) for op, c in sorted(cases.counts.items())},
                    "failed": cases.failed,
                    "no_case_passed": cases.missing(line["ops"]),
                }
            if name.startswith("sanitize-"):
                late = line["outcome"] in ("running", "cut short")
                errors, troubles = sanitizer_errors(self.sanitizer(name), late)
                found["sanitizer_errors"][name] = {"count": errors, "troubles": troubles}
            if name.startswith("train-") and (told := training_of(log)):
                found["training"][name] = told | mark
        found["comparison"] = comparison(found["training"])
        return found


def comparison(training: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Each training of ours beside each of PyTorch's of the same precision."""
    found = []
    torch = [t for t in training.values() if t["framework"].startswith("torch")]
    for ours in (t for t in training.values() if t["framework"].startswith("pyggml")):
        for theirs in (t for t in torch if t["precision"] == ours["precision"]):
            pairs = list(zip(ours["losses"], theirs["losses"], strict=False))
            are_finite = all(None not in pair for pair in pairs)
            line = {
                "precision": ours["precision"],
                "ours": ours["framework"],
                "theirs": theirs["framework"],
                "speed": round(ours["tokens_per_s"] / theirs["tokens_per_s"], 4),
                "losses_differ_by": max(abs(a - b) for a, b in pairs) if are_finite else None,
                "is_warm": ours["is_warm"] and theirs["is_warm"],
            }
            if ours.get("is_older_than_build"):
                line["is_older_than_build"] = True
            if ours.get("memory_used_bytes") and theirs.get("memory_used_bytes"):
                line["memory"] = round(ours["memory_used_bytes"] / theirs["memory_used_bytes"], 4)
            found.append(line)
    return found


def archive(state: Path, most: int = ARCHIVE_BYTES) -> bytes:
    """The files of `state`, of long ones the end, as few bytes of it as `most` asks for."""
    cap = 4 * 2**20
    while True:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as tar:
            for path in sorted(p for p in state.iterdir() if p.is_file()):
                content = path.read_bytes()
                info = tarfile.TarInfo(path.name)
                content = content[-cap:] if path.suffix in (".log", ".txt") else content
                if len(content) > cap:  # half a trace is none
                    continue
                info.size = len(content)
                info.mtime = int(path.stat().st_mtime)
                tar.addfile(info, io.BytesIO(content))
        if packed.tell() <= most or cap < 2:
            return packed.getvalue()
        cap //= 2


def _replace(path: Path, content: bytes) -> None:
    part = path.with_name(path.name + ".part")
    part.write_bytes(content)
    part.replace(path)


def show(results: Results, names: list[str]) -> int:
    """Print tables; the exit status is that of the stages named."""
    found = results.results()
    print("\n== results")
    for line in found["stages"]:
        old = " (before the last build)" if line.get("is_older_than_build") else ""
        why = f": {line['why']}" if line.get("why") else ""
        if again := line.get("not_started_again"):
            why += f" (from an earlier call; not started again: {again})"
        print(f"{line['outcome']:12} {line['stage']:28} {line.get('seconds', 0):4} s{old}{why}")
    for name, cases in found["cases"].items():
        said = Counter()
        for counts in cases["counts"].values():
            said.update(counts)
        told = ", ".join(f"{n} {what}" for what, n in sorted(said.items())) or "no case"
        print(f"{name}: {len(cases['counts'])} ops, {told}")
    for t in found["training"].values():
        used = f"{t['memory_used_bytes'] / 2**20:8.0f} MiB" if "memory_used_bytes" in t else ""
        warm = "" if t["is_warm"] else " (not warm)"
        warm += " (before the last build)" if t.get("is_older_than_build") else ""
        first, last = (
            "not finite" if x is None else f"{x:.4f}" for x in (t["losses"][0], t["losses"][-1])
        )
        print(
            f"{t['framework']:16} {t['precision']:5} {t['step_ms']:9.1f} ms"
            f" {t['tokens_per_s']:10.0f} tokens/s {used}"
            f"  loss {first} -> {last}"
            f" in {t['steps']} of {t['wanted_steps']} steps{warm}"
        )
        if t.get("fallbacks"):
            print(f"  left to the CPU: {t['fallbacks']}")
    for c in found["comparison"]:
        memory = f", {c['memory']:.3f} x its memory" if "memory" in c else ""
        apart = c["losses_differ_by"]
        said = "are not all finite" if apart is None else f"differ by at most {apart:.1e}"
        said += " (before the last build)" if c.get("is_older_than_build") else ""
        print(
            f"{c['precision']}: {c['ours']} beside {c['theirs']}: {c['speed']:.3f} x its speed"
            f"{memory}, losses {said}"
        )
    for name, t in found["training"].items():
        if "ops" in t:
            print(f"{name}, by op:")
        for op in t.get("ops", []):
            print(
                f"  {op['op']:24} {op['calls']:5} {1e3 * op['seconds']:9.2f} ms"
                f" {100 * op['share']:5.1f} %"
            )
    lines = [results.lines[n] for n in names if n in results.lines]
    # of this call: what an earlier one has found is kept, but was not found by this one
    outcomes = {"not started" if "not_started_again" in x else x["outcome"] for x in lines}
    if "failed" in outcomes:
        return 1
    return 3 if outcomes - {"passed"} else 0


def main(argv: list[str]) -> int:
    if len(argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    results = Results(Path(argv[0]), Path(argv[1]))
    verb, rest = argv[2], argv[3:]
    if verb == "open":
        for line in list(results.lines.values()):
            if line["outcome"] == "running":
                why = "the call ended while it ran"
                results.put({**line, "outcome": "cut short", "why": why})
        results.write()
    elif verb == "begin":
        line = {"stage": rest[0], "limit": int(rest[1])}
        if rest[2:]:
            line["ops"] = rest[2].split(",")
        results.begin(line)
    elif verb == "end":
        line = {**results.lines[rest[0]], "status": int(rest[1]), "seconds": int(rest[2])}
        outcome, why = judge(line, results.log(f"{rest[0]}.log"), results.sanitizer(rest[0]))
        results.put({**line, "outcome": outcome, "why": why})
        print(f"== {rest[0]}: {outcome}, {rest[2]} s" + (f": {why}" if why else ""))
    elif verb == "skip":
        results.skip(rest[0], rest[1])
        print(f"== {rest[0]}: not started: {rest[1]}")
    elif verb == "built":
        # a program that an earlier build has left may be there
        built = results.lines.get("build", {"outcome": "passed"})["outcome"]
        if built != "passed":
            why = "the build was not started" if built == "not started" else "the build failed"
            results.skip(rest[0], why)
            print(f"== {rest[0]}: not started: {why}")
            return 1
    elif verb == "show":
        return show(results, rest)
    else:
        print(f"gpu_report: open, begin, end, skip, built or show; got {verb}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
