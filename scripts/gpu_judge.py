# SPDX-License-Identifier: MIT
"""What a stage of scripts/gpu_check.sh has come to, by its logs."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from typing import Any

# timeout's own, and that of what it had to kill
TIMED_OUT = (124, 137)

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
        # and racecheck's hazards are warnings and errors
        reports = re.findall(
            r"^========= (?!COMPUTE-SANITIZER|Warning:(?! Race reported))(\S.*)$", log, re.M
        )
        totals = [r for r in reports if re.match(r"\w+ SUMMARY:", r)]
        reports = [r for r in reports if r not in totals]
        ended = [r for r in reports if _ENDED.search(r)]
        if late:
            reports = [r for r in reports if r not in ended]
        own = [
            r for r in reports if re.match(r"Internal Sanitizer Error|Error:(?! Race reported)", r)
        ]
        troubles += own
        counts = [
            int(m[1])
            for r in totals
            if (m := re.match(r"(?:ERROR|RACECHECK) SUMMARY: (\d+) (?:error|hazard)", r))
        ]
        found = [r for r in reports if r not in own and r not in ended]
        if counts:
            # that a process was ended may be one of them, if nothing else was told
            errors += max(counts) if found or not late else max(0, max(counts) - len(ended))
        else:
            errors += len(found)
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
    return ("failed", f"status {status}: {_error(log)}") if status else ("passed", "")


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
    if not told and (why := _rises(found["losses"])):
        told.append(why)
    return ("failed", "; ".join(told)) if told else ("passed", "")


def _rises(losses: list[float]) -> str:
    """That the last third of some losses is no lower than the first one; "" where it is."""
    third = len(losses) // 3 or 1
    first, last = sum(losses[:third]) / third, sum(losses[-third:]) / third
    if len(losses) < 2 or last < first:
        return ""
    return f"the losses have not fallen: {first:.4f} on average at first, {last:.4f} at last"


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


# of compilers, linkers, CMake, ninja and pip: the last line is that of whoever had called them
_ERROR = re.compile(
    r"\berror\s*:|: error |\bundefined reference to|CMake Error|: not found"
    r"|^\w*(?:Error|Exception)\b",
    re.I,
)


def _error(log: str) -> str:
    """The first line that tells of an error, or the last one."""
    lines = [line.strip() for line in _ESCAPES.sub("", log).splitlines() if line.strip()]
    found = next((i for i, line in enumerate(lines) if _ERROR.search(line)), -1)
    if not lines:
        return "it printed nothing"
    # CMake's says where, the next one what
    more = f" {lines[found + 1]}" if lines[found].endswith(":") and found + 1 < len(lines) else ""
    return (lines[found] + more)[:300]
