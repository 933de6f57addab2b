# SPDX-License-Identifier: MIT
"""Write docs/guide/pytorch.md: what is called as in PyTorch, and what differs.

The calls are those of tests/tensors/calls.py, each of which a test compares with PyTorch's numbers
and gradients. `--check` compares and writes nothing.
"""

from __future__ import annotations

import re
import sys

from generated_page import ROOT, write_or_check

sys.path.insert(0, str(ROOT))
from tests.tensors.calls import ALIKE

PAGE = ROOT / "docs" / "guide" / "pytorch.md"
DIFFERS = ROOT / "scripts" / "pytorch_differs.md"


def names() -> dict[str, list[str]]:
    """The functions and methods of the calls, by where they are found."""
    text = " ".join(ALIKE)
    found = {
        "`F.`": r"\bF\.(\w+)\(",
        "`pg.`": r"\bT\.(\w+)\(",
        "tensor methods": r"(?<![TF])\.(\w+)\(",
    }
    return {where: sorted(set(re.findall(pattern, text))) for where, pattern in found.items()}


def page() -> str:
    """The page's text."""
    lines = [DIFFERS.read_text(encoding="utf-8").rstrip(), "", "## Called alike", ""]
    lines += [
        f"{len(ALIKE)} calls are tested against PyTorch: the same text gives the same numbers and"
        " gradients, with `pg` for `torch` and `pg.nn.functional` for `F`.",
        "",
        "| where | names |",
        "|---|---|",
    ]
    for where, found in names().items():
        lines.append(f"| {where} | {', '.join(f'`{name}`' for name in found)} |")
    lines += ["", "Also operators (`+ - * / ** @ == != < <= > >= & | ~`), and indexing:", ""]
    indexed = [call for call in ALIKE if re.fullmatch(r"\w+\[.*\]", call)]
    lines += [", ".join(f"`{call}`" for call in indexed) + ".", ""]
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Write or compare the page."""
    return write_or_check(PAGE, page, "torch-doc", __doc__, argv)


if __name__ == "__main__":
    sys.exit(main())
