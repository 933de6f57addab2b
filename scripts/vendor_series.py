# SPDX-License-Identifier: MIT
"""Edit, export, check and move the series of patches; see vendor.py."""

from __future__ import annotations

import re
import shlex
import shutil
import tempfile
from pathlib import Path
from typing import Any

from vendor_fetch import VendorError, archive, fetch
from vendor_tree import (
    Project,
    build_tree,
    extract,
    ggml_version,
    git,
    hash_of,
    hashes,
    tree_files,
)

DATE = "2000-01-01T00:00:00+0000"
NAME, EMAIL = "The ggml authors", "ggml@localhost"
# The pin of a checkout that `rebase` made, in its .git; `export` moves the project's pin to it.
MOVED = "ggml.toml"


def _commit_base(pin: dict[str, Any], source: Path, folder: Path) -> str:
    """Unpack the pin to `folder` as a git repository; the commit's id depends on the pin alone."""
    extract(pin, source, folder)
    git(folder, "init", "-q", "--template=", "--object-format=sha1", "-b", "main")
    for key, value in {
        "user.name": "The pyggml authors",
        "user.email": "pyggml@localhost",
        "core.autocrlf": "false",
        "core.fileMode": "false",
        "commit.gpgSign": "false",
        "gc.auto": "0",
    }.items():
        git(folder, "config", key, value)
    git(folder, "add", "-A", "-f")
    who = {f"GIT_{r}_{k}": v for r in ("AUTHOR", "COMMITTER")
           for k, v in (("NAME", NAME), ("EMAIL", EMAIL), ("DATE", DATE))}  # fmt: skip
    message = f"ggml {pin['ggml']['version']} as in {pin['source']['file']}"
    git(folder, "commit", "-q", "--no-verify", "-m", message, env=who)
    git(folder, "tag", "base")
    return git(folder, "rev-parse", "base^{commit}").strip()


def _am(folder: Path, patches: list[Path]) -> None:
    """Commit the series on the base."""
    if patches:
        git(folder, "am", "-q", "--keep-cr", "--keep-non-patch", "--whitespace=nowarn",
            "--committer-date-is-author-date", *(str(p.resolve()) for p in patches))  # fmt: skip


