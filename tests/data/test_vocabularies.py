# SPDX-License-Identifier: MIT
"""Vocabularies of GGUF files: each kind is read, encodes as it must, and is written again."""

from __future__ import annotations

import heapq
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tokenizers")
from pyggml.data import Tokenizer
from pyggml.errors import FormatError

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)


def keys(kind: str, tokens: list[str], types: list[int], **others: Any) -> dict[str, Any]:
    """The metadata of a vocabulary."""
    others = {"token_type": np.array(types, np.int32), **others}
    metadata = {"model": kind, "tokens": tokens, **others}
    return {f"tokenizer.ggml.{key}": value for key, value in metadata.items()}


def spm(pieces: dict[str, float], **others: Any) -> dict[str, Any]:
    """A SentencePiece vocabulary with bytes, and these pieces."""
    tokens = ["<unk>", "<s>", "</s>", *BYTES, *pieces]
    types = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * len(pieces)]
    scores = np.array([0.0] * 259 + list(pieces.values()), np.float32)
    return keys("llama", tokens, types, **{"scores": scores, **others})


def greedy(tokens: list[str], scores: np.ndarray, text: str) -> list[int]:
    """Join the neighbours with the best joint token, the leftmost first, as SentencePiece does."""
    ids = {token: number for number, token in enumerate(tokens)}
    symbols: list[str] = list("\u2581" + text.replace(" ", "\u2581"))
    after = [*range(1, len(symbols)), -1]
    before = [*range(-1, len(symbols) - 1)]
    queue: list[tuple[float, int, int, str]] = []

    def push(left: int, right: int) -> None:
        if left >= 0 and right >= 0 and symbols[left] + symbols[right] in ids:
            joint = symbols[left] + symbols[right]
            heapq.heappush(queue, (-float(scores[ids[joint]]), left, right, joint))

    for place in range(1, len(symbols)):
        push(place - 1, place)
    while queue:
        _, left, right, joint = heapq.heappop(queue)
        if not symbols[left] or not symbols[right] or symbols[left] + symbols[right] != joint:
            continue
        symbols[left], symbols[right] = joint, ""
        after[left] = after[right]
        if after[right] >= 0:
            before[after[right]] = left
        push(before[left], left)
        push(left, after[left])
    found: list[int] = []
    for symbol in filter(None, symbols):
        bytes_of = [ids[f"<0x{byte:02X}>"] for byte in symbol.encode()]
        found += [ids[symbol]] if symbol in ids else bytes_of
    return found


def random_pieces(rng: random.Random, distinct: bool) -> dict[str, float]:
    """Characters, and some of the strings that they make."""
    letters = "\u2581ab" + rng.choice(["", "c", "cd\u00e9"])
    pieces = dict.fromkeys(letters, 0.0)
    for _ in range(rng.randrange(30)):
        parts = rng.choices(list(pieces), k=2)
        pieces["".join(parts)] = 0.0
    for number, piece in enumerate(pieces):
        pieces[piece] = float(-number if distinct else -rng.randrange(4))
    if distinct:
        scores = list(pieces.values())
        rng.shuffle(scores)
        pieces = dict(zip(pieces, scores, strict=True))
    return pieces


@pytest.mark.parametrize("distinct", [True, False])
def test_merges_join_what_scores_join(distinct: bool) -> None:
    rng = random.Random(7)
    refused = 0
    for _ in range(60):
        metadata = spm(random_pieces(rng, distinct))
        tokens, scores = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.scores"]
        try:
            tokenizer = Tokenizer.from_gguf_metadata(metadata)
        except FormatError:
            refused += 1
            continue
        for _ in range(15):
            text = "".join(rng.choices(" aabbcd\u00e9x", k=rng.randrange(1, 12)))
            assert tokenizer.encode(text).tolist() == greedy(tokens, scores, text), (
                text,
                dict(zip(tokens[259:], scores[259:], strict=True)),
            )
    assert refused < (1 if distinct else 60)


