# SPDX-License-Identifier: MIT
"""Classes in Hugging Face's files."""

from __future__ import annotations

from typing import Any

from ..config import label_names
from .fields import HFConfig

__all__ = ["read_labels", "write_labels"]


def read_labels(given: HFConfig) -> dict[str, Any]:
    """Read the number of classes, and their names where they have any.

    Raises:
        FormatError: `id2label` does not name the numbers from 0 on.
    """
    names = given.get("id2label", {"0": "LABEL_0", "1": "LABEL_1"})
    wanted = [str(i) for i in range(len(names))] if isinstance(names, dict) else []
    labels = {str(number): name for number, name in names.items()} if wanted else {}
    if not wanted or sorted(labels) != sorted(wanted):
        raise given.error("id2label", "names by the numbers from 0 on")
    named = any(labels[i] != f"LABEL_{i}" for i in wanted)
    return {
        "classes": len(wanted),
        "labels": tuple(labels[i] for i in wanted) if named else None,
    }


def write_labels(config: Any) -> dict[str, Any]:
    """Return the names of the classes, as transformers numbers them."""
    labels = label_names(config)
    return {
        "id2label": {str(i): name for i, name in enumerate(labels)},
        "label2id": {name: i for i, name in enumerate(labels)},
    }
