# SPDX-License-Identifier: MIT
"""Keep vendor/ggml: fetch the pinned source, apply patches/, edit, export and move the series.

sync    fetch, verify, unpack, patch, stamp; when the stamp is fresh, compare each file with it
edit    make a git checkout: the base tagged `base`, one commit per patch
export  write that checkout's commits back to patches/, and the pin if `rebase` moved it
check   apply the series and export it again: the same bytes must come out;
        --alone lists the patches that apply to the pinned ggml without the others
rebase  make a checkout with the series on another release, --pin VERSION; a conflict stops it
stats   count the hunks by file, and the lines of a patch that a later one deletes
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
from vendor_series import alone, check, edit, export, rebase
from vendor_stats import stats
from vendor_tree import Project, clean, sync


def main(argv: list[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="vendor.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = ("sync", "edit", "export", "check", "rebase", "stats", "clean")
    parser.add_argument("verb", choices=verbs)
    parser.add_argument("folder", nargs="?", type=Path, help="checkout of edit, export and rebase")
    parser.add_argument("--pin", metavar="VERSION", help="release that rebase moves to")
    parser.add_argument("--alone", action="store_true", help="check each patch on its own")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    args = parser.parse_intermixed_args(argv)  # a folder after the options, too
    if (args.verb == "rebase") != (args.pin is not None):
        parser.error("rebase needs --pin VERSION, and nothing else takes it")
    if args.folder and args.verb not in ("edit", "export", "rebase"):
        parser.error(f"{args.verb} takes no folder; got {args.folder}")
    if args.alone and args.verb != "check":
        parser.error(f"--alone belongs to check; got {args.verb}")
    try:
        project = Project(args.root)
        folder = args.folder or project.vendor / ("rebase" if args.verb == "rebase" else "edit")
        if args.verb in ("edit", "export"):
            {"edit": edit, "export": export}[args.verb](project, folder)
        elif args.verb == "rebase":
            rebase(project, folder, args.pin)
        elif args.alone:
            alone(project)
        else:
            {"sync": sync, "check": check, "stats": stats, "clean": clean}[args.verb](project)
    except (VendorError, OSError) as error:
        print(f"vendor: {args.verb}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
