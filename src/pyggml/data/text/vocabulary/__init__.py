# SPDX-License-Identifier: MIT
"""Vocabularies between the `tokenizers` library and the GGUF keys that llama.cpp reads."""

from .bpe import build, byte_alphabet, cuttable, is_byte_level
from .charsmap import Charsmap
from .gguf import Vocabulary, from_gguf, to_gguf
from .growth import check_growth
from .special import END_NAMES, Special, split_special
from .ugm import coder

__all__ = [
    "Charsmap",
    "END_NAMES",
    "Special",
    "Vocabulary",
    "build",
    "byte_alphabet",
    "check_growth",
    "coder",
    "cuttable",
    "from_gguf",
    "is_byte_level",
    "split_special",
    "to_gguf",
]
