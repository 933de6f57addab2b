# SPDX-License-Identifier: MIT
"""Traces a training step of GPT-2 on a CUDA or Metal device that computes nothing.

Its own process, because the backend reads its environment once: `read` starts one and returns what
the second step asked the device for, when CUDA's graphs are captured as in every later step.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
# The passes that exist for the sake of kernels: without them and ggml's fusions each op is computed
# by itself, from operands of its own.
PASSES = ("round_once", "leaves_first", "sums_last")


def library(metal: bool) -> Path:
    """Build the emulated backend that notes launches; return its path.

    Raises:
        RuntimeError: no C++ compiler or no patched ggml is here.
    """
    sys.path.insert(0, str(ROOT))
    try:
        from tests.emulation.build import TRAINING, Builder, compiler, default_cache, default_tree
        from tests.emulation.metal.build import build_traced
    finally:
        sys.path.remove(str(ROOT))
    tree = default_tree()
    if sys.platform != "linux" or compiler() is None or not (tree / "src" / "ggml-cuda").is_dir():
        raise RuntimeError(
            "gpu_model: expected Linux, a C++ compiler and the patched ggml in vendor/ggml (run"
            f" `python scripts/vendor.py sync`); got {sys.platform}, {compiler()} and {tree}"
        )
    if metal:
        return build_traced(default_cache() / "metal")
    return Builder(tree, default_cache()).backend(TRAINING, tiles=False)


def read(
    spec: dict[str, Any], device: dict[str, Any], fused: bool, passes: bool
) -> list[dict[str, Any]]:
    """Trace a step in a process of its own.

    Args:
        spec: fields of harness.model.Spec.
        device: "cc", the compute capability (90) or 0 for Metal, "sms", "shared_kib" and
            "memory_gib" of the emulated GPU.
        fused: let the backend compute chains of ops in one kernel.
        passes: rewrite the graph by `PASSES`.

    Returns:
        The events in their order; see trace.hpp in tests/emulation/cuda and in metal.
    """
    metal = not device["cc"]
    job = {"spec": spec, "library": str(library(metal)), "passes": passes, "metal": metal}
    with tempfile.TemporaryDirectory(prefix="pyggml-trace-") as folder:
        path = Path(folder) / "trace"
        environment = {
            **os.environ,
            "PYGGML_EMULATED_TRACE": str(path),
            "PYGGML_EMULATED_CC": str(device["cc"]),
            "PYGGML_EMULATED_SMS": str(device["sms"]),
            "PYGGML_EMULATED_SHARED_KIB": str(device["shared_kib"]),
            "PYGGML_EMULATED_MEMORY_GIB": str(device["memory_gib"]),
            "GGML_CUDA_DISABLE_FUSION": "0" if fused else "1",
            **({} if fused else {"GGML_METAL_FUSION_DISABLE": "1"}),
        }
        command = [sys.executable, __file__, json.dumps(job)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"gpu_model: the traced step failed:\n{done.stderr[-3000:]}")
        start, end = json.loads(done.stdout.splitlines()[-1])
        with path.open("rb") as file:
            file.seek(start)
            return [json.loads(line) for line in file.read(end - start).splitlines()]


def main() -> int:
    job = json.loads(sys.argv[1])
    spec = job["spec"]

    import pyggml as pg
    from pyggml import lib, optim
    from pyggml.graph import graph as graphs
    from pyggml.models import GPT2, GPT2Config
    from pyggml.train.step import TrainStep

    if lib.ggml_backend_load(job["library"].encode()) == pg.ffi.NULL:
        raise RuntimeError(f"{job['library']} could not be loaded")
    if not job["passes"]:
        graphs.PASSES = tuple(p for p in graphs.PASSES if p.__name__ not in PASSES)
    pg.set_threads(1)
    pg.set_default_device("metal" if job["metal"] else "cuda:0")
    config = GPT2Config(
        vocab_size=spec["vocab"],
        context=spec["seq"],
        n_embd=spec["embd"],
        n_layer=spec["layers"],
        n_head=spec["heads"],
        attention=spec["attention"] or "auto",
    )
    model = GPT2(config)
    optimizer = optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1)
    precision = None if spec["dtype"] == "f32" else spec["dtype"]
    step = TrainStep(model, optimizer, clip=1.0, precision=precision)
    ids = np.zeros((spec["batch"], spec["seq"]), np.int32)
    trace = Path(os.environ["PYGGML_EMULATED_TRACE"])
    marks = []
    for _ in range(2):
        marks = [trace.stat().st_size]
        step([(ids, ids)])
        marks.append(trace.stat().st_size)
    if step.fallbacks:
        raise RuntimeError(f"the CPU would compute {', '.join(sorted(step.fallbacks))}")
    print(json.dumps(marks))
    return 0


if __name__ == "__main__":
    sys.exit(main())
