# SPDX-License-Identifier: MIT
"""Build the patched CPU backend for an older CPU, and run the kernels' tests on it.

avx2    256 bits with FMA and F16C, without AVX-512: most x86 machines
plain   what every x86-64 has

Each has a build folder of its own, build/cpu-NAME. What runs are the tests of the packed product
and of fused results, and ggml's own comparisons and gradient checks of ops that have kernels for
wider registers. Exit status 1 when one fails, or when the library holds an instruction that such
a CPU does not know. x86-64, with objdump to look for these.
"""

from __future__ import annotations

import argparse
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_OFF = ("GGML_NATIVE", "GGML_AVX512", "GGML_AVX512_VBMI", "GGML_AVX512_VNNI", "GGML_AVX512_BF16")
_AVX2 = ("GGML_SSE42", "GGML_AVX", "GGML_AVX2", "GGML_FMA", "GGML_F16C", "GGML_BMI2")
# Options that are on, and registers that must not be named.
KINDS = {"avx2": (_AVX2, r"%zmm"), "plain": ((), r"%[yz]mm")}
OPS = (
    "ADD", "CROSS_ENTROPY_ROWS", "CROSS_ENTROPY_ROWS_BACK", "EXP", "FLASH_ATTN_EXT_BACK", "GELU",
    "GELU_BACK", "GET_ROWS_BACK", "MUL", "NORM", "NORM_BACK", "OPT_STEP_ADAMW", "OUT_PROD", "RELU",
    "REPEAT_BACK", "RMS_NORM", "RMS_NORM_BACK", "SIGMOID", "SILU", "SILU_BACK", "SOFT_MAX",
    "SOFT_MAX_BACK", "SUM", "SUM_ROWS", "SUM_SQR", "TANH",
)  # fmt: skip
GRADIENTS = ("CROSS_ENTROPY_ROWS", "FLASH_ATTN_EXT", "GELU", "NORM", "RMS_NORM", "SOFT_MAX", "SILU")


def build(kind: str, folder: Path, jobs: int) -> None:
    """Configure and build ggml's tests for a kind of CPU."""
    on, _ = KINDS[kind]
    options = dict.fromkeys((*_OFF, *_AVX2), "OFF") | dict.fromkeys(on, "ON")
    configure = [
        "cmake", "-S", str(ROOT), "-B", str(folder), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
        "-DPYGGML_BUILD_GGML_TESTS=ON", "-DGGML_CUDA=OFF", "-DGGML_METAL=OFF", "-DGGML_BLAS=OFF",
        f"-DPython_EXECUTABLE={sys.executable}",
        *(f"-D{name}={value}" for name, value in options.items()),
    ]  # fmt: skip
    for command in (configure, ["cmake", "--build", str(folder), "--", f"-j{jobs}"]):
        done = subprocess.run(
            command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace"
        )
        if done.returncode:
            raise SystemExit(f"older_cpu: {' '.join(command)} failed\n{done.stdout[-5000:]}")


def strangers(library: Path, registers: str) -> int:
    """How many instructions of a library name registers that the CPU has not."""
    listed = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", str(library)],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return len(re.findall(registers, listed.stdout))


def run(folder: Path) -> bool:
    """Run every test; tell each one's end."""
    good = True
    commands = [
        ["test-packed-gemm"],
        ["test-grad-graph"],
        ["test-backend-ops", "test", "-b", "CPU", "-o", ",".join(OPS)],
        ["test-backend-ops", "grad", "-b", "CPU", "-o", ",".join(GRADIENTS)],
    ]
    for program, *arguments in commands:
        done = subprocess.run(
            [str(folder / "bin" / program), *arguments],
            check=False, capture_output=True, text=True, errors="replace",
        )  # fmt: skip
        text = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)
        right = len(re.findall(r"^ok |: OK$", text, re.M))
        print(f"{program} {' '.join(arguments)}: exit {done.returncode}, {right} OK", flush=True)
        if done.returncode or not right:
            print("\n".join(line for line in text.splitlines() if "FAIL" in line)[-3000:])
            good = False
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--jobs", type=int, default=2, help="of the build (default: 2)")
    args = parser.parse_args()
    if platform.machine().lower() not in ("x86_64", "amd64"):
        print("older_cpu: needs an x86-64 machine", file=sys.stderr)
        return 2
    folder = ROOT / "build" / f"cpu-{args.kind}"
    build(args.kind, folder, args.jobs)
    library = next(folder.rglob("libpyggml-cpu.so"))
    if shutil.which("objdump") is None:
        print("objdump is not here: the instructions were not looked at")
    elif count := strangers(library, KINDS[args.kind][1]):
        print(f"{library.name}: {count} operands that this CPU does not have")
        return 1
    return 0 if run(folder) else 1


if __name__ == "__main__":
    sys.exit(main())
