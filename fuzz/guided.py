# SPDX-License-Identifier: MIT
"""Fuzz a Python reader: `python fuzz/guided.py NAME CORPUS FOUND SECONDS`.

Atheris (`pip install atheris`) makes the bytes, guided by the branches of Python code that they
reach.
"""

from __future__ import annotations

import gc
import importlib
import sys
import tempfile
from pathlib import Path
from types import FunctionType

REGRESSIONS = Path(__file__).resolve().parent / "regressions"
# What guides: the package, and readers in Python that it hands files to.
SEEN = ("pyggml", "PIL.", "csv", "gzip", "json.")


def main(name: str, corpus: Path, found: Path, seconds: int) -> int:
    """Run the fuzzer of one reader."""
    import atheris

    readers = importlib.import_module("readers")
    folder = Path(tempfile.mkdtemp(prefix="pyggml-fuzz-"))
    readers.prepare(name, corpus, folder)
    seeds = corpus / f"python-{name}"
    for seed in seeds.glob("seed-*"):
        readers.read(name, seed.read_bytes(), folder)  # what is imported only now is seen as well
    # Not atheris.instrument_imports: it sees nothing of a package that is installed editable.
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and (each.__module__ or "").startswith(SEEN):
            atheris.instrument_func(each)
    readers.limit()
    regressions = REGRESSIONS / f"python-{name}"
    found.mkdir(parents=True, exist_ok=True)
    arguments = [
        *(sys.argv[0], f"-max_total_time={seconds}", "-timeout=60", "-rss_limit_mb=4096"),
        *("-print_final_stats=1", f"-artifact_prefix={found}/python-{name}-", "-max_len=20000"),
        *(str(each) for each in (seeds, regressions) if each.exists()),
    ]
    atheris.Setup(arguments, lambda data: readers.read(name, data, folder) and None)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])))