PIECES = {
    **dict.fromkeys("\u2581abcdehlorw\n", -100.0),
    **{"\u2581h": -1.0, "lo": -2.0, "el": -3.0, "\u2581hel": -4.0, "\u2581hello": -5.0},
}
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "\u2581hel", "lo", "\u2581,", "\u2581w", "o"]
UNIGRAM = {
    "\u2581": -2.0,
    "\u2581h": -3.0,
    "ello": -2.5,
    "e": -4.0,
    "l": -4.0,
    "o": -4.0,
    "h": -5.0,
}


def wpm(**others: Any) -> dict[str, Any]:
    """A WordPiece vocabulary."""
    ids = {f"{name}_token_id": n for n, name in enumerate(("padding", "unknown", "bos"))}
    others = {**ids, "seperator_token_id": 3, "mask_token_id": 4, **others}
    return keys("bert", WORDS, [CONTROL] * 5 + [NORMAL] * 5, **others)


def ugm(**others: Any) -> dict[str, Any]:
    """A unigram vocabulary."""
    tokens = ["<pad>", "</s>", "<unk>", *UNIGRAM, "<extra>", "[PAD11]"]
    types = [CONTROL, CONTROL, UNKNOWN, *[NORMAL] * len(UNIGRAM), USER, UNUSED]
    scores = np.array([0.0] * 3 + [*UNIGRAM.values()] + [0.0, -10000.0], np.float32)
    flags = {"add_space_prefix": True, "remove_extra_whitespaces": True}
    return keys("t5", tokens, types, **{"scores": scores, **flags, **others})


def bpe(pre: str = "gpt-2", **others: Any) -> dict[str, Any]:
    """A byte-level vocabulary."""
    metadata = Tokenizer.train_bpe(["hello, world 123"] * 3, 300).to_gguf_metadata()
    return {
        **metadata,
        "tokenizer.ggml.pre": pre,
        **keys(
            "gpt2",
            metadata["tokenizer.ggml.tokens"],
            [CONTROL] + [NORMAL] * (len(metadata["tokenizer.ggml.tokens"]) - 1),
            **others,
        ),
    }


KINDS = {"llama": spm(PIECES), "bert": wpm(), "t5": ugm(), "gpt2": bpe()}


def spelled(tokenizer: Tokenizer, text: str, **options: bool) -> list[str | None]:
    return [tokenizer.token(number) for number in tokenizer.encode(text, **options)]


