# SPDX-License-Identifier: MIT
"""Random programs (tests/fuzz/programs) on the emulated devices, compared with PyTorch in float64.

By hand, after `python -m tests.emulation.build --backend`, which prints the library's path:

    GGML_BACKEND_PATH=LIBRARY python -m tests.fuzz.programs 100 --device cuda:0
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .build import REPOSITORY, Builder, compiler, default_cache, default_tree
from .metal.build import build

TREE = default_tree()
COUNT = 150

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="fibers and faults as Linux has them"),
    pytest.mark.skipif(compiler() is None, reason="no C++ compiler is here"),
    pytest.mark.skipif(
        not (TREE / "src" / "ggml-cuda" / "fattn-back.cu").exists(),
        reason="no patched ggml",
    ),
]


def run(library: Path, device: str, count: int, first: int = 0) -> dict[str, int]:
    """Run programs on the device that the library adds; return what they counted."""
    command = [sys.executable, "-m", "tests.fuzz.programs", str(count), str(first)]
    done = subprocess.run(
        [*command, "--device", device],
        cwd=REPOSITORY,
        env={**os.environ, "GGML_BACKEND_PATH": str(library), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=3000,
        check=False,
    )
    seed = [line for line in done.stderr.splitlines() if line.startswith("seed ")][-1:]
    assert done.returncode == 0, f"{seed}\n{done.stdout[-8000:]}\n{done.stderr[-4000:]}"
    counts: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return counts


def test_programs_on_cuda() -> None:
    """Eager, as a graph, compiled, computed again, and with updates: the same results, on CUDA0."""
    pytest.importorskip("torch", reason="compares with torch, which is not installed")
    counts = run(Builder(TREE, default_cache()).backend(), "cuda:0", COUNT)
    assert counts["programs"] == COUNT
    assert counts["compared with torch"] > 0.6 * COUNT
    # DIAG_MASK_ZERO, and the gradient of a broadcast RMS norm: the device lacks them
    assert counts["nodes on the CPU"] < 0.01 * counts["nodes"]


def test_a_product_with_a_row_of_odd_stride_on_cuda() -> None:
    """Such as `mul_mat(w, x[:, :4])` of x (2, 5): not by the kernel that reads pairs."""
    run(Builder(TREE, default_cache()).backend(), "cuda:0", 1, first=206)


@pytest.mark.xfail(strict=True, raises=AssertionError, reason="see the docstring")
def test_programs_on_metal(request: pytest.FixtureRequest) -> None:
    """ggml's kernels take four elements at once by the extent, wherever a view begins.

    Behind that, a norm and a scale that are one kernel divide by 0 for an address that is not used,
    and kernels of `tri` and `solve_tri` are not among those that are built.
    """
    assert request.config.cache is not None
    library = build(Path(request.config.cache.mkdir("emulated-metal")))
    run(library, "metal", 1)
