# SPDX-License-Identifier: MIT
"""scripts/vendor.py on a small archive: what it makes, and what it refuses."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"

pytestmark = [
    pytest.mark.skipif(not SCRIPTS.is_dir(), reason="scripts/ is not here"),
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not here"),
]

VERSION = "set(GGML_VERSION_MAJOR 1)\nset(GGML_VERSION_MINOR 2)\nset(GGML_VERSION_PATCH 3)\n"
FILES = {
    "src-1/deep/ggml/CMakeLists.txt": VERSION,
    "src-1/deep/ggml/src/a.c": "one\ntwo\nthree\n",
    "src-1/deep/ggml/src/b.c": "alpha\nbeta\n",
    "src-1/deep/ggml/.gitignore": "*.c\n",
    "src-1/deep/LICENSE": "free\n",
    "src-1/other/file.txt": "not wanted\n",
}
PIN = """
[source]
package = "src"
version = "1"
file = "src-1.tar.gz"
sha256 = "{sha256}"
root = "src-1"
[ggml]
version = "1.2.3"
[tree]
subtree = "deep/ggml"
[tree.extra]
"LICENSE" = "deep/LICENSE"
"""

Run = Callable[..., tuple[int, str]]


def write_archive(path: Path, files: dict[str, str], link: str | None = None) -> None:
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))
        if link:
            info = tarfile.TarInfo(link)
            info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
            tar.addfile(info)


class Sandbox:
    """A project root with an archive, and the verbs."""

    def __init__(self, root: Path, archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.archive, self.monkeypatch = root, archive, monkeypatch
        self.tree = root / "vendor" / "ggml"
        self.patches = root / "patches"
        (root / "vendor").mkdir(parents=True)
        self.patches.mkdir()
        self.set_archive(FILES)
        monkeypatch.setenv("PYGGML_GGML_SDIST", str(archive))

    def set_archive(self, files: dict[str, str], link: str | None = None) -> None:
        write_archive(self.archive, files, link)
        self.set_pin(hashlib.sha256(self.archive.read_bytes()).hexdigest())

    def set_pin(self, sha256: str) -> None:
        (self.root / "vendor" / "ggml.toml").write_text(PIN.format(sha256=sha256))

    def run(self, *args: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, str(SCRIPTS / "vendor.py"), *args, "--root", str(self.root)],
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert "Traceback" not in done.stderr
        verbs = "sync|edit|export|check|rebase|stats|clean"
        assert not re.search(rf"({verbs}): ({verbs}):", done.stderr), "the verb is told once"
        return done.returncode, done.stdout + done.stderr

    def content(self) -> dict[str, str]:
        return {
            str(p.relative_to(self.tree)): p.read_text()
            for p in sorted(self.tree.rglob("*"))
            if p.is_file()
        }

    def make_patches(self, count: int = 1) -> Path:
        """A series that appends to a.c, written with edit and export; returns the checkout."""
        checkout = self.root / "vendor" / "edit"
        assert self.run("edit")[0] == 0
        for number in range(count):
            with (checkout / "src" / "a.c").open("a") as file:
                file.write(f"line {number}\n")
            message = f"ggml : line {number}\n\nSo that a.c has it."
            subprocess.run(["git", "commit", "-qam", message], cwd=checkout, check=True)
        code, text = self.run("export")
        assert code == 0, text
        return checkout


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sandbox:
    return Sandbox(tmp_path / "project", tmp_path / "src-1.tar.gz", monkeypatch)


def test_sync_takes_subtree_and_extra_files(box: Sandbox) -> None:
    code, text = box.run("sync")
    assert code == 0, text
    names = set(box.content()) - {".vendor-stamp.json"}
    assert names == {"CMakeLists.txt", "src/a.c", "src/b.c", ".gitignore", "LICENSE"}
    assert box.content()["src/a.c"] == "one\ntwo\nthree\n"


def test_a_tree_edited_with_its_stamp_is_refused(box: Sandbox) -> None:
    box.make_patches()
    assert box.run("sync")[0] == 0
    (box.tree / "src" / "b.c").write_text("by hand\n")
    stamp = json.loads((box.tree / ".vendor-stamp.json").read_text())
    stamp["files"]["src/b.c"] = hashlib.sha256(b"by hand\n").hexdigest()
    (box.tree / ".vendor-stamp.json").write_text(json.dumps(stamp))
    code, text = box.run("sync")
    assert code == 1
    assert "vendor/ggml and its stamp, or the file, were changed by hand" in text


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe"])
def test_a_damaged_hash_of_the_tree_is_told(box: Sandbox, content: bytes | None) -> None:
    box.make_patches()
    assert box.run("sync")[0] == 0
    file = box.root / "vendor" / "ggml.sha256"
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    code, text = box.run("sync")
    assert code == 1
    assert "ggml.sha256" in text


def test_a_lost_series_is_told(box: Sandbox) -> None:
    box.make_patches()
    (patch,) = box.patches.iterdir()
    patch.unlink()
    code, text = box.run("sync")
    assert code == 1
    assert "vendor/ggml.sha256" in text
    assert not box.tree.exists()


def test_a_checkout_that_left_its_base_is_not_exported(box: Sandbox) -> None:
    checkout = box.make_patches()
    before = {path.name: path.read_bytes() for path in box.patches.iterdir()}
    subprocess.run(["git", "checkout", "-q", "--orphan", "other"], cwd=checkout, check=True)
    subprocess.run(["git", "commit", "-qm", "other"], cwd=checkout, check=True)
    code, text = box.run("export")
    assert code == 1
    assert "tag `base`" in text
    assert {path.name: path.read_bytes() for path in box.patches.iterdir()} == before


def test_an_older_commit_that_is_checked_out_is_not_exported(box: Sandbox) -> None:
    checkout = box.make_patches(3)
    before = {path.name: path.read_bytes() for path in box.patches.iterdir()}
    noted = (box.root / "vendor" / "ggml.sha256").read_text()
    subprocess.run(["git", "checkout", "-q", "HEAD~2"], cwd=checkout, check=True)
    code, text = box.run("export")
    assert code == 1
    assert "must have a branch checked out" in text
    # A commit there leaves the branch, which still has what is after it.
    subprocess.run(["git", "commit", "-q", "--amend", "-m", "other"], cwd=checkout, check=True)
    assert box.run("export")[0] == 1
    assert {path.name: path.read_bytes() for path in box.patches.iterdir()} == before
    assert (box.root / "vendor" / "ggml.sha256").read_text() == noted
    # The cure that the message names.
    subprocess.run(["git", "checkout", "-q", "main"], cwd=checkout, check=True)
    assert box.run("export") == (0, "vendor: 3 patches exported\n")


def test_patches_that_export_has_not_written_are_refused(box: Sandbox) -> None:
    box.make_patches()
    (patch,) = box.patches.iterdir()
    patch.write_text(patch.read_text().replace("+line 0", "+line 9"))
    code, text = box.run("sync")
    assert code == 1
    assert "vendor.py export" in text
    assert not box.tree.exists()


def test_second_sync_changes_nothing(box: Sandbox) -> None:
    box.run("sync")
    inode, before = box.tree.stat().st_ino, box.content()
    # Without the archive: a fresh tree needs nothing.
    box.archive.unlink()
    assert box.run("sync") == (0, "")
    assert box.tree.stat().st_ino == inode
    assert box.content() == before


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (lambda src: (src / "a.c").write_text("one\ntwo\nthree?\n"), "src/a.c (changed)"),
        (lambda src: (src / "a.c").unlink(), "src/a.c (gone)"),
        (lambda src: (src / "new.cu").write_text("found by glob\n"), "src/new.cu (new)"),
        (lambda src: (src / "more").symlink_to("/usr/include"), "src/more (new)"),
    ],
)
def test_a_tree_edited_under_a_fresh_stamp_is_refused(
    box: Sandbox, edit: Callable[[Path], object], told: str
) -> None:
    """The build calls sync: what it compiles is what the pin and the patches say."""
    assert box.run("sync")[0] == 0
    edit(box.tree / "src")
    before = sorted(path.name for path in (box.tree / "src").iterdir())
    code, text = box.run("sync")
    assert code == 1
    assert told in text
    assert text.count("src/") == 1
    assert sorted(path.name for path in (box.tree / "src").iterdir()) == before
    # The cure that the message names.
    shutil.rmtree(box.tree)
    assert box.run("sync")[0] == 0


def test_a_stamp_of_another_tree_is_refused(box: Sandbox) -> None:
    assert box.run("sync")[0] == 0
    stamp = box.tree / ".vendor-stamp.json"
    stamp.write_text(stamp.read_text().replace('"files"', '"file"'))
    assert box.run("sync")[0] == 0  # of no layout that is known: made again
    assert '"files"' in stamp.read_text()


@pytest.mark.parametrize(
    ("break_it", "told"),
    [
        (lambda box: box.set_pin("0" * 64), "sha256 of"),
        (lambda box: box.archive.unlink(), "no such file"),
        (lambda box: box.set_archive({**FILES, "src-1/../../x": "out"}), "escapes"),
        (lambda box: box.set_archive({**FILES, "/abs/x": "out"}), "escapes"),
        (lambda box: box.set_archive({**FILES, "src-1\\..\\x": "out"}), "escapes"),
        (lambda box: box.set_archive(FILES, link="src-1/deep/ggml/l"), "plain file"),
        (
            lambda box: box.set_archive({k: v for k, v in FILES.items() if "LICENSE" not in k}),
            "lacks src-1/deep/LICENSE",
        ),
        (
            lambda box: box.set_archive({"src-1/deep/LICENSE": "free\n"}),
            "lacks src-1/deep/ggml",
        ),
        (
            lambda box: box.set_archive({**FILES, "src-1/deep/ggml/CMakeLists.txt": ""}),
            "ggml.version",
        ),
        (
            lambda box: (box.patches / "0001-no.patch").write_text(
                "--- a/src/a.c\n+++ b/src/a.c\n@@ -1,3 +1,3 @@\n-ONE\n+eins\n two\n three\n"
            ),
            "0001-no.patch does not apply",
        ),
        (
            lambda box: (box.patches / "0001-out.patch").write_text(
                "--- /dev/null\n+++ b/../../out.c\n@@ -0,0 +1 @@\n+out\n"
            ),
            "0001-out.patch does not apply",
        ),
        (
            lambda box: (box.patches / "0001-none.patch").write_text("Subject: nothing\n"),
            "0001-none.patch",
        ),
        (lambda box: (box.root / "vendor" / "ggml.toml").write_text("[source"), "pin"),
    ],
)
def test_refusal_leaves_the_old_tree(
    box: Sandbox, break_it: Callable[[Sandbox], object], told: str
) -> None:
    assert box.run("sync")[0] == 0
    before = box.content()
    stamp = box.tree / ".vendor-stamp.json"
    (box.patches / "README.md").write_text("not a patch")
    break_it(box)
    # A stale stamp, whatever was broken: the tree has to be made again.
    stamp.write_text("{}")
    before[".vendor-stamp.json"] = "{}"
    code, text = box.run("sync")
    assert code == 1
    assert told in text
    assert box.content() == before
    assert not list((box.root / "vendor").glob(".ggml-*"))
    assert not (box.root.parent / "out.c").exists()


def test_truncated_archive(box: Sandbox) -> None:
    data = box.archive.read_bytes()[:-40]
    box.archive.write_bytes(data)
    box.set_pin(hashlib.sha256(data).hexdigest())
    code, text = box.run("sync")
    assert code == 1
    assert "cannot be unpacked" in text
    assert not box.tree.exists()


def test_patches_apply_inside_an_outer_repository(box: Sandbox) -> None:
    checkout = box.make_patches(2)
    shutil.rmtree(checkout)
    subprocess.run(["git", "init", "-q"], cwd=box.root, check=True)
    (box.root / ".gitignore").write_text("/vendor/ggml/\n")
    code, text = box.run("sync")
    assert code == 0, text
    assert box.content()["src/a.c"] == "one\ntwo\nthree\nline 0\nline 1\n"


def test_changed_series_rebuilds_and_keeps_times(box: Sandbox) -> None:
    assert box.run("sync")[0] == 0
    old = 1_000_000_000
    for path in box.tree.rglob("*.c"):
        os.utime(path, (old, old))
    box.make_patches(1)
    assert box.run("sync")[0] == 0
    assert (box.tree / "src" / "b.c").stat().st_mtime == old
    assert (box.tree / "src" / "a.c").stat().st_mtime > old


def test_edit_and_export_are_stable(box: Sandbox) -> None:
    checkout = box.make_patches(2)
    first = {p.name: p.read_bytes() for p in box.patches.iterdir()}
    assert sorted(first) == ["0001-ggml-line-0.patch", "0002-ggml-line-1.patch"]
    base = subprocess.check_output(["git", "rev-parse", "base"], cwd=checkout)
    assert box.run("check")[0] == 0

    other = box.root / "again"
    assert box.run("edit", str(other))[0] == 0
    assert subprocess.check_output(["git", "rev-parse", "base"], cwd=other) == base
    assert box.run("export", str(other))[0] == 0
    assert {p.name: p.read_bytes() for p in box.patches.iterdir()} == first

    # A dropped commit drops its file.
    subprocess.run(["git", "reset", "-q", "--hard", "HEAD~1"], cwd=other, check=True)
    code, text = box.run("export", str(other))
    assert code == 0
    assert text == "vendor: 1 patches exported; there were 2\n"
    assert [p.name for p in box.patches.iterdir()] == ["0001-ggml-line-0.patch"]


def test_export_refusals(box: Sandbox) -> None:
    assert "is not a checkout" in box.run("export")[1]
    checkout = box.make_patches(1)
    (checkout / "src" / "a.c").write_text("changed\n")
    code, text = box.run("export")
    assert code == 1
    assert "not committed" in text
    subprocess.run(["git", "checkout", "-q", "."], cwd=checkout, check=True)
    box.set_archive({**FILES, "src-1/deep/ggml/src/b.c": "another base\n"})
    code, text = box.run("export")
    assert code == 1
    assert "another base" in text
    assert "exists already" in box.run("edit")[1]


def commit(checkout: Path, subject: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    command = ["git", *who, "commit", "-q", "--allow-empty", "-am", subject]
    subprocess.run(command, cwd=checkout, check=True)


def test_export_refuses_what_is_no_patch(box: Sandbox) -> None:
    checkout = box.make_patches(1)
    before = {p.name: p.read_bytes() for p in box.patches.iterdir()}
    (checkout / "forgotten.cpp").write_text("int a;\n")
    code, text = box.run("export")
    assert (code, "?? forgotten.cpp" in text) == (1, True)
    (checkout / "forgotten.cpp").unlink()

    commit(checkout, "ggml : nothing")
    code, text = box.run("export")
    assert (code, "a commit without a change: 'ggml : nothing'" in text) == (1, True)
    subprocess.run(["git", "reset", "-q", "--hard", "HEAD~1"], cwd=checkout, check=True)

    (checkout / "src" / "b.c").write_text("mended\n")
    commit(checkout, "fixup! ggml : line 0")
    code, text = box.run("export")
    assert (code, "--autosquash base" in text) == (1, True)
    assert {p.name: p.read_bytes() for p in box.patches.iterdir()} == before


def test_check_looks_at_the_hash_of_the_tree(box: Sandbox) -> None:
    box.make_patches(2)
    assert box.run("check")[0] == 0
    sorted(box.patches.iterdir())[-1].unlink()
    code, text = box.run("check")
    assert (code, "must have the hash of vendor/ggml.sha256" in text) == (1, True)


def test_check_finds_hand_edits(box: Sandbox) -> None:
    box.make_patches(1)
    assert box.run("sync")[0] == 0
    assert box.run("check")[0] == 0
    (box.tree / "src" / "b.c").write_text("by hand\n")
    code, text = box.run("check")
    assert code == 1
    assert "src/b.c" in text
    assert box.run("clean")[0] == 0
    assert not box.tree.exists()
    patch = next(box.patches.iterdir())
    patch.write_text(patch.read_text() + "\n-- \n2.40.0\n")
    code, text = box.run("check")
    assert code == 1
    assert patch.name in text


def test_edit_stops_where_a_patch_does_not_fit(box: Sandbox) -> None:
    shutil.rmtree(box.make_patches(1))
    box.set_archive({**FILES, "src-1/deep/ggml/src/a.c": "all new\n"})
    code, text = box.run("edit")
    assert code == 1
    assert "git am --continue" in text
    assert "under way" in box.run("export")[1]


def local_index(folder: Path, archive: Path) -> str:
    """A package index of one project as plain files."""
    project = folder / "src"
    project.mkdir(parents=True)
    shutil.copy(archive, project / archive.name)
    (project / "index.html").write_text(f'<a href="{archive.name}">{archive.name}</a>')
    return folder.as_uri()


def release_two(box: Sandbox, tmp_path: Path, files: dict[str, str]) -> None:
    """A second release of the source package, in an index."""
    pytest.importorskip("pypi_simple")
    newer = tmp_path / "src-2.tar.gz"
    version = VERSION.replace("PATCH 3", "PATCH 4")
    files = {**FILES, "src-1/deep/ggml/CMakeLists.txt": version, **files}
    write_archive(newer, {name.replace("src-1/", "src-2/"): text for name, text in files.items()})
    box.monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    box.monkeypatch.setenv("PIP_INDEX_URL", local_index(tmp_path / "index", newer))
    box.monkeypatch.setenv("PIP_FIND_LINKS", "")


def test_the_series_moves_to_another_release(box: Sandbox, tmp_path: Path) -> None:
    shutil.rmtree(box.make_patches(2))
    release_two(box, tmp_path, {"src-1/deep/ggml/src/a.c": "zero\none\ntwo\nthree\n"})
    pin = (box.root / "vendor" / "ggml.toml").read_text()
    code, text = box.run("rebase", "--pin", "2")
    assert code == 0, text
    assert (box.root / "vendor" / "ggml.toml").read_text() == pin, "export moves it"
    checkout = box.root / "vendor" / "rebase"
    assert (checkout / "src" / "a.c").read_text() == "zero\none\ntwo\nthree\nline 0\nline 1\n"
    assert box.run("export", str(checkout))[0] == 0
    moved = (box.root / "vendor" / "ggml.toml").read_text()
    for line in ('version = "2"', 'file = "src-2.tar.gz"', 'root = "src-2"', 'version = "1.2.4"'):
        assert line in moved
    box.monkeypatch.delenv("PYGGML_GGML_SDIST")
    assert box.run("check")[0] == 0
    assert box.run("sync")[0] == 0
    assert "line 1" in box.content()["src/a.c"]


def test_a_conflict_stops_and_goes_on(box: Sandbox, tmp_path: Path) -> None:
    shutil.rmtree(box.make_patches(2))
    release_two(box, tmp_path, {"src-1/deep/ggml/src/a.c": "one\ntwo\nthree!\n"})
    code, text = box.run("rebase", "--pin", "2")
    assert code == 1
    assert "src/a.c" in text
    assert "rebase --continue" in text
    checkout = box.root / "vendor" / "rebase"
    assert "under way" in box.run("export", str(checkout))[1]
    (checkout / "src" / "a.c").write_text("one\ntwo\nthree!\nline 0\n")
    for command in ("add .", "-c core.editor=true rebase --continue"):
        subprocess.run(["git", *command.split()], cwd=checkout, check=True, capture_output=True)
    code, text = box.run("export", str(checkout))
    assert code == 0, text
    assert 'version = "1.2.4"' in (box.root / "vendor" / "ggml.toml").read_text()
    assert len(list(box.patches.iterdir())) == 2


@pytest.mark.parametrize("line", ["three!", "three"])
def test_the_steps_that_are_printed_can_be_pasted(box: Sandbox, tmp_path: Path, line: str) -> None:
    shutil.rmtree(box.make_patches(1))
    release_two(box, tmp_path, {"src-1/deep/ggml/src/a.c": f"one\ntwo\n{line}\n"})
    folder = tmp_path / "a folder; of mine"
    code, text = box.run("rebase", "--pin", "2", str(folder))
    assert code == (1 if line == "three!" else 0)
    assert "\n  just cdef " in text
    commands = [
        shlex.split(found) for found in re.findall(r"^  ((?:git|python) [^#\n]*)", text, re.M)
    ]
    assert ["python", "scripts/vendor.py", "export", str(folder)] in commands
    assert all(str(folder) in found for found in commands)


def test_a_release_that_is_not_there(box: Sandbox, tmp_path: Path) -> None:
    release_two(box, tmp_path, {})
    code, text = box.run("rebase", "--pin", "3")
    assert code == 1
    assert "src-3.tar.gz could not be fetched" in text
    assert f"or copy the file to {box.root}" in text
    assert not (box.root / "vendor" / "rebase").exists()
    assert "must be a version" in box.run("rebase", "--pin", "../2")[1]
    for wrong in (["rebase"], ["check", "--pin", "2"], ["edit", "--alone"], ["clean", "folder"]):
        assert box.run(*wrong)[0] == 2


def test_patches_that_apply_alone(box: Sandbox) -> None:
    checkout = box.make_patches(2)
    (checkout / "src" / "b.c").write_text("alpha\nbeta\ngamma\n")
    subprocess.run(["git", "commit", "-qam", "ggml : gamma"], cwd=checkout, check=True)
    assert box.run("export")[0] == 0
    code, text = box.run("check", "--alone")
    assert code == 0, text
    assert text.splitlines() == [
        "0001-ggml-line-0.patch",
        "0003-ggml-gamma.patch",
        "vendor: 2 of 3 patches apply alone",
    ]


def test_stats_count_hunks_and_lines_that_are_undone(box: Sandbox) -> None:
    checkout = box.make_patches(2)
    (checkout / "src" / "a.c").write_text("1\ntwo\nthree\nline 1\n")
    (checkout / "src" / "c.c").write_text("new\n")
    subprocess.run(["git", "add", "-f", "src/c.c"], cwd=checkout, check=True)
    subprocess.run(["git", "commit", "-qam", "ggml : without line 0"], cwd=checkout, check=True)
    (checkout / "src" / "c.c").unlink()
    subprocess.run(["git", "commit", "-qam", "ggml : without c.c"], cwd=checkout, check=True)
    assert box.run("export")[0] == 0
    code, text = box.run("stats")
    assert code == 0, text
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "3 3 src/a.c" in lines
    assert "1 0001 by 0003" in lines
    assert "1 0003 by 0004" in lines
    assert lines[-1].endswith(
        "3 hunks in 1 files of ggml; 1 files made; 3 lines deleted, 2 of them of earlier patches"
    )


@pytest.mark.parametrize("verb", ["sync", "edit", "export", "check", "stats", "clean"])
@pytest.mark.parametrize("folder", ["none", "other"])
def test_a_root_that_is_no_project_is_refused(box: Sandbox, verb: str, folder: str) -> None:
    (box.root / "other").mkdir()
    box.root = box.root / folder
    code, text = box.run(verb)
    assert code == 1
    assert "vendor/ggml.toml" in text
    assert f"got {box.root}: " in text
    assert "leave --root out" in text
    assert box.root.is_dir() == (folder == "other")


def test_stats_of_no_patches_is_refused(box: Sandbox) -> None:
    code, text = box.run("stats")
    assert code == 1
    assert f"{box.patches} must have patches" in text


def test_fetches_from_pips_index_and_keeps_the_file(box: Sandbox, tmp_path: Path) -> None:
    pytest.importorskip("pypi_simple")
    index = local_index(tmp_path / "index", box.archive)
    box.monkeypatch.delenv("PYGGML_GGML_SDIST")
    box.monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    box.monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "none").as_uri())
    box.monkeypatch.setenv("PIP_EXTRA_INDEX_URL", index)
    box.monkeypatch.setenv("PIP_FIND_LINKS", "")
    code, text = box.run("sync")
    assert code == 0, text
    kept = box.root / "vendor" / "cache" / "src-1.tar.gz"
    assert kept.read_bytes() == box.archive.read_bytes()

    # Damaged: fetched again. Gone from the index too: told with every place that was asked.
    kept.write_bytes(b"damaged")
    (box.tree / ".vendor-stamp.json").unlink()
    assert box.run("sync")[0] == 0
    shutil.rmtree(tmp_path / "index" / "src")
    kept.unlink()
    (box.tree / ".vendor-stamp.json").unlink()
    code, text = box.run("sync")
    assert code == 1
    assert "could not be fetched" in text
    assert text.count("has no src") == 2


def test_pips_configuration_file_counts_in_a_build(box: Sandbox, tmp_path: Path) -> None:
    pytest.importorskip("pypi_simple")
    pytest.importorskip("pip")
    index = local_index(tmp_path / "index", box.archive)
    (tmp_path / "pip.conf").write_text(f"[global]\nindex-url = {index}\nfind-links =\n")
    # pip builds in an environment where a PYTHONPATH hides pip.
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "pip.py").write_text("raise ImportError('hidden')\n")
    for name in ("PYGGML_GGML_SDIST", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
        box.monkeypatch.delenv(name, raising=False)
    box.monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    box.monkeypatch.setenv("PYTHONPATH", str(hidden))
    code, text = box.run("sync")
    assert code == 0, text


def test_index_with_another_file_under_the_name(box: Sandbox, tmp_path: Path) -> None:
    pytest.importorskip("pypi_simple")
    index = local_index(tmp_path / "index", box.archive)
    (tmp_path / "index" / "src" / "src-1.tar.gz").write_bytes(b"something else")
    box.monkeypatch.delenv("PYGGML_GGML_SDIST")
    box.monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    box.monkeypatch.setenv("PIP_INDEX_URL", index)
    box.monkeypatch.setenv("PIP_FIND_LINKS", "")
    code, text = box.run("sync")
    assert code == 1
    assert "sha256 of" in text
    assert not box.tree.exists()
    assert not list((box.root / "vendor" / "cache").iterdir())


def test_no_password_in_messages() -> None:
    sys.path.insert(0, str(SCRIPTS))
    try:
        import vendor_fetch
    finally:
        sys.path.remove(str(SCRIPTS))
    assert vendor_fetch.redact("https://me:word@host/files") == "https://***@host/files"
    assert vendor_fetch.redact("https://host/files") == "https://host/files"


@pytest.mark.parametrize(
    "place",
    ["source.package", "source.file", "source.sha256", "source.root", "ggml.version",
     "tree.subtree"],
)  # fmt: skip
def test_a_pin_that_lacks_a_field_names_it(box: Sandbox, place: str) -> None:
    pin = box.root / "vendor" / "ggml.toml"
    key = place.partition(".")[2]
    table = f"[{place.partition('.')[0]}]"
    head, _, tail = pin.read_text().partition(table)
    lines = tail.splitlines(keepends=True)
    lines.remove(next(line for line in lines if line.startswith(f"{key} =")))
    pin.write_text(head + table + "".join(lines))
    code, text = box.run("sync")
    assert code == 1
    assert "ggml.toml" in text
    assert place in text


@pytest.mark.parametrize("content", ["source = 3", "[source]\nsha256 = 5", "\xff"])
def test_a_pin_of_other_kinds_is_refused(box: Sandbox, content: str) -> None:
    (box.root / "vendor" / "ggml.toml").write_bytes(content.encode("latin-1"))
    code, text = box.run("sync")
    assert code == 1
    assert "ggml.toml" in text


def test_a_hash_that_is_none_is_refused(box: Sandbox) -> None:
    box.set_pin("abc")
    code, text = box.run("sync")
    assert code == 1
    assert "source.sha256 must be 64 digits" in text


def test_a_damaged_stream_with_the_right_hash_is_refused(box: Sandbox) -> None:
    write_archive(box.archive, {"src-1/deep/ggml/big.c": "x" * 100_000, **FILES})
    packer = zlib.compressobj(wbits=31)
    data = packer.compress(gzip.decompress(box.archive.read_bytes())[:50_000])
    # Two bits of the seven announce a kind of block that does not exist.
    data += packer.flush(zlib.Z_FULL_FLUSH) + b"\x07" * 64
    box.archive.write_bytes(data)
    box.set_pin(hashlib.sha256(data).hexdigest())
    code, text = box.run("sync")
    assert code == 1
    assert "cannot be unpacked" in text
    assert not box.tree.exists()