def test_sentencepiece() -> None:
    tokenizer = Tokenizer.from_gguf_metadata(KINDS["llama"])
    assert spelled(tokenizer, "hello hello") == ["\u2581hello"] * 2
    assert spelled(tokenizer, " \u00e9") == ["\u2581", "\u2581", "<0xC3>", "<0xA9>"]
    assert (tokenizer.bos_id, tokenizer.eos_id) == (1, 2)
    assert (tokenizer.add_bos, tokenizer.add_eos) == (True, False)
    assert spelled(tokenizer, "h</s>h", parse_special=True) == ["\u2581h", "</s>", "\u2581h"]
    assert spelled(tokenizer, "", add_special=True) == ["<s>"]
    for text in ("hello  world\n", "\u6f22 \u00e9", " x"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    bare = Tokenizer.from_gguf_metadata(spm(PIECES, add_space_prefix=False, add_bos_token=False))
    assert spelled(bare, "lo", add_special=True) == ["lo"]


def test_wordpiece() -> None:
    tokenizer = Tokenizer.from_gguf_metadata(KINDS["bert"])
    assert spelled(tokenizer, "H\u00c9llo, wo") == ["hel", "##lo", ",", "w", "##o"]
    assert spelled(tokenizer, "x [MASK] hel", parse_special=True) == ["[UNK]", "[MASK]", "hel"]
    assert spelled(tokenizer, "hel", add_special=True) == ["[CLS]", "hel", "[SEP]"]
    assert tokenizer.decode(tokenizer.encode("hello w")) == "hello w"
    cased = wpm(**{"normalizer.lowercase": False})
    assert spelled(Tokenizer.from_gguf_metadata(cased), "hel Hel") == ["hel", "[UNK]"]


def test_unigram() -> None:
    tokenizer = Tokenizer.from_gguf_metadata(KINDS["t5"])
    assert spelled(tokenizer, "  hello  hello ") == ["\u2581h", "ello"] * 2
    assert spelled(tokenizer, "</s>xx") == ["\u2581", "<unk>"]
    assert spelled(tokenizer, "h</s>h<extra>", parse_special=True) == [
        *("\u2581h", "</s>", "\u2581h", "<extra>")
    ]
    assert spelled(tokenizer, "h", add_special=True) == ["\u2581h", "</s>"]
    assert tokenizer.decode(tokenizer.encode("hello h")) == "hello h"
    spaced = ugm(remove_extra_whitespaces=False, add_space_prefix=False)
    assert spelled(Tokenizer.from_gguf_metadata(spaced), "h  h") == ["h", "\u2581", "\u2581h"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_read_is_written_again(kind: str) -> None:
    metadata = {**KINDS[kind], "tokenizer.ggml.eot_token_id": 3, "general.name": "x"}
    tokenizer = Tokenizer.from_gguf_metadata(metadata)
    rows = len(metadata["tokenizer.ggml.tokens"])
    again = tokenizer.to_gguf_metadata(rows)
    own = {key: value for key, value in metadata.items() if key != "general.name"}
    np.testing.assert_equal(again, own)
    padded = tokenizer.to_gguf_metadata(rows + 3)
    for key in ("tokens", "token_type", "scores"):
        assert len(padded.get(f"tokenizer.ggml.{key}", [0] * (rows + 3))) == rows + 3
    larger = Tokenizer.from_gguf_metadata(padded)
    for text in ("hello, world", "  h</s> lo\n"):
        assert larger.encode(text).tolist() == tokenizer.encode(text).tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_json_of_each_kind_becomes_a_gguf_vocabulary(kind: str, tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_gguf_metadata(KINDS[kind])
    tokenizer.save(tmp_path / "tokenizer.json")
    file = Tokenizer.from_file(tmp_path / "tokenizer.json")
    metadata = file.to_gguf_metadata()
    assert metadata["tokenizer.ggml.model"] == kind
    again = Tokenizer.from_gguf_metadata(metadata)
    rng = random.Random(3)
    for _ in range(100):
        text = "".join(rng.choices("helowrd ,\n\u00e9<s/>", k=rng.randrange(15)))
        for options in ({}, {"parse_special": True, "add_special": True}):
            ids = tokenizer.encode(text, **options).tolist()
            assert file.encode(text, **options).tolist() == ids
            assert again.encode(text, **options).tolist() == ids


REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
AT_SPACES = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious"}
METASPACE = {"type": "Metaspace", "replacement": "\u2581"}
SPACES = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "\u2581"}
BERT = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True}


@pytest.mark.parametrize(
    ("kind", "normalizer", "pre_tokenizer", "flags"),
    [
        ("llama", REPLACE, {**AT_SPACES, "invert": False}, {"add_space_prefix": False}),
        ("llama", None, {**METASPACE, "prepend_scheme": "first", "split": False}, {}),
        ("llama", None, {**METASPACE, "prepend_scheme": "never", "split": False}, {}),
        ("t5", SPACES, {**METASPACE, "prepend_scheme": "always", "split": True}, {}),
        (
            "t5",
            None,
            {
                "type": "Sequence",
                "pretokenizers": [
                    {"type": "WhitespaceSplit"},
                    {**METASPACE, "prepend_scheme": "always", "split": True},
                ],
            },
            {"remove_extra_whitespaces": True},
        ),
        (
            "bert",
            {**BERT, "strip_accents": None, "lowercase": True},
            {"type": "BertPreTokenizer"},
            {"normalizer.lowercase": True, "normalizer.strip_accents": True},
        ),
        (
            "bert",
            {**BERT, "strip_accents": False, "lowercase": False},
            {"type": "BertPreTokenizer"},
            {"normalizer.lowercase": False, "normalizer.strip_accents": False},
        ),
    ],
)
def test_json_as_publishers_write_it(
    kind: str, normalizer: Any, pre_tokenizer: Any, flags: dict[str, bool], tmp_path: Path
) -> None:
    content = json.loads(Tokenizer.from_gguf_metadata(KINDS[kind]).to_json())
    content |= {"normalizer": normalizer, "pre_tokenizer": pre_tokenizer}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    file = Tokenizer.from_file(tmp_path)
    metadata = file.to_gguf_metadata(file.vocab_size + 3)
    assert {key: metadata[f"tokenizer.ggml.{key}"] for key in flags} == flags
    again = Tokenizer.from_gguf_metadata(metadata)
    for text in ("hello  hello", "h \u00e9 lo", "", "x hel</s> lo", "Hello , wo"):
        for add in (False, True):
            ids = file.encode(text, add_special=add).tolist()
            assert again.encode(text, add_special=add).tolist() == ids, text


def test_merges_that_no_scores_give_are_refused(tmp_path: Path) -> None:
    pieces = {"a": -9.0, "b": -9.0, "aa": -1.0, "aaa": -2.0, "ab": -3.0}
    content = json.loads(Tokenizer.from_gguf_metadata(spm(pieces)).to_json())
    merges = content["model"]["merges"]
    moved = [merges[0], *merges[2:], merges[1]]
    for changed, match in ((merges[1:], "no merge of"), (moved, "before and after")):
        content["model"]["merges"] = changed
        (tmp_path / "tokenizer.json").write_text(json.dumps(content))
        with pytest.raises(FormatError, match=match):
            Tokenizer.from_file(tmp_path / "tokenizer.json").to_gguf_metadata()


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        (spm(PIECES, scores=None), "scores"),
        (spm(PIECES, scores=np.zeros(3, np.float32)), "scores"),
        (spm(PIECES, scores=["a"] * 276), "scores"),
        (spm({**PIECES, "lo": float("nan")}), "scores"),
        (spm({**PIECES, "lo": float("inf")}), "scores"),
        (spm({"a": -1.0, "b": -1.0, "ab": 0.0, "ba": 0.0, "aba": 1.0}), "scores"),
        (spm(PIECES, token_type=np.full(276, 9, np.int32)), "token_type"),
        (spm(PIECES, token_type=np.full(276, BYTE, np.int32)), "token_type"),
        (spm(PIECES, token_type=np.ones(5, np.int32)), "token_type"),
        (spm(PIECES, token_type=np.ones(276, np.float32)), "token_type"),
        (spm(PIECES, add_space_prefix="yes"), "add_space_prefix"),
        (spm(PIECES, bos_token_id=10**6), "bos_token_id"),
        (spm(PIECES, bos_token_id=1.5), "bos_token_id"),
        (spm(PIECES, bos_token_id=np.zeros(2, np.int32)), "bos_token_id"),
        (spm(PIECES, model=np.zeros(2, np.int32)), "model"),
        (spm(PIECES, model="rwkv"), "model"),
        (spm(PIECES, model="plamo2"), "model"),
        (spm(PIECES, model="whitespace"), "model"),
        (spm(PIECES, model="of tomorrow"), "model"),
        (spm({"q": 0.0, "zq": 1.0}), "tokens"),
        ({**wpm(), "tokenizer.ggml.tokens": [*WORDS[:9], "\u2581hel"]}, "tokens"),
        (wpm(unknown_token_id=99), "unknown_token_id"),
        (keys("bert", ["a"], [NORMAL]), "unknown_token_id"),
        (wpm(**{"normalizer.lowercase": 3}), "normalizer.lowercase"),
        (ugm(scores=None), "scores"),
        (ugm(remove_extra_whitespaces=7), "remove_extra_whitespaces"),
        (ugm(precompiled_charsmap=np.zeros(9, np.float32)), "precompiled_charsmap"),
        (ugm(precompiled_charsmap="text"), "precompiled_charsmap"),
        (ugm(precompiled_charsmap=np.zeros(2, np.uint8)), "precompiled_charsmap"),
        (ugm(precompiled_charsmap=np.full(40, 255, np.uint8)), "precompiled_charsmap"),
        (bpe(pre="of tomorrow"), "pre"),
        (bpe(pre="whitespace"), "pre"),
        (bpe(merges=["a", "b c"]), "merges"),
        (bpe(merges=["h xyz"]), "merges"),
        (bpe(merges=np.zeros(4, np.int32)), "merges"),
        (bpe(merges=None), "merges"),
    ],
)
def test_vocabularies_that_lie_are_refused(metadata: dict[str, Any], field: str) -> None:
    kept = {key: value for key, value in metadata.items() if value is not None}
    with pytest.raises(FormatError, match=f"tokenizer.ggml.{field}:"):
        Tokenizer.from_gguf_metadata(kept)


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_gives_the_text_that_decoding_gives(kind: str) -> None:
    tokenizer = Tokenizer.from_gguf_metadata(KINDS[kind])
    rng = random.Random(5)
    for _ in range(6):
        # Half a character among others is beyond the library's decoder of byte tokens.
        text = "".join(rng.choices("helowrd ,\n\u00e9\u6f22", k=rng.choice((5, 300))))
        ids = tokenizer.encode(text + "</s> lo", parse_special=True).tolist()
        for skip in (False, True):
            stream = tokenizer.stream(skip_special=skip)
            text = "".join([*map(stream.push, ids), stream.finish()])
            assert text == tokenizer.decode(ids, skip_special=skip)


