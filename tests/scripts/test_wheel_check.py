# SPDX-License-Identifier: MIT
"""scripts/wheel_check.py ends with an error where a wheel does not do what it must."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pyggml.backend.library_files import libraries

from .loading import load

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"

pytestmark = [
    pytest.mark.skipif(not SCRIPTS.is_dir(), reason="scripts/ is not here"),
    pytest.mark.skipif(sys.platform == "win32", reason="starts a script by its first line"),
]

# In place of an emulator with its Python: `fake CPU python …`, and `fake cxx …` for the compiler.
# It says what a good wheel would, but for the fault of its CPU.
FAKE = """
import json, pathlib, sys
faults = json.loads(pathlib.Path(__file__).with_suffix(".json").read_text())
cpu, *rest = sys.argv[1:]
fault, text = faults.get(cpu, ""), " ".join(rest)
if fault == "a signal":
    import os, signal
    os.kill(os.getpid(), signal.SIGSEGV)
if "wheel_probe" in text:
    errors = {"f32": 1e-13, "bf16": 1e-6, "q8_0": 6e-5}
    if fault in errors:
        errors[fault] *= 1000
    if fault == "nan":
        errors["bf16"] = float("nan")
    variant = {"Nehalem": "x64", "cortex-a53": "armv8.0_1"}.get(cpu, "haswell")
    print(json.dumps({
        "variant": "x64" if fault == "variant" else variant, "products": errors,
        "rows": {"no rows": 0, "fewer rows": 612}.get(fault, 613) if "--rows" in text else 0,
        "failed": ["exp f32"] if fault == "row" else [],
    }))
elif "train-llm" in text:
    out = pathlib.Path(rest[rest.index("--artifact-dir") + 1])
    out.mkdir(parents=True)
    losses = [4.5, 3.5]
    if fault == "bits" and out.name.endswith("-1"):
        losses[1] += 1e-9
    if fault == "rounding":
        losses[1] += 0.01
    rows = [{"loss": x} for x in losses] if fault != "no losses" else [{"step": 1}]
    (out / "metrics.jsonl").write_text("".join(json.dumps(row) + "\\n" for row in rows))
elif "pyggml.__path__" in text:
    print("/place/of/pyggml")
elif cpu == "cxx":
    assert "/place/of/pyggml/lib/libpyggml-cpu-haswell.so" in rest or "x64.so" in text
    pathlib.Path(rest[rest.index("-o") + 1]).touch()
else:  # the program that was "compiled"
    assert pathlib.Path(rest[0]).is_file()
    told = {"packed": "1 of 886 failed", "no cases": "0 of 0 failed"}
    print("ok\\n" + told.get(fault, "0 of 886 failed"))
