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


def workflow() -> dict[str, Any]:
    return dict(pytest.importorskip("yaml").safe_load(FILE.read_text()))


def jobs() -> dict[str, Any]:
    return dict(workflow()["jobs"])


def steps_with(job: dict[str, Any], action: str) -> list[dict[str, Any]]:
    """What the job gives to an action, each time that it uses it."""
    used = [step for step in job["steps"] if f"/{action}@" in step.get("uses", "")]
    return [step.get("with", {}) for step in used]


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
        (upload,) = steps_with(found[name], "upload-artifact")
        assert upload["name"] == f"gpu-{name}"
    (source,) = steps_with(found["source"], "upload-artifact")
    (wheels,) = steps_with(found["wheels"], "upload-artifact")
    assert source == {"name": "dist-source", "path": "dist/*.tar.gz"}
    assert wheels == {"name": "dist-${{ matrix.runner }}", "path": "wheelhouse/*.whl"}
    (download,) = steps_with(found["publish"], "download-artifact")
    assert download == {"pattern": "dist-*", "path": "dist", "merge-multiple": True}


def test_only_a_tag_is_published_and_nothing_else_may_write() -> None:
    found = jobs()
    publish = found.pop("publish")
    assert publish["if"] == "startsWith(github.ref, 'refs/tags/v')"
    assert publish["environment"] == "pypi"
    assert publish["permissions"] == {"id-token": "write"}
    assert steps_with(publish, "gh-action-pypi-publish") == [{}]  # with no password
    assert workflow()["permissions"] == {"contents": "read"}
    for job in found.values():
        assert "permissions" not in job
        assert steps_with(job, "gh-action-pypi-publish") == []


def test_all_is_built_of_the_source_package_at_the_time_of_the_commit() -> None:
    found = jobs()
    source = found.pop("source")
    assert source["outputs"] == {"epoch": "${{ steps.epoch.outputs.epoch }}"}
    (step,) = [step for step in source["steps"] if step.get("id") == "epoch"]
    assert step["run"] == 'echo "epoch=$(git log -1 --format=%ct)" >> "$GITHUB_OUTPUT"'
    for name in set(found) - {"publish"}:
        assert found[name]["needs"] == "source"
        assert found[name]["env"] == {"SOURCE_DATE_EPOCH": "${{ needs.source.outputs.epoch }}"}
        assert steps_with(found[name], "download-artifact") == [
            {"name": "dist-source", "path": "dist"}
        ]


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
