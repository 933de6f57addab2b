# SPDX-License-Identifier: MIT
"""The check of the CPU before ggml is loaded."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from pyggml.backend import cpu_sets

built = pytest.mark.skipif(not cpu_sets.present(), reason="no sets of this machine are known")

_OTHER_CPU = """
import sys, types
sys.modules["pyggml._cpu"] = types.SimpleNamespace(
    built_for=lambda: " sse3 avx2 avx512f avx512_bf16", present=lambda: ["sse3", "avx2"]
)
try:
    import pyggml
except ImportError as error:
    print(error)
assert "pyggml._ggml" not in sys.modules
if sys.platform == "linux":
    assert "libpyggml" not in open("/proc/self/maps").read()
"""


def test_a_cpu_that_lacks_a_set_is_an_import_error() -> None:
    """The message names the sets and the cure; no library of ggml's is loaded."""
    done = subprocess.run(
        [sys.executable, "-c", _OTHER_CPU], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "without avx512_bf16, avx512f;" in done.stdout
    assert "pip install" in done.stdout


def test_each_missing_set_is_named() -> None:
    with pytest.raises(ImportError, match="without avx512f, fma;"):
        cpu_sets.choose_cpu("", {"": ["fma", "avx2", "avx512f"]}, ["avx2", "bmi1"])
    assert cpu_sets.choose_cpu("", {"": []}, []) == ""


# As the compiled module tells them.
_VARIANTS = "x64:\nsandybridge: avx\nhaswell: avx avx2 fma\nskylakex: avx avx2 fma avx512f"


@pytest.mark.parametrize(
    ("found", "best"),
    [
        ("", "x64"),
        ("avx", "sandybridge"),
        ("avx fma", "sandybridge"),
        ("avx avx2 fma bmi2", "haswell"),
        ("avx avx2 fma avx512f avx512bw", "skylakex"),
        ("avx512f", "x64"),  # one set does not imply another
    ],
)
def test_the_best_variant_that_the_cpu_has(
    monkeypatch: pytest.MonkeyPatch, found: str, best: str
) -> None:
    monkeypatch.setattr(cpu_sets, "_compiled", lambda: _VARIANTS)
    monkeypatch.setattr(cpu_sets, "_found", found.split)
    assert cpu_sets.choose_cpu() == best
    assert cpu_sets.choose_cpu("x64") == "x64"


def test_a_wanted_variant_is_one_of_the_build_and_of_the_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cpu_sets, "_compiled", lambda: _VARIANTS)
    monkeypatch.setattr(cpu_sets, "_found", lambda: ["avx"])
    with pytest.raises(ImportError, match="x64, sandybridge, haswell, skylakex; got 'zen9'"):
        cpu_sets.choose_cpu("zen9")
    with pytest.raises(ImportError, match="PYGGML_CPU=haswell; got one without avx2, fma;"):
        cpu_sets.choose_cpu("haswell")
    with pytest.raises(ImportError, match="no variants; got 'haswell'"):
        cpu_sets.choose_cpu("haswell", {"": ["avx"]}, ["avx"])


@built
def test_this_cpu_passes() -> None:
    assert cpu_sets.built_for()[cpu_sets.choose_cpu()] <= cpu_sets.present()


@built
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/cpuinfo")
def test_the_system_says_the_same() -> None:
    """The kernel lists the same sets; it has some more that CPUs of other makers lack."""
    names = {"x86_64": "flags", "aarch64": "Features"}.get(platform.machine())
    if names is None:
        pytest.skip("no sets of this machine are known")
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    flags = set(next(line for line in lines if line.startswith(names)).partition(":")[2].split())
    other_names = {"pni": "sse3", "abm": "lzcnt"}
    flags |= {other_names[flag] for flag in flags & other_names.keys()}
    assert cpu_sets.present() <= flags
    asked = {"avx2", "fma", "f16c", "avx512f", "avx512_bf16", "asimddp", "i8mm", "sve"}
    assert cpu_sets.present() & asked == flags & asked
