# SPDX-License-Identifier: MIT
"""Raise before a file that llama.cpp cannot read is written, and warn of other differences."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from ... import checks
from .layouts import NAMES
from .rules import check_model

__all__ = ["check_saving"]

_log = logging.getLogger("pyggml.models")


def check_saving(
    who: str,
    metadata: Mapping[str, Any],
    tensors: Mapping[str, tuple[int, ...]],
    strict: bool | None,
) -> None:
    """Raise for a file that llama.cpp would refuse; warn where it would compute another thing.

    A file without a vocabulary is written all the same, as are architectures that llama.cpp has
    not: only pyggml reads them.

    Args:
        who: the caller, for messages.
        metadata: of the file, with types.
        tensors: shapes by name.
        strict: whether another result in llama.cpp raises too; None checks nothing.

    Raises:
        ValueError: llama.cpp would refuse the file, or with strict compute another thing.
    """
    if strict is None or metadata.get("general.architecture") not in NAMES:
        return
    checks.flag(who, "strict", strict)
    found = check_model(metadata, tensors)
    bare = "tokenizer.ggml.model" not in metadata
    refused = [f for f in found if f.kind == "refused" and not (bare and "tokenizer" in f.where)]
    if refused:
        more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
        raise ValueError(
            f"{who}: llama.cpp must load the file; it would refuse {refused[0]}{more}; change the"
            " configuration, or give strict=None for a file that pyggml alone reads"
        )
    differs = [f for f in found if f.kind == "differs"]
    if differs and strict:
        raise ValueError(
            f"{who}: with strict=True llama.cpp must compute what pyggml computes; it would not:"
            f" {differs[0]}; change the configuration, or leave strict out"
        )
    for each in differs:
        _log.warning("%s: llama.cpp will compute another thing: %s", who, each)
