# SPDX-License-Identifier: MIT
"""Keeps what scripts/gpu_check.sh finds: a line for each stage, its log judged, the results.

    gpu_report.py STATE OUT open                           what was running when a call ended
    gpu_report.py STATE OUT begin STAGE LIMIT [OP,OP,...]  before a stage
    gpu_report.py STATE OUT end STAGE STATUS SECONDS       after it
    gpu_report.py STATE OUT skip STAGE REASON              in its place
    gpu_report.py STATE OUT show STAGE ...                 tables

STATE has stages.jsonl and STAGE.log; OUT gets results.json and logs.tar.gz after each of these.
The exit status of show is 1 if one of its stages failed, and 3 if none did, but one was cut short
or not started.
"""

from __future__ import annotations

import datetime
import io
import json
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
_CASE = re.compile(r"(?:^|\s)([A-Z][A-Z0-9_]*)\(((?:\w+=.*)?)\): ?(.*)$")
_SAID = re.compile(r"(?:^|\s)(OK|FAIL)\s*$")
_LATER = re.compile(r"^(?:.*\s)?(OK|FAIL)\s*$")


class Cases:
    """The cases of a log of test-backend-ops.

    Attributes:
        counts: op -> said -> how many; said is OK, FAIL, not supported or skipped.
        failed: the cases that failed.
        last: the case that the program was in when it ended; empty if it ended after one.
    """

    def __init__(self, log: str) -> None:
        self.counts: dict[str, Counter[str]] = {}
        self.failed: list[str] = []
        self.last = ""
        op = ""
        for line in _ESCAPES.sub("", log).splitlines():
            case = _CASE.search(line)
            if case:
                op, params, rest = case.groups()
                self.last = f"{op}({params})"
            elif self.last and not line.lstrip().startswith("Backend "):
                rest = line  # something was printed between a case and what it came to
            else:
                continue
            said = self._said(rest, bool(case))
            if said:
                self.counts.setdefault(op, Counter())[said] += 1
                if said == "FAIL":
                    self.failed.append(self.last)
                self.last = ""

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


def sanitizer_errors(log: str) -> int:
    """How many errors and hazards compute-sanitizer has told."""
    total = re.findall(r"^========= ERROR SUMMARY: (\d+) error", log, re.M)
    total += re.findall(r"^========= RACECHECK SUMMARY: (\d+) hazard", log, re.M)
    if total:
        return max(map(int, total))
    # cut short: a report begins with one space, what belongs to it with more
    return len(re.findall(r"^========= (?!COMPUTE-SANITIZER)\S", log, re.M))


def last_json(log: str) -> dict[str, Any] | None:
    """The last line that is a whole JSON object."""
    for line in reversed(log.splitlines()):
        if line.startswith("{"):
            try:
                found = json.loads(line)
            except json.JSONDecodeError:  # cut short while it was written
                continue
            if isinstance(found, dict):
                return found
    return None


def _listed(words: list[str], most: int = 8) -> str:
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")


def judge(line: dict[str, Any], log: str, sanitizer: str) -> tuple[str, str]:
    """The outcome of a stage that has ended, and the reason of one that has not passed.

    Args:
        line: the stage's, with status, seconds, limit and ops.
        log: what it printed.
        sanitizer: what compute-sanitizer wrote; empty of other stages.
    """
    status, limit = line["status"], line["limit"]
    late = status in TIMED_OUT and line["seconds"] >= limit
    if line.get("ops"):
        return _judge_cases(line["ops"], status, limit if late else 0, log, sanitizer)
    if line["stage"].startswith("train-") and line["stage"] != "train-weights":
        found = last_json(log) or {"steps": 0, "wanted_steps": "its"}
        steps = f"{found['steps']} of {found['wanted_steps']} steps"
        if late:
            return "cut short", f"{steps} within {limit} s"
        if status or found["steps"] != found["wanted_steps"]:
            return "failed", f"status {status} after {steps}: {_end(log)}"
        return "passed", ""
    if late:
        built = re.findall(r"\[(\d+/\d+)\]", log)
        why = f"took longer than its limit of {limit} s"
        if built:
            why += f"; {built[-1]} of the build was done and is kept: run it again"
        return "failed", why
    return ("failed", f"status {status}: {_end(log)}") if status else ("passed", "")


