# SPDX-License-Identifier: MIT
"""Make vendor/ggml of the pinned archive and the patches; see vendor.py."""

from __future__ import annotations

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


class Project:
    """Where things are, below the project's root."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.vendor = self.root / "vendor"
        self.pin_file = self.vendor / "ggml.toml"
        self.tree = self.vendor / "ggml"
        self.cache = self.vendor / "cache"
        self.patch_dir = self.root / "patches"
        self.tree_hash = self.vendor / "ggml.sha256"
        if not self.pin_file.is_file():
            what = "has no such file" if self.root.is_dir() else "there is no such folder"
            raise VendorError(
                f"--root must be the project's folder, with vendor/ggml.toml; got {self.root}: "
                f"{what}; name another, or leave --root out"
            )

    def pin(self, file: Path | None = None) -> dict[str, Any]:
        """What the project's pin says, or another file of its form."""
        file = file or self.pin_file
        try:
            pin = tomllib.loads(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise VendorError(f"the pin cannot be read: {file}: {error}") from error
        for place in PIN_FIELDS:
            table, _, key = place.partition(".")
            inner = pin.get(table)
            if not isinstance(inner, dict) or not isinstance(inner.get(key), str):
                raise VendorError(f"{file} must have {place}, a text; add it")
        if not re.fullmatch("[0-9a-f]{64}", pin["source"]["sha256"]):
            raise VendorError(
                f"{file}: source.sha256 must be 64 digits of 0-9 and a-f; "
                f"got {pin['source']['sha256']!r}"
            )
        extra = pin["tree"].get("extra", {})
        if not isinstance(extra, dict) or not all(isinstance(v, str) for v in extra.values()):
            raise VendorError(f"{file}: tree.extra must be a table of texts")
        return pin

    def series(self) -> list[Path]:
        """The patches, of which there must be one."""
        patches = self.patches()
        if not patches:
            raise VendorError(
                f"{self.patch_dir} must have patches such as 0001-name.patch; got none: restore "
                "them, or write them with `vendor.py export`"
            )
        return patches

    def patches(self) -> list[Path]:
        """The patches in their order; none for ggml as it is."""
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
        # The stamp lies in the tree and may have been changed with it; this hash is committed.
        self.check_hash(
            found, f"vendor/ggml and its stamp, or the file, were changed by hand; {CURE}"
        )

    def check_hash(self, files: dict[str, str], what: str) -> None:
        """Raise unless the hashes of a tree's files are those that `export` noted."""
        if not self.patches() and not self.tree_hash.is_file():
            return  # a project before its first export
        if not self.tree_hash.is_file():
            raise VendorError(
                f"{self.tree_hash} must be there: restore it, or run `vendor.py export`"
            )
        noted = self.tree_hash.read_text(encoding="utf-8", errors="replace").strip()
        found = hash_of(files)
        if noted != found:
            raise VendorError(
                f"the patched tree must have the hash of vendor/ggml.sha256, {noted[:64]!r}; "
                f"got {found}: {what}"
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


def extract(pin: dict[str, Any], source: Path, target: Path, check: bool = True) -> None:
    """Unpack the pinned subtree and the extra files to `target`, which must be empty.

    Args:
        check: that ggml is of the version that the pin names.
    """
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
    found, wanted = ggml_version(target), pin["ggml"]["version"]
    if check and found != wanted:
        raise VendorError(f"ggml.version in vendor/ggml.toml is {wanted}; the archive has {found}")


def ggml_version(tree: Path) -> str:
    """The version that ggml's own files name."""
    lists = tree / "CMakeLists.txt"
    text = lists.read_text(encoding="utf-8") if lists.is_file() else ""
    return ".".join(re.findall(r"set\(GGML_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)\)", text))


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


def tree_files(tree: Path) -> dict[str, Path]:
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
        for name, path in sorted(tree_files(tree).items())
    }


def hash_of(files: dict[str, str]) -> str:
    """One SHA-256 of the names and hashes of a tree's files."""
    text = "".join(f"{files[name]}  {name}\n" for name in sorted(files))
    return hashlib.sha256(text.encode()).hexdigest()


def _keep_times(old: Path, new: Path) -> None:
    """Give unchanged files their old times, so that a build redoes only what changed."""
    for name, path in tree_files(new).items():
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
            files = hashes(new)
            cure = (
                "the patches make another tree; write them with `python scripts/vendor.py export`"
            )
            project.check_hash(files, cure)
            text = json.dumps({**stamp, "files": files}, indent=1)
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


def clean(project: Project) -> None:
    """Remove what sync made."""
    for folder in (project.tree, project.cache, *project.vendor.glob(".ggml-*")):
        shutil.rmtree(folder, ignore_errors=True)
    (project.vendor / ".lock").unlink(missing_ok=True)