def test_a_stream_continues_a_text() -> None:
    tokenizer = Tokenizer.from_gguf_metadata(KINDS["llama"])
    ids = tokenizer.encode("hello hello \u00e9 hello").tolist()
    for at in (1, 2):
        stream = tokenizer.stream(after=[tokenizer.bos_id, *ids[:at]])
        text = "".join([*map(stream.push, ids[at:]), stream.finish()])
        assert tokenizer.decode(ids[:at]) + text == "hello hello \u00e9 hello"
    assert tokenizer.stream(after=[tokenizer.bos_id]).push(ids[0]) == "hello"


def test_letters_of_a_whole_token_are_no_bytes() -> None:
    metadata = Tokenizer.chars(["h\u00e9\u00fa"]).to_gguf_metadata()
    tokens = metadata["tokenizer.ggml.tokens"]
    assert "\u00fa" not in tokens
    metadata |= keys("gpt2", [*tokens, "\u00fa"], [CONTROL, *[NORMAL] * (len(tokens) - 1), USER])
    tokenizer = Tokenizer.from_gguf_metadata(metadata)
    ids = tokenizer.encode("h\u00fa\u00e9")
    assert len(tokens) in ids
    assert tokenizer.decode(ids) == "h\u00fa\u00e9"
    stream = tokenizer.stream()
    assert "".join([*map(stream.push, ids), stream.finish()]) == "h\u00fa\u00e9"


