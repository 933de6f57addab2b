# SPDX-License-Identifier: MIT
"""Edit, export and check the series of patches; see vendor.py."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from vendor_fetch import VendorError, archive
from vendor_tree import Project, build_tree, extract, git, tree_files

DATE = "2000-01-01T00:00:00+0000"
NAME, EMAIL = "The ggml authors", "ggml@localhost"


def _commit_base(project: Project, folder: Path) -> str:
    """Unpack the pin to `folder` as a git repository; the commit's id depends on the pin alone."""
    pin = project.pin()
    extract(pin, archive(pin, project.cache), folder)
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
        raise VendorError(f"edit: {folder} exists already; export its commits, then remove it")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        _commit_base(project, folder)
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
        raise VendorError(f"export: {folder} is not a checkout; make one with `vendor.py edit`")
    for busy in ("rebase-apply", "rebase-merge", "CHERRY_PICK_HEAD", "MERGE_HEAD"):
        if (folder / ".git" / busy).exists():
            raise VendorError(f"export: an am, rebase or merge is under way in {folder}; end it")
    changed = git(folder, "status", "--porcelain", "--untracked-files=no").strip()
    if changed:
        raise VendorError(f"export: {folder} has changes that are not committed:\n{changed}")
    if git(folder, "rev-list", "--merges", "base..HEAD").strip():
        raise VendorError("export: the series must be linear; rebase the merges away")
    with tempfile.TemporaryDirectory() as temporary:
        fresh = Path(temporary) / "base"
        fresh.mkdir()
        base = _commit_base(project, fresh)
        if git(folder, "rev-parse", "base^{commit}").strip() != base:
            raise VendorError(
                f"export: {folder} stands on another base than vendor/ggml.toml's; "
                "make a new checkout with `vendor.py edit` and bring the commits over"
            )
        series = Path(temporary) / "series"
        series.mkdir()
        written = _write_series(folder, series)
        project.patch_dir.mkdir(exist_ok=True)
        names = {path.name for path in written}
        for old in project.patches():
            if old.name not in names:
                old.unlink()
        for path in written:
            out = project.patch_dir / path.name
            if not out.is_file() or out.read_bytes() != path.read_bytes():
                out.write_bytes(path.read_bytes())
    print(f"vendor: {len(written)} patches exported")


def check(project: Project) -> None:
    """The series must apply exactly and come out of `export` as it went in."""
    with tempfile.TemporaryDirectory() as temporary:
        checkout, applied = Path(temporary) / "edit", Path(temporary) / "tree"
        series = Path(temporary) / "series"
        for folder in (checkout, applied, series):
            folder.mkdir()
        _commit_base(project, checkout)
        _am(checkout, project.patches())
        build_tree(project, applied)
        ours = {p.name: p.read_bytes() for p in project.patches()}
        again = {p.name: p.read_bytes() for p in _write_series(checkout, series)}
        wrong = sorted(n for n in ours.keys() | again.keys() if ours.get(n) != again.get(n))
        if wrong:
            raise VendorError(
                f"check: not as `vendor.py export` writes them: {', '.join(wrong)}; "
                "run `vendor.py edit`, then `vendor.py export`"
            )
        shutil.rmtree(checkout / ".git")
        _compare(checkout, applied, "git am and git apply disagree")
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
        raise VendorError(f"check: {what}: {', '.join(differ[:10])}")
