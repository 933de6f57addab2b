# SPDX-License-Identifier: MIT
"""The scripts of the check for a machine with a GPU, and what its stages may print."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from .loading import load

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "gpu_check.sh"
sys.path.insert(0, str(ROOT / "scripts"))
try:
    patches_check = load(ROOT / "scripts" / "patches_check.py")
    report = load(ROOT / "scripts" / "gpu_report.py")
    import gpu_judge as judging
finally:
    sys.path.remove(str(ROOT / "scripts"))
train = load(ROOT / "scripts" / "gpu_train.py")

__all__ = [
    "PASSED",
    "ROOT",
    "SCRIPT",
    "call",
    "judging",
    "patches_check",
    "report",
    "train",
    "training",
]

PASSED = "  ACC(ne=[2,3]): OK\n  ROPE(ne=[4]): OK\n"


def training(framework: str, losses: list[float], **more: Any) -> dict[str, Any]:
    found = {"framework": framework, "precision": "bf16", "losses": losses, "steps": len(losses)}
    found |= {"wanted_steps": 2, "is_warm": True, "step_ms": 8.0, "tokens_per_s": 100.0}
    return found | more


def call(results: Any, *words: str) -> None:
    assert report.main([str(results.state), str(results.out), *words]) == 0
