# SPDX-License-Identifier: MIT
"""Vocabularies of other models: the same tokens as llama.cpp, and the same text back."""

from __future__ import annotations

import functools
import os
import random
import re
import tarfile
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tokenizers")
pytest.importorskip("xllamacpp")
from pyggml.data import Tokenizer, embedded_text
from pyggml.data.text.vocabulary.patterns import PRE_TOKENIZERS
from pyggml.io import read_gguf

from ..data.test_vocabularies import PIECES, spm, ugm, wpm
from .test_tokenizer_llamacpp import TEXTS, compare

ROOT = Path(__file__).parents[2]
FILES = (
    "aquila baichuan bert-bge command-r deepseek-coder deepseek-llm falcon gemma-4 gpt-2 gpt-neox"
    " llama-bpe llama-spm mpt nomic-bert-moe phi-3 qwen2 qwen35 refact starcoder"
).split()
PARTS = [
    *(
        "'s 'S 'll 'VE '\u017f \u00a0 \u3000 the The ing 1234567 12 \u00bd \u00b2 <s> </s> <unk>"
        " [UNK] <|endoftext|> <mask> [MASK] </ ``` -> --> --- ... !? (a) {b} $x + ~/"
        " // \u3002 \u3001 \u2026 \u00dcn\u00efcode \u6f22\u5b57 \ud55c\uad6d\uc5b4"
        " \u0e44\u0e17\u0e22 \u0416\u0436 e\u0301 \u0640 \u02b0 \u0661\u0662\u0663 \u01c5"
        " \U0001f680 \U0001f469\u200d\U0001f467 <0x41> \u0f40 \u2167 \ue000"
        " \U000e0100 IMGIMGABZ <sentinel:3>"
    ).split(" "),
    *(" ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", "\x85", "\x1c", "\u2028", "//\n"),
]


def strings(count: int, seed: int = 0) -> list[str]:
    """Random texts: of all characters, of those of living scripts, ASCII, and parts of words."""
    rng = random.Random(seed)
    every = [
        chr(code)
        for code in range(0x110000)
        if not 0xD800 <= code < 0xE000 and unicodedata.category(chr(code)) != "Cn"
    ]
    scripts = [char for char in every if char < "\u3000"]
    plain = [chr(code) for code in range(32, 127)]
    pools = (every, scripts, plain, PARTS)

    def text(number: int) -> Iterator[str]:
        for _ in range(rng.randrange(1, 30)):
            pool = pools[number % 5] if number % 5 < 4 else rng.choice((scripts, plain, PARTS))
            yield rng.choice(pool)

    return ["".join(text(number)) for number in range(count)]


def lines(count: int) -> list[str]:
    """Lines of the manual, and of source."""
    sources = [path.read_text("utf-8") for path in sorted((ROOT / "src").rglob("*.py"))]
    found = [
        line for text in (*embedded_text(), *sources) for line in text.splitlines() if line.strip()
    ]
    return random.Random(1).sample(found, count)


def sample(texts: list[str]) -> list[str]:
    """Texts that a literal U+2581 does not make special."""
    return [text for text in texts if "\u2581" not in text]


def covered(tokenizer: Tokenizer, texts: list[str]) -> list[str]:
    """Texts for which there are tokens: llama.cpp drops characters that have none, we raise."""
    found = []
    for text in texts:
        try:
            tokenizer.encode(text)
        except ValueError:
            continue
        found.append(text)
    assert len(found) > 0.95 * len(texts)
    return found


@pytest.mark.parametrize(
    "metadata",
    [
        spm(PIECES),
        spm({**PIECES, "\u2581\u2581": -50.0}, add_space_prefix=False, add_eos_token=True),
        wpm(),
        ugm(unknown_token_id=2),
        ugm(remove_extra_whitespaces=False, eos_token_id=1),
    ],
)
def test_small_vocabularies(tmp_path: Path, metadata: dict[str, Any]) -> None:
    texts = [*TEXTS, "hello  hello world</s> h<extra> [MASK] lo", *sample(strings(40, seed=2))]
    tokenizer = Tokenizer.from_gguf_metadata(metadata)
    compare(tmp_path, tokenizer, sample(texts), len(metadata["tokenizer.ggml.tokens"]) + 2)


def source(pattern: str) -> bytes:
    """A file of the pinned source package, or skip."""
    return sources(pattern)[pattern]


@functools.cache
def sources(*patterns: str) -> dict[str, bytes]:
    """Files of the pinned source package by the ends of their names, or skip."""
    given = os.environ.get("PYGGML_GGML_SDIST")
    archives = [Path(given)] if given else sorted((ROOT / "vendor" / "cache").glob("*.tar.gz"))
    if not archives:
        pytest.skip("the source package is not there")
    found = {}
    with tarfile.open(archives[0]) as archive:
        for member in archive:
            for pattern in patterns:
                if member.name.endswith(pattern):
                    file = archive.extractfile(member)
                    assert file is not None
                    found[pattern] = file.read()
    return found


SMALL = ("llama-spm", "bert-bge", "deepseek-coder", "starcoder")


@pytest.mark.parametrize("name", SMALL)
def test_texts_with_known_tokens(tmp_path: Path, name: str) -> None:
    """The tokens of the publishers' own tokenizers, which llama.cpp's tests use."""
    ends = ("gguf", "gguf.inp", "gguf.out")
    found = sources(*(f"models/ggml-vocab-{n}.{end}" for n in SMALL for end in ends))
    vocabulary, texts, ids = (found[f"models/ggml-vocab-{name}.{end}"] for end in ends)
    path = tmp_path / "vocabulary.gguf"
    path.write_bytes(vocabulary)
    tokenizer = Tokenizer.from_file(path)
    parts = texts.decode().split("\n__ggml_vocab_test__\n")
    for text, line in zip(parts, ids.decode().splitlines(), strict=False):
        assert tokenizer.encode(text).tolist() == [int(number) for number in line.split()], text


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_vocabulary_files(tmp_path: Path, name: str) -> None:
    path = tmp_path / "vocabulary.gguf"
    path.write_bytes(source(f"models/ggml-vocab-{name}.gguf"))
    with read_gguf(path) as file:
        metadata = dict(file.metadata)
    tokenizer = Tokenizer.from_gguf_metadata(metadata)
    rows = len(metadata["tokenizer.ggml.tokens"])
    again = tokenizer.to_gguf_metadata(rows)
    for key, value in metadata.items():
        if key.startswith("tokenizer.ggml."):
            np.testing.assert_equal(np.asarray(again[key]), np.asarray(value), key)
    texts = covered(tokenizer, sample([*strings(2000), *lines(2000)]))
    compare(tmp_path, tokenizer, texts, rows, file=metadata, decode=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n, way in PRE_TOKENIZERS.items() if way.byte_level])
def test_every_way_of_splitting_words(tmp_path: Path, name: str) -> None:
    trained = Tokenizer.train_bpe([*embedded_text()[:20], *strings(100, seed=9)], 900)
    metadata = {
        **trained.to_gguf_metadata(),
        "tokenizer.ggml.pre": name,
        "tokenizer.ggml.add_bos_token": False,
    }
    compare(tmp_path, Tokenizer.from_gguf_metadata(metadata), [*strings(500, seed=4), *TEXTS])


@pytest.mark.slow
def test_every_name_of_a_way_of_splitting_words_is_known() -> None:
    text = source("src/llama-vocab.cpp").decode()
    assert set(re.findall(r'tokenizer_pre == "([^"]+)"', text)) - {"whitespace"} == {
        *PRE_TOKENIZERS
    }
