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
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from vendor_fetch import VendorError
from vendor_series import check, edit, export
from vendor_tree import Project, clean, sync


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
