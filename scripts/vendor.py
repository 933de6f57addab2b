# SPDX-License-Identifier: MIT
"""Keep vendor/ggml: fetch the pinned source, apply patches/, edit and export the series.

sync    fetch, verify, unpack, patch, stamp; when the stamp is fresh, compare each file with it
edit    make a git checkout: the base tagged `base`, one commit per patch
export  write that checkout's commits back to patches/
check   apply the series and export it again: the same bytes must come out
clean   remove vendor/ggml and the fetched archive

The archive comes from the package index that pip is configured for, or from the file that
PYGGML_GGML_SDIST names.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from vendor_fetch import VendorError, archive, sha256_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

STAMP = ".vendor-stamp.json"
# Raised when what this script makes of the same pin and patches changes.
LAYOUT = 2
PIN_FIELDS = (
    "source.package",
    "source.file",
    "source.sha256",
    "source.root",
    "ggml.version",
    "tree.subtree",
)
CURE = (
    "to keep a change, make it in `python scripts/vendor.py edit` and `export` it; "
    "then remove vendor/ggml and run `python scripts/vendor.py sync`"
)
DATE = "2000-01-01T00:00:00+0000"
NAME, EMAIL = "The ggml authors", "ggml@localhost"


class Project:
    """Where things are, below the project's root."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.vendor = self.root / "vendor"
        self.pin_file = self.vendor / "ggml.toml"
        self.tree = self.vendor / "ggml"
        self.cache = self.vendor / "cache"
        self.patch_dir = self.root / "patches"

    def pin(self) -> dict[str, Any]:
        try:
            pin = tomllib.loads(self.pin_file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise VendorError(f"the pin cannot be read: {self.pin_file}: {error}") from error
        for place in PIN_FIELDS:
            table, _, key = place.partition(".")
            inner = pin.get(table)
            if not isinstance(inner, dict) or not isinstance(inner.get(key), str):
                raise VendorError(f"{self.pin_file} must have {place}, a text; add it")
        if not re.fullmatch("[0-9a-f]{64}", pin["source"]["sha256"]):
            raise VendorError(
                f"{self.pin_file}: source.sha256 must be 64 digits of 0-9 and a-f; "
                f"got {pin['source']['sha256']!r}"
            )
        extra = pin["tree"].get("extra", {})
        if not isinstance(extra, dict) or not all(isinstance(v, str) for v in extra.values()):
            raise VendorError(f"{self.pin_file}: tree.extra must be a table of texts")
        return pin

    def patches(self) -> list[Path]:
        return sorted(self.patch_dir.glob("[0-9][0-9][0-9][0-9]-*.patch"))

    def stamp(self) -> dict[str, Any]:
        series = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in self.patches()}
        pin = self.pin()
        return {"layout": LAYOUT, "pin": pin, "patches": series}

    def tree_stamp(self) -> dict[str, Any] | None:
        """What the tree was made of, or None: its stamp without the hashes of its files."""
        stamp = self._read_stamp()
        return None if stamp is None else {k: v for k, v in stamp.items() if k != "files"}

    def check_tree(self) -> None:
        """Raise, naming the files, unless the tree holds what its stamp has hashes of."""
        made, found = (self._read_stamp() or {}).get("files"), hashes(self.tree)
        if not isinstance(made, dict):
            raise VendorError(f"{self.tree / STAMP} must have files, a table; {CURE}")
        wrong = [
            f"{name} ({'new' if name not in made else 'gone' if name not in found else 'changed'})"
            for name in sorted(found.keys() | made.keys())
            if found.get(name) != made.get(name)
        ]
        if wrong:
            more = f" and {len(wrong) - 10} more" if len(wrong) > 10 else ""
            raise VendorError(
                f"vendor/ggml was changed by hand: {', '.join(wrong[:10])}{more}; {CURE}"
            )

    def _read_stamp(self) -> dict[str, Any] | None:
        try:
            stamp = json.loads((self.tree / STAMP).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return stamp if isinstance(stamp, dict) else None


def git(cwd: Path, *args: str, env: dict[str, str] | None = None) -> str:
    """Run git in `cwd`, untouched by the caller's configuration and outer repositories."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    clean |= {
        # Without it, `git apply` in an ignored folder of an outer repository changes nothing.
        "GIT_CEILING_DIRECTORIES": str(cwd.resolve().parent),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
    }
    clean |= env or {}
    try:
        done = subprocess.run(
            ["git", *args], cwd=cwd, env=clean, capture_output=True, text=True, check=False
        )
    except FileNotFoundError as error:
        raise VendorError("git is needed to apply the patches; install git") from error
    if done.returncode:
        text = (done.stderr.strip() or done.stdout.strip()).replace("\n", "\n  ")
        raise VendorError(f"git {args[0]} failed:\n  {text}")
    return done.stdout


def _safe(name: str) -> PurePosixPath:
    """The archive entry's path; raises where it leads out of the archive's folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or re.match(r"[A-Za-z]:", name):
        raise VendorError(f"the archive has an entry that escapes its folder: {name!r}; refused")
    return path


def extract(pin: dict[str, Any], source: Path, target: Path) -> None:
    """Unpack the pinned subtree and the extra files to `target`, which must be empty."""
    root = PurePosixPath(pin["source"]["root"])
    subtree = root / pin["tree"]["subtree"]
    extra = {root / inside: out for out, inside in pin["tree"].get("extra", {}).items()}
    count = 0
    try:
        with tarfile.open(source) as tar:
            for member in tar:
                path = _safe(member.name)
                if path in extra:
                    out = target / extra.pop(path)
                elif path.is_relative_to(subtree):
                    out = target / path.relative_to(subtree)
                else:
                    continue
                if member.isdir():
                    continue
                file = tar.extractfile(member) if member.isreg() else None
                if file is None:
                    raise VendorError(
                        f"the archive's {member.name!r} must be a plain file; "
                        "links and devices are refused"
                    )
                out.parent.mkdir(parents=True, exist_ok=True)
                out.write_bytes(file.read())
                count += path.is_relative_to(subtree)
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise VendorError(f"{source} cannot be unpacked: {error}") from error
    missing = [str(path) for path in extra] + ([] if count else [str(subtree)])
    if missing:
        raise VendorError(f"{source.name} lacks {', '.join(missing)}, which vendor/ggml.toml wants")
    _check_version(target, pin["ggml"]["version"])


def _check_version(tree: Path, version: str) -> None:
    """The unpacked ggml must be the version that the pin names."""
    lists = tree / "CMakeLists.txt"
    text = lists.read_text(encoding="utf-8") if lists.is_file() else ""
    found = ".".join(re.findall(r"set\(GGML_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)\)", text))
    if found != version:
        raise VendorError(f"ggml.version in vendor/ggml.toml is {version}; the archive has {found}")


def _touched(patch: Path) -> set[str]:
    """The files that a patch names on either side."""
    text = patch.read_text(encoding="utf-8", errors="surrogateescape")
    names = re.findall(r"^(?:\+\+\+ b|--- a)/(.+?)\t?$", text, re.MULTILINE)
    return set(names) | set(re.findall(r"^rename (?:from|to) (.+)$", text, re.MULTILINE))


def apply(tree: Path, patches: list[Path]) -> None:
    """Apply the series to `tree`, in order; each patch must fit exactly and change something."""

    def state(names: set[str]) -> dict[str, bytes | None]:
        return {n: (tree / n).read_bytes() if (tree / n).is_file() else None for n in names}

    for patch in patches:
        before = state(_touched(patch))
        try:
            git(tree, "apply", "--whitespace=nowarn", str(patch.resolve()))
        except VendorError as error:
            raise VendorError(
                f"{patch.name} does not apply: {error}\n"
                "Run `python scripts/vendor.py edit`, mend the series there, then `export`."
            ) from error
        if state(set(before)) == before:
            raise VendorError(f"{patch.name} changed nothing; it is empty, or git skipped it")


def build_tree(project: Project, target: Path) -> None:
    """Unpack and patch to `target`."""
    pin = project.pin()
    extract(pin, archive(pin, project.cache), target)
    apply(target, project.patches())


def _files(tree: Path) -> dict[str, Path]:
    """Relative name to path of every file and link, the stamp aside."""
    found = {
        p.relative_to(tree).as_posix(): p
        for p in tree.rglob("*")
        if p.is_symlink() or not p.is_dir()
    }
    found.pop(STAMP, None)
    return found


def hashes(tree: Path) -> dict[str, str]:
    """Relative name to SHA-256 of every file, the stamp aside; sync makes no links."""
    return {
        name: "not a plain file" if path.is_symlink() or not path.is_file() else sha256_of(path)
        for name, path in sorted(_files(tree).items())
    }


def _keep_times(old: Path, new: Path) -> None:
    """Give unchanged files their old times, so that a build redoes only what changed."""
    for name, path in _files(new).items():
        before = old / name
        if not before.is_file():
            continue
        times = before.stat()
        if times.st_size == path.stat().st_size and before.read_bytes() == path.read_bytes():
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


@contextlib.contextmanager
def _lock(project: Project) -> Iterator[None]:
    """One sync at a time, where the system has file locks."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with (project.vendor / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def sync(project: Project) -> None:
    """Make vendor/ggml what the pin and the patches say; a tree changed by hand is refused."""
    if project.tree_stamp() == project.stamp():
        project.check_tree()
        return
    with _lock(project):
        stamp = project.stamp()
        if project.tree_stamp() == stamp:
            project.check_tree()
            return
        for left in project.vendor.glob(".ggml-*"):
            shutil.rmtree(left, ignore_errors=True)
        work = Path(tempfile.mkdtemp(prefix=".ggml-", dir=project.vendor))
        try:
            new, old = work / "new", work / "old"
            new.mkdir()
            build_tree(project, new)
            text = json.dumps({**stamp, "files": hashes(new)}, indent=1)
            (new / STAMP).write_text(text + "\n", encoding="utf-8")
            if project.tree.exists():
                _keep_times(project.tree, new)
                project.tree.rename(old)
            try:
                new.rename(project.tree)
            except OSError:
                if old.exists():
                    old.rename(project.tree)
                raise
        finally:
            shutil.rmtree(work, ignore_errors=True)
    print(f"vendor: ggml {stamp['pin']['ggml']['version']}, {len(stamp['patches'])} patches")


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
    one, two = _files(left), _files(right)
    differ = sorted(
        name for name in one.keys() | two.keys()
        if name not in one or name not in two or one[name].read_bytes() != two[name].read_bytes()
    )  # fmt: skip
    if differ:
        raise VendorError(f"check: {what}: {', '.join(differ[:10])}")


def clean(project: Project) -> None:
    """Remove what sync made."""
    for folder in (project.tree, project.cache, *project.vendor.glob(".ggml-*")):
        shutil.rmtree(folder, ignore_errors=True)
    (project.vendor / ".lock").unlink(missing_ok=True)


def main(argv: list[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="vendor.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("verb", choices=("sync", "edit", "export", "check", "clean"))
    parser.add_argument("folder", nargs="?", type=Path, help="checkout of edit and export")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    args = parser.parse_args(argv)
    project = Project(args.root)
    folder = args.folder or project.vendor / "edit"
    try:
        if args.verb in ("edit", "export"):
            {"edit": edit, "export": export}[args.verb](project, folder)
        else:
            {"sync": sync, "check": check, "clean": clean}[args.verb](project)
    except (VendorError, OSError) as error:
        print(f"vendor: {args.verb}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
