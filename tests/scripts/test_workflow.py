# SPDX-License-Identifier: MIT
""".github/workflows/wheels.yml: pinned actions, and the check before a release is published."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).resolve().parents[2] / ".github" / "workflows" / "wheels.yml"

pytestmark = pytest.mark.skipif(not FILE.is_file(), reason=".github/ is not here")


def jobs() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")
    return dict(yaml.safe_load(FILE.read_text())["jobs"])


def test_actions_are_pinned_by_commit() -> None:
    used = re.findall(r"uses: (.*)", FILE.read_text())
    assert used
    assert [each for each in used if not re.fullmatch(r"\S+@[0-9a-f]{40} # v[\d.]+", each)] == []
    assert len(set(used)) == len({each.split("@")[0] for each in used})  # one version of each


def test_what_is_published_waits_for_each_job_that_must_pass() -> None:
    found = jobs()
    assert set(found["publish"]["needs"]) == {"source", "wheels"}
    optional = {name for name, job in found.items() if job.get("continue-on-error") is True}
    assert optional == set(found) - {"source", "wheels", "publish"}
    for name in optional:  # the names of artifacts that are published begin with dist-
        uploads = [s for s in found[name]["steps"] if "upload-artifact" in s.get("uses", "")]
        assert [step["with"]["name"] for step in uploads] == [f"gpu-{name}"]


@pytest.mark.skipif(sys.platform == "win32", reason="runs sh")
@pytest.mark.parametrize(
    ("tag", "more", "good"),
    [
        ("v1.2.3", [], True),
        ("v1.2", [], False),
        ("v1.2.30", [], False),
        ("v1.2.3", ["pyggml-1.2.4-cp310-abi3-win_amd64.whl"], False),
        ("v1.2.3", ["pyggml-1.2.3.post1.tar.gz"], False),
        ("v1.2.3", ["other-1.2.3.tar.gz"], False),
    ],
)
def test_a_tag_that_is_not_the_version_is_not_published(
    tmp_path: Path, tag: str, more: list[str], good: bool
) -> None:
    steps = jobs()["publish"]["steps"]
    at = next(i for i, step in enumerate(steps) if step.get("name") == "The tag is the version")
    assert any("gh-action-pypi-publish" in step.get("uses", "") for step in steps[at:])
    (tmp_path / "dist").mkdir()
    for name in ("pyggml-1.2.3.tar.gz", "pyggml-1.2.3-cp310-abi3-manylinux_2_28_x86_64.whl", *more):
        (tmp_path / "dist" / name).touch()
    done = subprocess.run(
        ["sh", "-e", "-c", steps[at]["run"]], cwd=tmp_path, check=False, capture_output=True,
        text=True, env={**os.environ, "GITHUB_REF_NAME": tag},
    )  # fmt: skip
    assert (done.returncode == 0) == good
    assert good or "is not of the tag" in done.stdout
