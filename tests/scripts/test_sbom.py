# SPDX-License-Identifier: MIT
"""scripts/sbom.py: the list of what a wheel contains."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "sbom.py"

pytestmark = [
    pytest.mark.skipif(not SCRIPT.is_file(), reason="scripts/ is not here"),
    pytest.mark.skipif(
        not (ROOT / "vendor/ggml/.vendor-stamp.json").is_file(), reason="vendor/ggml is not made"
    ),
]


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
    listed = {each["name"]: each["hashes"][0]["content"] for each in ggml["components"]}
    assert listed == {f"patches/{name}": digest for name, digest in stamp["patches"].items()}
    assert [each["diff"]["url"] for each in ggml["pedigree"]["patches"]] == sorted(listed)
    # Of this tree, where it is in step with patches/.
    for name in (ROOT / "patches").glob("0001-*.patch"):
        assert listed[f"patches/{name.name}"] == hashlib.sha256(name.read_bytes()).hexdigest()


def test_it_follows_the_schema(tmp_path: Path) -> None:
    validation = pytest.importorskip("cyclonedx.validation.json")
    from cyclonedx.schema import SchemaVersion

    file = tmp_path / "bill.json"
    subprocess.run([sys.executable, str(SCRIPT), "pyggml", "1.2.3", str(file)], check=True)
    validator = validation.JsonStrictValidator(SchemaVersion.V1_6)
    assert validator.validate_str(file.read_text()) is None
    assert validator.validate_str(file.read_text().replace('"SHA-256"', '"SHA-257"'))
