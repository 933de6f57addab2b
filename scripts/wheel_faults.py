# SPDX-License-Identifier: MIT
"""Damaged installs and hostile environments, for scripts/wheel_check.py."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

__all__ = ["check_faults"]

TRY = "import pyggml as pg; print((pg.ones(3, 4) @ pg.ones(4, 2)).numpy().sum())"
THREADS = """
import threading
found = []
def load():
    import pyggml as pg
    found.append(float((pg.ones(3, 4) @ pg.ones(4, 2)).numpy().sum()))
threads = [threading.Thread(target=load) for _ in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
print(found)
"""


def attempt(
    what: str, command: list[str], want: str, folder: Path, env: dict[str, str] | None = None
) -> None:
    """Run a command in a folder; its output must hold `want`, and no signal may end it."""
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=folder,
        env={**os.environ, **(env or {})},
    )  # fmt: skip
    text = (done.stdout + done.stderr).strip()
    last = text.splitlines()[-1] if text else ""
    good = done.returncode in (0, 1) and want in text
    print(f"{'OK  ' if good else 'FAIL'} {what}: {last[:160]}", flush=True)
    if not good:
        raise SystemExit(f"wheel_faults: {what}: exit {done.returncode}, expected {want!r}\n{text}")


def alone(before: str, start: list[str]) -> list[str]:
    """The command in a namespace of mounts of its own, after another one."""
    return ["unshare", "--mount", "sh", "-c", f"{before}{shlex.join(start)}"]


def check_faults(python: Path, work: Path, qemu: str = "") -> None:
    """Damage copies of the installed package, and load it in other environments.

    qemu-x86_64's path, if any, serves for a CPU that lacks a variant.
    """
    place = [str(python), "-c", "import pyggml; print(pyggml.__path__[0])"]
    package = Path(subprocess.check_output(place, text=True).strip())
    best = subprocess.check_output(
        [str(python), "-c", "from pyggml.backend.library import cpu_variant; print(cpu_variant())"],
        text=True,
    ).strip()
    start = [str(python), "-c", TRY]
    # A folder with libraries of our names, as another ggml's: in the way by each means.
    other = work / "other"
    other.mkdir(exist_ok=True)
    for path in (package / "lib").iterdir():
        (other / path.name).write_text("not a library")
        (other / path.name.replace("pyggml", "ggml")).write_text("not a library")
    attempt("LD_LIBRARY_PATH", start, "24.0", work, {"LD_LIBRARY_PATH": str(other)})
    attempt("current folder", start, "24.0", other)
    attempt("threads at once", [str(python), "-c", THREADS], "[24.0, 24.0, 24.0, 24.0]", work)
    attempt("no folder for temporary files", start, "24.0", work, {"TMPDIR": "/nowhere"})
    if os.geteuid() == 0 and shutil.which("unshare"):  # mounts that nothing else sees
        site = str(package.parent)
        frozen = f"mount --bind {site} {site} && mount -o remount,ro,bind {site} && "
        noexec = f"mount -t tmpfs -o noexec none {other} && TMPDIR={other} "
        check = f"! touch {site}/x 2>/dev/null && "
        attempt("read-only site-packages", alone(frozen + check, start), "24.0", work)
        attempt("temporary files cannot be run", alone(noexec, start), "24.0", work)
    attempt("unknown variant", start, "name a variant of this build: x64, ", work,
            {"PYGGML_CPU": "486"})  # fmt: skip
    if qemu:
        old = [qemu, "-cpu", "Nehalem", *start]
        attempt("a variant that the CPU lacks", old, "without ", work,
                {"PYGGML_CPU": "haswell", "OPENBLAS_CORETYPE": "Nehalem"})  # fmt: skip

    def damaged() -> Path:
        """A new copy of the package; returns the library that this CPU loads of it."""
        copy = work / "damaged" / "pyggml"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
        return copy / "lib" / f"libpyggml-cpu-{best}.so"

    env = {"PYTHONPATH": str(work / "damaged")}
    again = "`pip uninstall pyggml`"
    damaged().unlink()
    attempt("missing library", start, "must be in", work, env)
    path = damaged()
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    attempt("cut library", start, "got a part of", work, env)
    damaged().write_bytes(b"")
    attempt("empty library", start, "file too short", work, env)
    path = damaged()
    path.write_bytes(other_build(path.read_bytes()))
    attempt("library of another build", start, "it belongs to another build", work, env)
    path = damaged()
    for unused in path.parent.glob("libpyggml-cpu-*"):
        if unused != path:
            unused.write_bytes(unused.read_bytes()[: unused.stat().st_size // 2])
    attempt("cut libraries of other variants", start, "24.0", work, env)
    shutil.rmtree(damaged().parent)
    attempt("no folder of libraries", start, again, work, env)
    for name in ("libpyggml-base.so", "libpyggml.so"):
        path = damaged().with_name(name)
        path.write_bytes(other_build(path.read_bytes()))
        attempt(f"{name} of another build", start, "got another build's", work, env)
        path.unlink()
        attempt(f"missing {name}", start, again, work, env)
        path.mkdir()
        attempt(f"{name} is a folder", start, again, work, env)
        path.rmdir()
        path.symlink_to("nothing")
        attempt(f"{name} is a link to nothing", start, again, work, env)
    for name in ("_cpu.abi3.so", "_ggml.abi3.so"):
        path = damaged().parents[1] / name
        data = path.read_bytes()
        for kept in (8192, -4096):
            path.write_bytes(data[:kept])
            attempt(f"cut {name}", start, "got a part of", work, env)
        path.write_bytes(b"")
        attempt(f"empty {name}", start, again, work, env)
        path.unlink()
        attempt(f"missing {name}", start, again, work, env)
    archive = shutil.make_archive(str(work / "zipped"), "zip", package.parent, "pyggml")
    attempt("zipped package", start, "unzipped", work, {"PYTHONPATH": archive})


def other_build(data: bytes) -> bytes:
    """The library with another digit in its build, a SHA-256 in hexadecimal."""
    match = re.search(rb"(?<![0-9a-f])([0-9a-f]{64})\0", data)
    assert match is not None, "the library names no build"
    at = match.start(1)
    return data[:at] + (b"1" if data[at : at + 1] == b"0" else b"0") + data[at + 1 :]