@pytest.mark.parametrize(
    ("kind", "name", "text", "want"),
    [
        ("llama", "Phi-3 mini", "lo</s>  h", ["\u2581", "lo", "</s>", "\u2581h"]),
        ("llama", "Llama", "lo</s>h", ["\u2581", "lo", "</s>", "\u2581h"]),
        ("llama", "Llama", "lo</s> h", ["\u2581", "lo", "</s>", "\u2581", "\u2581h"]),
    ],
)
def test_tokens_that_take_the_space_beside_them(
    kind: str, name: str, text: str, want: list[str], tmp_path: Path, caplog: Any
) -> None:
    tokenizer = Tokenizer.from_gguf_metadata({**KINDS[kind], "general.name": name})
    assert spelled(tokenizer, text, parse_special=True) == want
    tokenizer.save(tmp_path / "tokenizer.json")
    file = Tokenizer.from_file(tmp_path)
    assert spelled(file, text, parse_special=True) == want
    file.to_gguf_metadata()
    assert ("names of models" in caplog.text) == name.startswith("Phi")


def test_a_gguf_file_gives_its_tokenizer(tmp_path: Path) -> None:
    from pyggml.io import write_gguf

    path = tmp_path / "words.gguf"
    write_gguf(path, {"general.architecture": "llama", **KINDS["llama"]}, {})
    tokenizer = Tokenizer.from_file(path)
    assert spelled(tokenizer, "hello") == ["\u2581hello"]
    np.testing.assert_equal(tokenizer.to_gguf_metadata(276), KINDS["llama"])
    write_gguf(path, {"general.architecture": "llama", **spm(PIECES, model="rwkv")}, {})
    with pytest.raises(FormatError, match=r"words\.gguf.*model: 'rwkv'"):
        Tokenizer.from_file(path)
