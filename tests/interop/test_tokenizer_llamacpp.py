# SPDX-License-Identifier: MIT
"""llama.cpp, reading the vocabularies that we write, tokenizes as we do."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tokenizers")
from pyggml.data import Tokenizer, embedded_text
from pyggml.io import f32, u32, write_gguf

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("xllamacpp") is None, reason="xllamacpp is not installed"
)
GPT2_JSON = Path(__file__).parents[3] / "shared" / "data" / "gpt2-tokenizer.json"

TEXTS = [
    "Hello, world!",
    " leading and trailing ",
    "it's we're I'll you've he'd I'm IT'S WE'RE 'tis ''s",
    "1 22 333 4444 55555 3.14159 1e-5 0xFF ½ ² ١٢٣",
    "tabs\tand\nnewlines\n\n\n  and   spaces \t\n x\r\ny\r\n\r\n",
    "    indented\n        more",
    "naïve café ÀÉÎ ß Ω привет мир",
    "漢字とかな、日本語。한국어",
    "emoji 🚀🚁 👩‍👩‍👧 🏳️‍🌈 é",
    "combining e\u0301 zero\u200bwidth nbsp\u00a0thin\u2009ideographic\u3000end\u0085nel",
    "<|endoftext|> spelled out <|endoftext|><|endoftext|>",
    "snake_case kebab-case CamelCase a.b.c(d)[e]{f} != == -> ::",
    "'\"`“”‘’—…!!??",
    "control \x01\x02\x7f end",
    "x",
    " ",
    "\n",
    "   ",
    "don'T 'S 'LL",
    "ﬁ ﬀ ①②③ Ⅷ ℵ",
]
LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

MODES = [(False, False), (False, True), (True, False), (True, True)]

# Run apart: llama.cpp brings a ggml of its own.
SERVER = """
import json, sys, urllib.request
import xllamacpp
model, source, target = sys.argv[1:]
params = xllamacpp.CommonParams()
params.model.path = model
params.n_ctx = 64
params.n_parallel = 1
params.warmup = False
params.port = 0
params.cpuparams.n_threads = 1
params.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(params)
results = []
for path, body in json.load(open(source, encoding="utf-8")):
    request = urllib.request.Request(
        server.listening_address + path,
        data=json.dumps(body).encode(), headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        results.append(json.load(answer))
json.dump(results, open(target, "w"))
"""


def write_model(
    path: Path,
    tokenizer: Tokenizer,
    vocab_size: int | None = None,
    file: dict[str, Any] | None = None,
) -> None:
    """A Llama with one layer of random weights around the vocabulary."""
    rng = np.random.default_rng(0)
    rows = vocab_size or tokenizer.vocab_size
    width, hidden = 32, 64

    def weights(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32) * 0.02

    ones = np.ones(width, np.float32)
    tensors = {
        "token_embd.weight": weights(rows, width),
        "output_norm.weight": ones,
        "blk.0.attn_norm.weight": ones,
        "blk.0.ffn_norm.weight": ones,
        **{f"blk.0.attn_{n}.weight": weights(width, width) for n in ("q", "k", "v", "output")},
        "blk.0.ffn_gate.weight": weights(hidden, width),
        "blk.0.ffn_up.weight": weights(hidden, width),
        "blk.0.ffn_down.weight": weights(width, hidden),
    }
    metadata = {
        "general.architecture": "llama",
        # llama.cpp goes by it for some special tokens.
        "general.name": (file or {}).get("general.name", "small"),
        "llama.context_length": u32(64),
        "llama.embedding_length": u32(width),
        "llama.block_count": u32(1),
        "llama.feed_forward_length": u32(hidden),
        "llama.attention.head_count": u32(2),
        "llama.rope.dimension_count": u32(16),
        "llama.attention.layer_norm_rms_epsilon": f32(1e-5),
        "llama.vocab_size": u32(rows),
        **tokenizer.to_gguf_metadata(vocab_size),
    }
    write_gguf(path, metadata, tensors)


def ask(folder: Path, requests: list[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Post requests to a llama.cpp that has loaded `model.gguf`; return the answers."""
    (folder / "in.json").write_text(json.dumps(requests), encoding="utf-8")
    arguments = [str(folder / name) for name in ("model.gguf", "in.json", "out.json")]
    done = subprocess.run(
        [sys.executable, "-c", SERVER, *arguments],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=900,
        check=False,
        env={**os.environ, "NO_PROXY": "*", "GGML_NO_BACKTRACE": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answers: list[dict[str, Any]] = json.loads((folder / "out.json").read_text())
    return answers


def compare(
    folder: Path,
    tokenizer: Tokenizer,
    texts: list[str],
    vocab_size: int | None = None,
    file: dict[str, Any] | None = None,
    decode: bool = False,
) -> None:
    """Tokenize every text in every mode with both, and find no difference."""
    write_model(folder / "model.gguf", tokenizer, vocab_size, file)
    bodies = [
        {"content": text, "add_special": add, "parse_special": parse}
        for text in texts
        for add, parse in ([(False, False), (True, True)] if file else MODES)
    ]
    requests: list[tuple[str, dict[str, Any]]] = [("/tokenize", body) for body in bodies]
    parts = [] if not decode else [tokenizer.encode(text).tolist() for text in texts]
    requests += [("/detokenize", {"tokens": ids}) for ids in parts]
    answers = ask(folder, requests)
    for body, answer in zip(bodies, answers, strict=False):
        ours = tokenizer.encode(
            body["content"],
            add_special=body["add_special"],
            parse_special=body["parse_special"],
        )
        ids = answer["tokens"]
        assert ours.tolist() == ids, (body, [tokenizer.token(i) for i in ids])
    kind = (file or {}).get("tokenizer.ggml.model")
    for ids, answer in zip(parts, answers[len(bodies) :], strict=True):
        mine, theirs = tokenizer.decode(ids), answer["content"]
        if kind == "bert":  # where its words ended, the ids do not say
            mine, theirs = mine.replace(" ", ""), theirs.replace(" ", "")
        if kind in ("llama", "t5"):  # the server joins tokens, with the space that leads the text
            theirs = theirs.removeprefix(" ")
        assert mine == theirs, ids


def test_trained_bpe(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train_bpe(embedded_text(), 1500)
    compare(tmp_path, tokenizer, [*TEXTS, *(t[:3000] for t in embedded_text()[:10])], 1536)


def test_characters(tmp_path: Path) -> None:
    texts = [text for text in TEXTS if "\x85" not in text]
    compare(tmp_path, Tokenizer.chars(texts), texts)


def test_ascii_characters_have_no_merges(tmp_path: Path) -> None:
    texts = ["the quick brown fox\njumps, doesn't it? 123"]
    tokenizer = Tokenizer.chars(texts)
    assert tokenizer.to_gguf_metadata()["tokenizer.ggml.merges"] == []
    compare(tmp_path, tokenizer, texts)


@pytest.mark.skipif(not GPT2_JSON.exists(), reason="GPT-2's tokenizer file is not there")
def test_gpt2(tmp_path: Path) -> None:
    compare(tmp_path, Tokenizer.from_file(GPT2_JSON), TEXTS)


def trained(pre_tokenizer: dict, ignore_merges: bool, folder: Path, bos: bool) -> Tokenizer:
    """A small BPE with another way of splitting words."""
    from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors, trainers
    from tokenizers import Tokenizer as Backend

    backend = Backend(models.BPE(ignore_merges=ignore_merges))
    backend.decoder = decoders.ByteLevel()
    content = json.loads(backend.to_str())
    content["pre_tokenizer"] = pre_tokenizer
    backend = Backend.from_str(json.dumps(content))
    trainer = trainers.BpeTrainer(
        vocab_size=1200,
        special_tokens=["<|begin_of_text|>", "<|end_of_text|>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    backend.train_from_iterator([*embedded_text()[:20], *TEXTS * 5], trainer)
    backend.add_tokens([AddedToken("<tool>", normalized=False)])
    if bos:
        backend.post_processor = processors.TemplateProcessing(
            single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", 0)]
        )
    backend.save(str(folder / "tokenizer.json"))
    return Tokenizer.from_file(folder / "tokenizer.json")


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}


def sequence(*parts: dict) -> dict:
    return {"type": "Sequence", "pretokenizers": list(parts)}


def split(pattern: str) -> dict:
    return {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }


@pytest.mark.parametrize(
    ("pre_tokenizer", "ignore_merges", "bos", "name"),
    [
        (sequence(split(LLAMA3_PATTERN), {**BYTES, "use_regex": False}), True, True, "llama-bpe"),
        (sequence(split(LLAMA3_PATTERN), {**BYTES, "use_regex": False}), False, False, "dbrx"),
        (
            sequence(
                split(LLAMA3_PATTERN.replace("{1,3}", "")),
                {**BYTES, "use_regex": False},
            ),
            False,
            False,
            "qwen2",
        ),
        (
            sequence(
                {"type": "Digits", "individual_digits": True},
                {**BYTES, "use_regex": True},
            ),
            False,
            False,
            "smollm",
        ),
    ],
)
def test_other_splits(
    tmp_path: Path, pre_tokenizer: dict, ignore_merges: bool, bos: bool, name: str
) -> None:
    tokenizer = trained(pre_tokenizer, ignore_merges, tmp_path, bos)
    metadata = tokenizer.to_gguf_metadata()
    assert metadata["tokenizer.ggml.pre"] == name
    assert metadata["tokenizer.ggml.add_bos_token"] is bos
    texts = [*TEXTS, "call <tool> now <|begin_of_text|>"]
    compare(tmp_path, tokenizer, texts)
    again = Tokenizer.from_gguf_metadata(metadata)
    for text in texts:
        for parse in (False, True):
            ours = tokenizer.encode(text, parse_special=parse, add_special=True)
            assert again.encode(text, parse_special=parse, add_special=True).tolist() == (
                ours.tolist()
            )


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0x20, 0x3000, 0x400))
def test_every_character_in_every_position(tmp_path: Path, first: int) -> None:
    """Letters, digits, spaces and marks are told apart in the same way."""
    tokenizer = Tokenizer.train_bpe(embedded_text(), 600)
    chars = [chr(c) for c in range(first, first + 0x400) if unicodedata.category(chr(c)) != "Cn"]
    compare(tmp_path, tokenizer, [f"a{c}a {c}{c} 1{c}\n{c} {c}" for c in chars])