def edit(project: Project, folder: Path) -> None:
    """Make the checkout in which the series is written."""
    if folder.exists() and any(folder.iterdir()):
        raise VendorError(f"{folder} exists already; export its commits, then remove it")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        pin = project.pin()
        _commit_base(pin, archive(pin, project.cache), folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    try:
        _am(folder, project.patches())
    except VendorError as error:
        raise VendorError(
            f"{error}\nThe checkout {folder} stands at the patch that does not fit: mend the "
            "files, `git add` them, `git am --continue`, then `vendor.py export`."
        ) from error
    print(f"vendor: {folder}: {len(project.patches())} commits on base")


def _write_series(folder: Path, target: Path) -> list[Path]:
    """git format-patch with every choice spelled out, so that the bytes depend on nothing else."""
    git(folder, "-c", "core.quotePath=true", "-c", "diff.algorithm=myers", "format-patch", "-q",
        "--zero-commit", "--no-signature", "--no-stat", "--no-numbered", "--full-index",
        "--no-thread", "--no-attach", "--no-cover-letter", "--no-renames", "--no-color",
        "--no-ext-diff", "--no-textconv", "--unified=3", "--src-prefix=a/", "--dst-prefix=b/",
        "-o", str(target.resolve()), "base..HEAD")  # fmt: skip
    return sorted(target.glob("*.patch"))


def export(project: Project, folder: Path) -> None:
    """Write the checkout's commits to patches/."""
    if not (folder / ".git").is_dir():
        raise VendorError(f"{folder} is not a checkout; make one with `vendor.py edit`")
    for busy in ("rebase-apply", "rebase-merge", "CHERRY_PICK_HEAD", "MERGE_HEAD"):
        if (folder / ".git" / busy).exists():
            raise VendorError(f"an am, rebase or merge is under way in {folder}; end it")
    if git(folder, "rev-parse", "--abbrev-ref", "HEAD").strip() == "HEAD":
        raise VendorError(
            f"{folder} must have a branch checked out; got a commit alone, which may lack "
            "the last patches: run `git checkout main` there, or `git checkout -B main` if the "
            "series is to end at that commit"
        )
    changed = git(folder, "status", "--porcelain").strip()
    if changed:
        raise VendorError(
            f"{folder} has changes that are not committed, or files (??) that git does not know; "
            f"commit or remove them:\n{changed}"
        )
    if git(folder, "rev-list", "-1", "base", "^HEAD").strip():
        raise VendorError(
            f"{folder} does not stand on its tag `base`, as after an aborted rebase; "
            "make a new checkout with `vendor.py edit`"
        )
    if git(folder, "rev-list", "--merges", "base..HEAD").strip():
        raise VendorError("the series must be linear; rebase the merges away")
    for line in git(folder, "log", "--format=%H %s", "base..HEAD").splitlines():
        commit, _, subject = line.partition(" ")
        if re.match(r"(fixup|squash|amend)! ", subject):
            raise VendorError(
                f"{folder} has a commit that belongs into another: {subject!r}; "
                "run `git rebase -i --autosquash base` there"
            )
        if not git(folder, "diff", "--name-only", f"{commit}^", commit).strip():
            raise VendorError(f"{folder} has a commit without a change: {subject!r}; drop it")
    with tempfile.TemporaryDirectory() as temporary:
        fresh = Path(temporary) / "base"
        fresh.mkdir()
        moved = folder / ".git" / MOVED
        pin = project.pin(moved if moved.is_file() else None)
        # PYGGML_GGML_SDIST names the file of the pin that is to be moved.
        kept = project.cache / pin["source"]["file"]
        source = kept if moved.is_file() and kept.is_file() else archive(pin, project.cache)
        base = _commit_base(pin, source, fresh)
        if git(folder, "rev-parse", "base^{commit}").strip() != base:
            raise VendorError(
                f"{folder} stands on another base than vendor/ggml.toml's; "
                "make a new checkout with `vendor.py edit` and bring the commits over"
            )
        series = Path(temporary) / "series"
        series.mkdir()
        written = _write_series(folder, series)
        project.patch_dir.mkdir(exist_ok=True)
        names, before = {path.name for path in written}, project.patches()
        for old in before:
            if old.name not in names:
                old.unlink()
        for path in written:
            out = project.patch_dir / path.name
            if not out.is_file() or out.read_bytes() != path.read_bytes():
                out.write_bytes(path.read_bytes())
        made = Path(temporary) / "made"
        git(folder, "archive", "--format=tar", "-o", str(made.with_suffix(".tar")), "HEAD")
        shutil.unpack_archive(made.with_suffix(".tar"), made)
        project.tree_hash.write_text(hash_of(hashes(made)) + "\n", encoding="utf-8")
        if moved.is_file() and moved.read_bytes() != project.pin_file.read_bytes():
            project.pin_file.write_bytes(moved.read_bytes())
            print(f"vendor: {project.pin_file.name} names {pin['source']['file']} now")
    fewer = f"; there were {len(before)}" if len(written) < len(before) else ""
    print(f"vendor: {len(written)} patches exported{fewer}")


def check(project: Project) -> None:
    """The series must apply exactly and come out of `export` as it went in."""
    with tempfile.TemporaryDirectory() as temporary:
        checkout, applied = Path(temporary) / "edit", Path(temporary) / "tree"
        series = Path(temporary) / "series"
        for folder in (checkout, applied, series):
            folder.mkdir()
        pin = project.pin()
        _commit_base(pin, archive(pin, project.cache), checkout)
        _am(checkout, project.patches())
        build_tree(project, applied)
        ours = {p.name: p.read_bytes() for p in project.patches()}
        again = {p.name: p.read_bytes() for p in _write_series(checkout, series)}
        wrong = sorted(n for n in ours.keys() | again.keys() if ours.get(n) != again.get(n))
        if wrong:
            raise VendorError(
                f"not as `vendor.py export` writes them: {', '.join(wrong)}; "
                "run `vendor.py edit`, then `vendor.py export`"
            )
        shutil.rmtree(checkout / ".git")
        _compare(checkout, applied, "git am and git apply disagree")
        project.check_hash(hashes(applied), "run `vendor.py edit`, then `vendor.py export`")
        if project.tree_stamp() == project.stamp():
            _compare(project.tree, applied, "vendor/ggml was changed by hand")
    print(f"vendor: {len(ours)} patches apply and export the same bytes")


def _compare(left: Path, right: Path, what: str) -> None:
    """Raise, naming the files, unless both trees hold the same."""
    one, two = tree_files(left), tree_files(right)
    differ = sorted(
        name for name in one.keys() | two.keys()
        if name not in one or name not in two or one[name].read_bytes() != two[name].read_bytes()
    )  # fmt: skip
    if differ:
        raise VendorError(f"{what}: {', '.join(differ[:10])}")


def alone(project: Project) -> None:
    """Print which patches apply to the pinned ggml without the others."""
    with tempfile.TemporaryDirectory() as temporary:
        pin = project.pin()
        _commit_base(pin, archive(pin, project.cache), Path(temporary))
        fits = []
        for patch in project.patches():
            try:
                git(Path(temporary), "apply", "--check", str(patch.resolve()))
            except VendorError:
                continue
            fits.append(patch)
            print(patch.name)
    print(f"vendor: {len(fits)} of {len(project.patches())} patches apply alone")


def move_pin(project: Project, version: str) -> str:
    """Fetch another release of the source package; return the text of the pin that names it."""
    pin, text = project.pin(), project.pin_file.read_text(encoding="utf-8")
    source, old = pin["source"], pin["source"].get("version")
    if not isinstance(old, str) or old not in source["file"]:
        raise VendorError(f"{project.pin_file} must have source.version, a part of source.file")
    if not re.fullmatch(r"[0-9A-Za-z.]+", version):
        raise VendorError(f"--pin must be a version of {source['package']}; got {version!r}")
    for name in ("version", "file", "root"):
        text = text.replace(f'"{source[name]}"', f'"{source[name].replace(old, version)}"')
    sha256 = fetch(source["package"], source["file"].replace(old, version), project.cache)
    text = text.replace(source["sha256"], sha256)
    # The package's last number is the build of llama.cpp that it holds.
    builds = [f'"b{each.rpartition(".")[2]}"' for each in (old, version)]
    text = text.replace(*builds)
    with tempfile.TemporaryDirectory() as temporary:
        moved = Path(temporary) / MOVED
        moved.write_text(text, encoding="utf-8")
        new = project.pin(moved)
        extract(new, project.cache / new["source"]["file"], Path(temporary) / "tree", check=False)
        found = ggml_version(Path(temporary) / "tree")
    return text.replace(f'"{pin["ggml"]["version"]}"', f'"{found}"')


def rebase(project: Project, folder: Path, version: str) -> None:
    """Bring the series to another release, in a checkout; `export` then moves the pin as well."""
    text = move_pin(project, version)
    edit(project, folder)
    moved = folder / ".git" / MOVED
    moved.write_text(text, encoding="utf-8")
    with tempfile.TemporaryDirectory() as temporary:
        pin = project.pin(moved)
        base = _commit_base(pin, project.cache / pin["source"]["file"], Path(temporary))
        git(folder, "fetch", "-q", "--no-tags", str(Path(temporary).resolve()), "main")
    git(folder, "tag", "before", "base")
    git(folder, "tag", "-f", "base", base)
    git(folder, "config", "rerere.enabled", "true")
    quoted = shlex.quote(str(folder))
    last = (
        f"  python scripts/vendor.py export {quoted}    # writes patches/ and vendor/ggml.toml\n"
        "  just cdef    # writes src/pyggml/backend/_cdef.h"
    )
    steps = (
        f"  git -C {quoted} status                 # the files in conflict: mend them\n"
        f"  git -C {quoted} add FILES\n"
        f"  git -C {quoted} -c core.editor=true rebase --continue\n"
        f"until it ends, and then\n{last}"
    )
    try:
        git(folder, "rebase", "-q", "--onto", "base", "before", "main")
    except VendorError as error:
        raise VendorError(
            f"{error}\nThe series stands at a patch in conflict. Repeat\n{steps}"
        ) from error
    count = len(git(folder, "rev-list", "base..main").split())
    print(f"vendor: {folder}: {count} commits on {pin['source']['file']}, none in conflict; then")
    print(last)
