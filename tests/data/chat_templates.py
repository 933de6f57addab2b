# SPDX-License-Identifier: MIT
"""Real chat templates of the pinned source package, and tokenizers with their special tokens."""

from __future__ import annotations

import functools
import re
import tarfile
from pathlib import Path

import pytest

from pyggml.data import Tokenizer

_PACKAGES = sorted((Path(__file__).parents[2] / "vendor" / "cache").glob("xllamacpp-*.tar.gz"))
_FOLDER = "/thirdparty/llama.cpp/models/templates/"
# The marks of all templates: what stands in angle or square brackets without a space.
_MARKS = re.compile(r"<[|\uff5c]?[a-z_\u2581/|][\w\u2581]*[|\uff5c]?>|\[/?INST\]|\[e~\[|\]~b\]")


@functools.cache
def real() -> dict[str, str]:
    """Return the templates by name; skip where the package is not here."""
    if not _PACKAGES:
        pytest.skip("needs the source package in vendor/cache")
    found: dict[str, str] = {}
    with tarfile.open(_PACKAGES[-1]) as package:
        for member in package:
            if _FOLDER in member.name and member.name.endswith(".jinja"):
                file = package.extractfile(member)
                assert file is not None
                name = member.name.rpartition("/")[2].removesuffix(".jinja")
                found[name] = file.read().decode()
            elif found and _FOLDER not in member.name:
                break
    return found


def tokenizer_for(*texts: str, special: tuple[str, ...] = (), **ends: str | None) -> Tokenizer:
    """Return a byte-level tokenizer with special tokens.

    Args:
        texts: special tokens are looked for in them.
        special: further ones.
        ends: bos and eos.
    """
    import tokenizers

    letters = Tokenizer.train_bpe(["The answer is here. Hello\\n the two and three"] * 3, 300)
    backend = tokenizers.Tokenizer.from_str(letters.to_json())
    marks = {mark for text in texts for mark in _MARKS.findall(text)}
    backend.add_special_tokens(sorted({*marks, *special, *(end for end in ends.values() if end)}))
    return Tokenizer(backend, **ends)
