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
import sys
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

from gpu_judge import Cases, is_grad, judge, sanitizer_errors, training_of

ARCHIVE_BYTES = 15 * 2**20


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
    """Each training of ours beside each of PyTorch's of the same model and precision."""
    found = []
    torch = {k: t for k, t in training.items() if t["framework"].startswith("torch")}
    for stage, ours in training.items():
        if not ours["framework"].startswith("pyggml"):
            continue
        for beside, theirs in torch.items():
            if any(theirs.get(k) != ours.get(k) for k in ("precision", "model", "size")):
                continue
            pairs = list(zip(ours["losses"], theirs["losses"], strict=False))
            are_finite = all(None not in pair for pair in pairs)
            apart = max(abs(a - b) for a, b in pairs) if are_finite else None
            told = [b for _, b in pairs if b is not None]
            moved = max(told) - min(told) if told else 0.0
            line = {
                "stage": stage,
                "beside": beside,
                "precision": ours["precision"],
                "ours": ours["framework"],
                "theirs": theirs["framework"],
                "speed": round(ours["tokens_per_s"] / theirs["tokens_per_s"], 4),
                "losses_differ_by": apart,
                # an untrained model, whose losses stay as they are, would be as near
                "is_apart": len(pairs) > 1 and (apart is None or apart >= moved),
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
        said += ", as much as the training has moved them" if c["is_apart"] and apart else ""
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
    is_apart = any(
        c["is_apart"] and {c["stage"], c["beside"]} & {*names} for c in found["comparison"]
    )
    if "failed" in outcomes or is_apart:
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