"""


@pytest.fixture
def fake(tmp_path: Path) -> Path:
    path = tmp_path / "fake"
    path.write_text(f"#!{sys.executable}\n{FAKE}")
    path.chmod(0o755)
    return path


def check(fake: Path, faults: dict[str, str], cpus: str = "Nehalem,Haswell") -> int:
    fake.with_suffix(".json").write_text(json.dumps(faults))
    return int(
        load(SCRIPTS / "wheel_check.py").main(
            ["--python", f"{fake} {{cpu}} python", "--cxx", f"{fake} cxx", "--cpus", cpus,
             "--work", str(fake.parent / "work"), "--rows", "--packed"]
        )
    )  # fmt: skip


def test_a_good_wheel_passes(fake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(fake, {}) == 0
    text = capsys.readouterr().out
    assert text.count("613 rows, 0 failed") == text.count("0 of 886 failed") == 2
    assert text.count("the same bits twice") == 2
    assert "Nehalem 0.0e+00, Haswell 0.0e+00" in text


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("variant", "Haswell: loads x64, not haswell"),
        ("row", r"Haswell: 613 rows passed, \['exp f32'\] failed"),
        ("f32", "Haswell: the product of f32 is off by 1"),
        ("q8_0", "Haswell: the product of q8_0 is off by 0.06"),
        ("nan", "Haswell: the product of bf16 is off by nan"),
        ("no rows", r"Haswell: 0 rows passed, \[\] failed"),
        ("fewer rows", "Haswell: 612 rows passed; the first CPU has 613"),
        ("bits", "Haswell: the second training has other losses"),
        ("no losses", "Haswell: train-llm wrote no loss"),
        ("packed", "Haswell: test-packed-gemm: 1 of 886 failed"),
        ("no cases", "Haswell: test-packed-gemm: 0 of 0 failed"),
        ("a signal", "exited -11"),
    ],
)
def test_a_fault_on_one_cpu_is_an_error(fake: Path, fault: str, message: str) -> None:
    with pytest.raises(SystemExit, match=message):
        check(fake, {"Haswell": fault})


def test_losses_that_differ_by_more_than_rounding_are_an_error(fake: Path) -> None:
    assert check(fake, {"Haswell": "rounding"}) == 1
    (fake.parent / "work").rename(fake.parent / "first")
    assert check(fake, {"Nehalem": "rounding"}) == 1


def test_the_cpus_of_aarch64_have_their_variants(fake: Path) -> None:
    with pytest.raises(SystemExit, match=r"neoverse-n1: loads haswell, not armv8\.2_2"):
        check(fake, {}, "neoverse-n1")


def test_only_cpus_that_qemu_knows_are_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    qemu = tmp_path / "qemu"
    qemu.write_text("#!/bin/sh\nprintf 'Available CPUs:\\n  Haswell\\n  Nehalem\\n'; exit 1\n")
    qemu.chmod(0o755)
    known_to = load(SCRIPTS / "wheel_check.py").known_to
    assert known_to(str(qemu), ["Nehalem", "SapphireRapids", "Haswell"]) == ["Nehalem", "Haswell"]
    assert "does not know it: SapphireRapids" in capsys.readouterr().out


def test_a_wheel_is_damaged_and_run_with_each_variant(
    fake: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And on the CPUs that qemu knows; it names those that it does not."""
    script = load(SCRIPTS / "wheel_check.py")
    qemu = fake.with_name("qemu")
    qemu.write_text("#!/bin/sh\nprintf 'Available CPUs:\\n  Haswell\\n  Nehalem\\n'; exit 1\n")
    qemu.chmod(0o755)
    asked, ran, answers = [], [], {"faults": 0}

    def call(*command: str | Path, env: dict[str, str] | None = None) -> str:
        asked.append([str(part) for part in command])
        return "x64 haswell\n"

    def try_cpu(cpu: str, expected: str, start: list[str | Path], args: object) -> list[float]:
        ran.append((cpu, expected, " ".join(map(str, start))))
        return [4.5, answers.get(cpu, 3.5)]

    monkeypatch.setattr(script, "call", call)
    monkeypatch.setattr(script, "install", lambda wheel, folder: folder / "python")
    monkeypatch.setattr(script, "tell_sizes", lambda *_: None)
    monkeypatch.setattr(script, "try_cpu", try_cpu)
    monkeypatch.setattr(
        script, "check_faults",
        lambda python, work, found: answers.update(faults=answers["faults"] + (found == str(qemu))),
    )  # fmt: skip
    options = ["--wheel", "a.whl", "--qemu", str(qemu), "--work", str(fake.parent / "work")]
    assert script.main(options) == 0
    assert answers["faults"] == 1
    assert [script.VARIANTS in command for command in asked] == [True]
    assert [row[:2] for row in ran] == [
        ("this CPU", ""), ("as x64", "x64"), ("as haswell", "haswell"),
        ("Nehalem", "x64"), ("Haswell", "haswell"),
    ]  # fmt: skip
    assert [row[2].startswith("env PYGGML_CPU=") for row in ran] == [
        False,
        True,
        True,
        False,
        False,
    ]
    assert f"{qemu} -cpu Nehalem " in ran[3][2]
    unknown = [cpu for cpu in script.CPUS if cpu not in ("Nehalem", "Haswell")]
    told = f"not run, as {qemu} does not know it: {', '.join(unknown)}\n"
    assert told in capsys.readouterr().out
    assert script.main([*options, "--cpus", "Haswell,EPYC-Rome"]) == 1
    assert "does not know it: EPYC-Rome" in capsys.readouterr().out
    assert script.main([*options, "--cpus", ""]) == 0
    answers["as haswell"] = 3.5 * (1 + 1.5e-3)  # more than rounding
    assert script.main([*options, "--cpus", ""]) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--python", "/nonexistent"], "/nonexistent cannot be run: No such file or directory"),
        (["--python", "true"], "prints JSON; got ''; --python must start a Python"),
        (["--python", "false {x}"], "--python must be a command, .* got 'false {x}'"),
        (["--python", "python '"], "--python must be a command, .* got "),
        (["--python", ""], "--python must be a command, .* got ''"),
        (["--cxx", "'c++"], "--cxx must be a command, "),
        (["--qemu", "/nonexistent"], "--qemu must be a program; got /nonexistent"),
        (["--work", __file__], f"--work must be a folder; got {__file__}: File exists"),
        (["--steps", "0"], "--steps must be 1 or more; got 0"),
        (["--steps", "-3"], "--steps must be 1 or more; got -3"),
    ],
)
def test_options_that_cannot_be_end_in_a_line(
    tmp_path: Path, options: list[str], message: str
) -> None:
    done = subprocess.run(
        [sys.executable, SCRIPTS / "wheel_check.py", "--work", tmp_path, *options],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert re.search(message, done.stderr.splitlines()[-1])


@pytest.mark.parametrize(
    ("command", "good"),
    [
        ("echo ImportError: of another build >&2; exit 1", True),
        ("echo of another build", True),
        ("echo something else", False),
        ("echo of another build; exit 2", False),
        ("echo of another build; kill -SEGV $$", False),
    ],
)
def test_a_damaged_install_must_end_with_its_message(
    tmp_path: Path, command: str, good: bool
) -> None:
    attempt = load(SCRIPTS / "wheel_faults.py").attempt
    if good:
        attempt("a fault", ["sh", "-c", command], "another build", tmp_path)
    else:
        with pytest.raises(SystemExit, match="wheel_faults: a fault: exit "):
            attempt("a fault", ["sh", "-c", command], "another build", tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="names of Linux")
@pytest.mark.parametrize("name", ["libpyggml-base.so", "libpyggml.so"])
def test_another_build_differs_in_one_digit(name: str) -> None:
    data = (libraries() / name).read_bytes()
    other = load(SCRIPTS / "wheel_faults.py").other_build(data)
    assert sum(a != b for a, b in zip(data, other, strict=True)) == 1
    with pytest.raises(AssertionError, match="names no build"):
        load(SCRIPTS / "wheel_faults.py").other_build(b"\x7fELF")


def test_the_probe_runs_products_and_the_rows_of_grad0(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyggml.testing import cases

    probe = load(SCRIPTS / "wheel_probe.py")
    assert probe.CASES is cases.CASES
    monkeypatch.setattr(probe, "CASES", [case for case in cases.CASES if case.name == "exp"])
    monkeypatch.setattr(sys, "argv", ["wheel_probe.py", "--rows"])
    told: list[str] = []
    monkeypatch.setattr("builtins.print", told.append)
    probe.main()
    found = json.loads(told[0])
    assert set(found["products"]) == {"f32", "bf16", "q8_0", "q4_0", "q4_K"}
    assert found["rows"] > 0
    assert found["failed"] == []
    monkeypatch.setattr("pyggml.testing.check.TOLERANCES", dict.fromkeys(probe.TOLERANCES, (0, 0)))
    probe.main()
    assert "exp" in json.loads(told[1])["failed"][0]
