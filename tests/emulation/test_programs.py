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


# The message of a program by its seed, which is not shrunk.
MESSAGE = """
import sys
import pyggml as pg
from tests.fuzz.programs.__main__ import failure
from tests.fuzz.programs.draw import draw

pg.set_default_device(sys.argv[1])
print(failure(draw(int(sys.argv[2]))))
"""


def python(library: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the devices that the library adds."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "GGML_BACKEND_PATH": str(library), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=3000,
        check=False,
    )


def run(library: Path, device: str, count: int, first: int = 0) -> dict[str, int]:
    """Run programs on the device that the library adds; return what they counted."""
    numbers = (str(count), str(first))
    done = python(library, "-m", "tests.fuzz.programs", *numbers, "--device", device)
    seed = [line for line in done.stderr.splitlines() if line.startswith("seed ")][-1:]
    assert done.returncode == 0, f"{seed}\n{done.stdout[-8000:]}\n{done.stderr[-4000:]}"
    counts: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return counts


def metal_folder(request: pytest.FixtureRequest) -> Path:
    """Return where objects of the emulated Metal backend are kept."""
    assert request.config.cache is not None
    return Path(request.config.cache.mkdir("emulated-metal"))


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


def test_programs_on_metal(request: pytest.FixtureRequest) -> None:
    """Likewise on Metal, with ggml's kernels and its fused rows of nodes."""
    pytest.importorskip("torch", reason="compares with torch, which is not installed")
    counts = run(build(metal_folder(request)), "metal", COUNT)
    assert counts["programs"] == COUNT
    assert counts["compared with torch"] > 0.6 * COUNT
    assert counts["nodes on the CPU"] < 0.01 * counts["nodes"]


def test_memory_in_the_order_of_the_nodes_on_metal(request: pytest.FixtureRequest) -> None:
    """What a fused row reads is kept until its end: its place in the new order, not in the old."""
    text = (TREE / "src" / "ggml-metal" / "ggml-metal.cpp").read_text()
    order = "    ggml_metal_graph_optimize(ctx, cgraph);\n"
    keep = "    ggml_metal_fusion_add_alloc_deps("
    assert text.index(order) < text.index(keep)
    end = "}\n\nstatic void ggml_backend_metal_set_n_cb"
    changed = text.replace(order, "").replace(end, order + end)
    folder = metal_folder(request)
    libraries = build(folder), build(folder, changed={"ggml-metal.cpp": changed})
    right, wrong = (python(each, "-c", MESSAGE, "metal", "6") for each in libraries)
    assert (right.returncode, right.stdout) == (0, "\n"), right.stderr
    assert "computed again: loss 0 has other bits" in wrong.stdout, wrong.stderr
