# SPDX-License-Identifier: MIT
"""scripts/sbom.py: the list of what a wheel contains."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "sbom.py"

pytestmark = [
    pytest.mark.skipif(not SCRIPT.is_file(), reason="scripts/ is not here"),
    pytest.mark.skipif(
        not (ROOT / "vendor/ggml/.vendor-stamp.json").is_file(), reason="vendor/ggml is not made"
    ),
]


def bill_of(package: str, file: Path) -> dict[str, Any]:
    subprocess.run([sys.executable, str(SCRIPT), package, "1.2.3", str(file)], check=True)
    return dict(json.loads(file.read_text()))


def files_of(ggml: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for each in ggml["components"] if each["type"] == "file"]


def test_it_names_ggml_its_archive_and_each_patch(tmp_path: Path) -> None:
    files = [tmp_path / "one.json", tmp_path / "two.json"]
    for file in files:
        subprocess.run([sys.executable, str(SCRIPT), "pyggml", "1.2.3", str(file)], check=True)
    assert files[0].read_bytes() == files[1].read_bytes()
    bill = json.loads(files[0].read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["purl"] == "pkg:pypi/pyggml@1.2.3"

    (ggml,) = bill["components"]
    pin = (ROOT / "vendor/ggml.toml").read_text()
    (archive,) = ggml["pedigree"]["ancestors"]
    assert f'sha256 = "{archive["hashes"][0]["content"]}"' in pin
    assert f'version = "{ggml["version"]}"' in pin

    stamp = json.loads((ROOT / "vendor/ggml/.vendor-stamp.json").read_text())
    listed = {each["name"]: each["hashes"][0]["content"] for each in files_of(ggml)}
    assert listed == {f"patches/{name}": digest for name, digest in stamp["patches"].items()}
    assert [each["diff"]["url"] for each in ggml["pedigree"]["patches"]] == sorted(listed)
    # Of this tree, where it is in step with patches/.
    for name in (ROOT / "patches").glob("0001-*.patch"):
        assert listed[f"patches/{name.name}"] == hashlib.sha256(name.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("package", "expected"),
    [
        ("pyggml", {"FP16", "llamafile", "YaRN", "Arm Optimized Routines", "OpenVINO"}),
        ("pyggml-cuda", {"YaRN"}),
        ("pyggml-vulkan", set()),
    ],
)
def test_it_names_what_ggml_took_from_others(
    tmp_path: Path, package: str, expected: set[str]
) -> None:
    (ggml,) = bill_of(package, tmp_path / "bill.json")["components"]
    parts = {each["name"]: each for each in ggml["components"] if each["type"] == "library"}
    assert set(parts) == expected
    texts = " ".join(file.read_text() for file in (ROOT / "LICENSES").iterdir())
    for part in parts.values():
        assert part["copyright"] in re.sub(r"\s+", " ", texts)
        for file in part["description"].removeprefix("in ").split(", "):
            assert (ROOT / "vendor/ggml/src" / file).is_file()


@pytest.mark.parametrize("package", ["pyggml", "pyggml-cuda", "pyggml-vulkan"])
def test_it_has_the_licences_of_the_metadata(tmp_path: Path, package: str) -> None:
    (ours,) = bill_of(package, tmp_path / "bill.json")["metadata"]["component"]["licenses"]
    folder = ROOT if package == "pyggml" else ROOT / "packages" / package
    assert f'\nlicense = "{ours["expression"]}"\n' in (folder / "pyproject.toml").read_text()


def test_each_notice_in_the_sources_of_a_wheel_is_named() -> None:
    """A holder other than ggml's authors, in a file that is compiled, is in LICENSES/.

    So is a project that a `ref:` before code names by its repository.
    """
    src = ROOT / "vendor/ggml/src"
    texts = re.sub(r"\s+", " ", " ".join(f.read_text() for f in (ROOT / "LICENSES").iterdir()))
    compiled = [path for path in src.iterdir() if path.is_file()]
    for backend in ("cpu", "cuda", "metal", "vulkan"):
        compiled += [path for path in (src / f"ggml-{backend}").rglob("*") if path.is_file()]
    found, projects = set(), set()
    for path in compiled:
        if "kleidiai" not in path.parts:  # off: it would be fetched
            text = path.read_text(encoding="utf-8", errors="replace")
            projects |= set(
                re.findall(r"ref: *https://github\.com/(?!ggml-org/)\S+?/([\w-]+)", text)
            )
            found |= set(re.findall(r"(?i)copyright\W+(?:\(c\)\W+)?\d{4}[-\d, ]*(.+)", text))
    holders = {holder.strip(" .") for holder in found} - {"The ggml authors"}
    assert "Mozilla Foundation" in holders
    assert [holder for holder in sorted(holders) if holder not in texts] == []
    assert "FP16" in projects
    formulas = {"mamba", "segment-anything"}  # written in Python there
    assert [name for name in sorted(projects - formulas) if name not in texts] == []


def test_the_licences_of_the_source_package_are_there() -> None:
    found = set()
    for path in (ROOT / "vendor/ggml").rglob("*"):
        if path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace")
            found |= set(re.findall(r"SPDX-License-Identifier: *([^\n*]+)", text))
    known = {"MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"}
    assert {each.strip() for each in found} <= known
    project = (ROOT / "pyproject.toml").read_text()
    for licence in known:
        assert licence in re.findall(r'^license = "(.+)"', project, re.M)[0].split(" AND ")
    assert "Version 2.0, January 2004" in (ROOT / "LICENSES/apache-2.0.txt").read_text()
    assert "LLVM Exceptions" in (ROOT / "LICENSES/llvm-exception.txt").read_text()


def test_it_follows_the_schema(tmp_path: Path) -> None:
    validation = pytest.importorskip("cyclonedx.validation.json")
    from cyclonedx.schema import SchemaVersion

    file = tmp_path / "bill.json"
    bill_of("pyggml", file)
    validator = validation.JsonStrictValidator(SchemaVersion.V1_6)
    assert validator.validate_str(file.read_text()) is None
    assert validator.validate_str(file.read_text().replace('"SHA-256"', '"SHA-257"'))
