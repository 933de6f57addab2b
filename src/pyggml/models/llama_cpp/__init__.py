# SPDX-License-Identifier: MIT
"""Rules that tell whether llama.cpp reads a GGUF file; nothing of llama.cpp runs here."""

from .rules import Finding, check_gguf, check_model
from .saving import check_saving

__all__ = ["Finding", "check_gguf", "check_model", "check_saving"]
