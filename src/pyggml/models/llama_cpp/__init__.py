# SPDX-License-Identifier: MIT
"""What llama.cpp says of a GGUF file, by rules of our own: nothing of llama.cpp runs here."""

from .rules import Finding, check_gguf, check_model
from .saving import check_saving

__all__ = ["Finding", "check_gguf", "check_model", "check_saving"]
