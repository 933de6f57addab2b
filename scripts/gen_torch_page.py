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
from tests.tensors.calls import ALIKE, MODULES, OF_MODULES, STEPS

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
    named = {where: sorted(set(re.findall(pattern, text))) for where, pattern in found.items()}
    layers = " ".join(call for call, _ in MODULES)
    named["`nn.`"] = sorted(set(re.findall(r"\bnn\.(\w+)\(", layers)))
    methods = " ".join(OF_MODULES)
    named["modules"] = sorted(set(re.findall(r"\bmodel\.(\w+)", methods)))
    named["`optim.`"] = sorted(set(re.findall(r"\boptim\.(\w+)\(", " ".join(STEPS))))
    return named


def page() -> str:
    """The page's text."""
    lines = [DIFFERS.read_text(encoding="utf-8").rstrip(), "", "## Called alike", ""]
    lines += [
        f"{len(ALIKE)} calls, {len(MODULES)} layers, {len(OF_MODULES)} calls of methods of modules"
        f" and {len(STEPS)} optimizers are tested against PyTorch: the same text gives the same"
        " numbers and gradients, with `pg` for `torch` and `pg.nn.functional` for `F`. The options"
        " that the tests give are in `tests/tensors/calls.py`.",
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