def _judge_cases(
    ops: list[str], status: int, late: int, log: str, sanitizer: str
) -> tuple[str, str]:
    cases, errors = Cases(log), sanitizer_errors(sanitizer)
    missing = cases.missing(ops)
    told = []
    if cases.failed:
        told.append(f"{len(cases.failed)} cases failed: {_listed(cases.failed, 3)}")
    if errors:
        told.append(f"compute-sanitizer told {errors} errors")
    if late:
        count = f"{cases.done} cases within {late} s"
        if missing:
            count += f"; none of {_listed(missing, len(missing))}"
        return ("failed" if told else "cut short"), "; ".join([*told, count])
    if status and cases.last:
        told.append(f"status {status} in {cases.last}")
    elif status and not told:
        told.append(f"status {status}: {_end(sanitizer or log)}")
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

    def log(self, name: str) -> str:
        path = self.state / name
        return path.read_text(errors="replace") if path.exists() else ""

    def write(self) -> None:
        """Write the lines, results.json and the archive of logs, each whole or not at all."""
        text = "".join(json.dumps(line) + "\n" for line in self.lines.values())
        _replace(self._file, text.encode())
        _replace(self.out / "results.json", (json.dumps(self.results(), indent=1) + "\n").encode())
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
                cases = Cases(log)
                found["cases"][name] = {
                    "counts": {op: dict(c) for op, c in sorted(cases.counts.items())},
                    "failed": cases.failed,
                    "no_case_passed": cases.missing(line["ops"]),
                }
            if name.startswith("sanitize-"):
                found["sanitizer_errors"][name] = sanitizer_errors(self.log(f"{name}.txt"))
            if name.startswith("train-") and (told := last_json(log)):
                found["training"][name] = told
        found["comparison"] = comparison(found["training"])
        return found


def comparison(training: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Each training of ours beside each of PyTorch's of the same precision."""
    found = []
    torch = [t for t in training.values() if t["framework"].startswith("torch")]
    for ours in (t for t in training.values() if t["framework"].startswith("pyggml")):
        for theirs in (t for t in torch if t["precision"] == ours["precision"]):
            pairs = zip(ours["losses"], theirs["losses"], strict=False)
            line = {
                "precision": ours["precision"],
                "ours": ours["framework"],
                "theirs": theirs["framework"],
                "speed": round(ours["tokens_per_s"] / theirs["tokens_per_s"], 4),
                "losses_differ_by": max(abs(a - b) for a, b in pairs),
                "is_warm": ours["is_warm"] and theirs["is_warm"],
            }
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
        print(
            f"{t['framework']:16} {t['precision']:5} {t['step_ms']:9.1f} ms"
            f" {t['tokens_per_s']:10.0f} tokens/s {used}"
            f"  loss {t['losses'][0]:.4f} -> {t['losses'][-1]:.4f}"
            f" in {t['steps']} of {t['wanted_steps']} steps{warm}"
        )
        if t.get("fallbacks"):
            print(f"  left to the CPU: {t['fallbacks']}")
    for c in found["comparison"]:
        memory = f", {c['memory']:.3f} x its memory" if "memory" in c else ""
        print(
            f"{c['precision']}: {c['ours']} beside {c['theirs']}: {c['speed']:.3f} x its speed"
            f"{memory}, losses differ by at most {c['losses_differ_by']:.1e}"
        )
    for name, t in found["training"].items():
        if "ops" in t:
            print(f"{name}, by op:")
        for op in t.get("ops", []):
            print(
                f"  {op['op']:24} {op['calls']:5} {1e3 * op['seconds']:9.2f} ms"
                f" {100 * op['share']:5.1f} %"
            )
    outcomes = {results.lines[n]["outcome"] for n in names if n in results.lines}
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
        line = {"stage": rest[0], "limit": int(rest[1]), "outcome": "running"}
        if rest[2:]:
            line["ops"] = rest[2].split(",")
        results.put(line)
    elif verb == "end":
        line = {**results.lines[rest[0]], "status": int(rest[1]), "seconds": int(rest[2])}
        outcome, why = judge(line, results.log(f"{rest[0]}.log"), results.log(f"{rest[0]}.txt"))
        results.put({**line, "outcome": outcome, "why": why})
        print(f"== {rest[0]}: {outcome}, {rest[2]} s" + (f": {why}" if why else ""))
    elif verb == "skip":
        results.put({"stage": rest[0], "outcome": "not started", "why": rest[1]})
        print(f"== {rest[0]}: not started: {rest[1]}")
    elif verb == "show":
        return show(results, rest)
    else:
        print(f"gpu_report: open, begin, end, skip or show; got {verb}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
