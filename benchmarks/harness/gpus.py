# SPDX-License-Identifier: MIT
"""GPUs by their published figures, and how long a launch takes on one.

A launch takes as long as memory or as the unit that computes it, whichever is longer, at a share of
the published figure that depends on the class of the kernel, and the cost of a launch besides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from .launches import Launch


@dataclass(frozen=True)
class Gpu:
    """A GPU.

    Args:
        name: as its maker calls it.
        gb_s: bandwidth of its memory.
        tflop_s: of each unit that it has, for dense matmuls with sums in f32.
        cc: compute capability, 90 for 9.0; 0 for a GPU without CUDA.
        sms: multiprocessors, or cores of Apple's.
        shared_kib: shared memory that a block may have.
        memory_gib: memory of a GPU with CUDA.
        ghz: clock of the multiprocessors at which `tflop_s` is reached.
    """

    name: str
    gb_s: float
    tflop_s: Mapping[str, float]
    cc: int = 0
    sms: int = 0
    shared_kib: int = 0
    memory_gib: int = 0
    ghz: float = 0.0

    @property
    def emulated(self) -> dict[str, int]:
        """What the emulation says of itself in its place."""
        return {
            "cc": self.cc,
            "sms": self.sms,
            "shared_kib": self.shared_kib,
            "memory_gib": self.memory_gib,
        }


# Apple's core: four units of 32 lanes, each with a multiplication and an addition in a clock.
MULTIPLIED_PER_CLOCK = 128


def _apple(name: str, gb_s: float, cores: int, ghz: float) -> Gpu:
    # Matrices of 8 x 8 are multiplied by the same units as single numbers, f16 and bf16 as well.
    tflop_s = cores * 2 * MULTIPLIED_PER_CLOCK * ghz / 1e3
    units = dict.fromkeys(("f32", "tf32", "bf16", "f16"), tflop_s)
    return Gpu(name, gb_s, units, sms=cores, ghz=ghz)


# H100 SXM, A100 SXM 80 GB, T4: NVIDIA's data sheets; RTX 4090: NVIDIA's white paper of Ada.
# Apple: bandwidths and cores by Apple, who says 2.6 and 3.6 TFLOP/s of M1 and M2.
GPUS = MappingProxyType(
    {
        "h100": Gpu(
            "H100 SXM",
            3350,
            {"f32": 66.9, "tf32": 494.7, "bf16": 989.4, "f16": 989.4},
            cc=90,
            sms=132,
            shared_kib=227,
            memory_gib=80,
            ghz=1.83,
        ),
        "a100": Gpu(
            "A100 SXM",
            2039,
            {"f32": 19.5, "tf32": 156.0, "bf16": 312.0, "f16": 312.0},
            cc=80,
            sms=108,
            shared_kib=163,
            memory_gib=80,
            ghz=1.41,
        ),
        "4090": Gpu(
            "RTX 4090",
            1008,
            {"f32": 82.6, "tf32": 82.6, "bf16": 165.2, "f16": 165.2},
            cc=89,
            sms=128,
            shared_kib=99,
            memory_gib=24,
            ghz=2.52,
        ),
        "t4": Gpu(
            "T4",
            320,
            {"f32": 8.1, "f16": 65.0},
            cc=75,
            sms=40,
            shared_kib=64,
            memory_gib=16,
            ghz=1.59,
        ),
        "m1": _apple("M1", 68, 8, 1.28),
        "m2": _apple("M2", 100, 10, 1.40),
        "m3": _apple("M3", 100, 10, 1.40),
        "m4": _apple("M4", 120, 10, 1.47),
        "m3max": _apple("M3 Max", 400, 40, 1.40),
    }
)

# Shares of the published figures. That of the bandwidth was measured on an H100 apart from a step:
# an operand that is rounded moves 2.4 of 3.35 TB/s.
BANDWIDTH = 0.72
COMPUTE = MappingProxyType(
    {
        "product": 0.65,  # cuBLAS on large matrices, at the clock of a GPU under load
        "unaligned product": 0.095,  # cuBLAS on tensor cores, with an odd extent
        "tiles": 0.5,  # attention in f32, and on tensor cores at most
    }
)
# Of the peak of Apple's GPUs: llama.cpp's mul_mm computes 8.0 of 10.6 TFLOP/s on an M1 Max (500
# tokens/s of a model of 8.03 billion numbers: github.com/brand-o/normiebench, issue 40).
COUNTED = 0.76
# Clocks for 128 bytes of threadgroup memory without conflicts, or 64 of a buffer. With this number,
# accesses of mul_mm take as long as its products do: they may not take longer.
ACCESS_CLOCKS = 0.65
# What a multiprocessor does at most where nothing else is the limit. A thread that moves one number
# at a time has 4 bytes on their way, 2,048 threads 8 KiB, and memory answers after 0.65 us.
SCALAR_GB_S = 2048 * 4 / 650
# Attention on tensor cores, with eight warps on a multiprocessor that wait for one another:
# multiplications and additions in a clock. FlashAttention-2 has 1,430 on an H100, 35% of the figure
# (Shah et al. 2024, arXiv:2407.08608).
MMA_PER_CLOCK = 255
# The ops of a step on an H100 (docs/internals/gpu.md) that set a number above: they say nothing of
# how good the model is, the others do.
CALIBRATED = MappingProxyType(
    {
        "ADD": "set SCALAR_GB_S",
        "FLASH_ATTN_EXT_BACK": "set MMA_PER_CLOCK",
        "the logits": 'set "unaligned product"',
    }
)
# Between a kernel and the next of a captured graph, and at the begin and end of one, where not all
# multiprocessors have work: of the order of a microsecond each.
LAUNCH_S = 2e-6


def seconds(launch: Launch, gpu: Gpu) -> float:
    """Return how long a launch takes."""
    gb_s = gpu.gb_s * BANDWIDTH
    if launch.kind == "scalar" and gpu.sms:
        gb_s = min(gb_s, SCALAR_GB_S * gpu.sms)
    # Without a block for each, some multiprocessors have nothing to do.
    busy = min(1.0, launch.blocks / gpu.sms) if launch.blocks and gpu.sms else 1.0
    memory = launch.bytes / (busy * gb_s * 1e9)
    if not launch.operations:
        return memory + LAUNCH_S
    if launch.products and not gpu.cc:
        return max(memory, _counted(launch) / (busy * gpu.sms * gpu.ghz * 1e9)) + LAUNCH_S
    rate = gpu.tflop_s.get(launch.unit, gpu.tflop_s["f32"]) * 1e12 * COMPUTE[launch.kind]
    if launch.kind == "tiles" and launch.unit != "f32" and gpu.sms:
        rate = min(rate, MMA_PER_CLOCK * gpu.sms * gpu.ghz * 1e9)
    return max(memory, launch.operations / (busy * rate)) + LAUNCH_S


def _counted(launch: Launch) -> float:
    """Return the clocks of all cores; the longer of products and accesses hides the other."""
    products = launch.products * 8**3 / MULTIPLIED_PER_CLOCK
    return max(products / COUNTED, launch.accesses * ACCESS_CLOCKS)


@dataclass(frozen=True)
class Sum:
    """Launches of a part of the step, or of an op."""

    launches: int = 0
    bytes: int = 0
    converted: int = 0
    operations: int = 0
    seconds: float = 0.0


def sums(launches: Sequence[Launch], gpu: Gpu, key: str) -> dict[str, Sum]:
    """Add up what launches of the same `key`, a field of Launch, have; the longest come first."""
    found: dict[str, Sum] = {}
    for launch in launches:
        name = str(getattr(launch, key))
        old = found.get(name, Sum())
        found[name] = Sum(
            old.launches + 1,
            old.bytes + launch.bytes,
            old.converted + launch.converted,
            old.operations + launch.operations,
            old.seconds + seconds(launch, gpu),
        )
    return dict(sorted(found.items(), key=lambda item: -item[1].seconds))


def total(parts: Mapping[str, Sum]) -> Sum:
    """Return the sum of sums."""
    fields = ("launches", "bytes", "converted", "operations", "seconds")
    return Sum(*(sum(getattr(part, field) for part in parts.values()) for field in fields))
