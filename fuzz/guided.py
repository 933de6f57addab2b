# SPDX-License-Identifier: MIT
"""Fuzz a Python reader: `python fuzz/guided.py NAME CORPUS FOUND SECONDS`.

Atheris (`pip install atheris`) makes the bytes, guided by the branches of Python code that they
reach.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import sys
import tempfile
from pathlib import Path
from types import FunctionType

REGRESSIONS = Path(__file__).resolve().parent / "regressions"


def main(name: str, corpus: Path, found: Path, seconds: int) -> int:
    """Run the fuzzer of one reader."""
    if importlib.util.find_spec("atheris") is None:
        print(f"fuzz: {name} is left out: pip install atheris")
        return 0
    import atheris

    readers = importlib.import_module("readers")
    # Not atheris.instrument_imports: it sees nothing of a package that is installed editable.
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and (each.__module__ or "").startswith("pyggml"):
            atheris.instrument_func(each)
    readers.limit()
    folder = Path(tempfile.mkdtemp(prefix="pyggml-fuzz-"))
    if name == "state":
        weights = corpus / "made/checkpoints/step-000003"
        for file in weights.iterdir():
            os.link(file, folder / file.name)
        (folder / "state.json").unlink()
    seeds = corpus / f"python-{name}"
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
