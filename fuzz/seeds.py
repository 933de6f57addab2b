# SPDX-License-Identifier: MIT
"""Write the fuzzers' seeds: `python fuzz/seeds.py FOLDER` makes FOLDER/gguf, FOLDER/state, ...

They are small whole files of each format; a fuzzer makes its inputs from them.
"""

from __future__ import annotations

import gzip
import io
import json
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

import pyggml as pg
from pyggml import nn
from pyggml.data import Tokenizer
from pyggml.io import gguf_write as w
from pyggml.io import save_safetensors, write_gguf
from pyggml.models import build, save_lora
from pyggml.models.quantization.importance import Importance, write_importance
from pyggml.train import TrainState, save_checkpoint

TEXT = "To be, or not to be, that is the question.\n" * 20
# The last byte of a seed of `gguf`: read from a file; from a source that ends before it says.
FROM_FILE, SHORTER = 18, 58
KINDS = ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8")
SMALL = {"vocab_size": 16, "context": 8, "n_embd": 8, "n_layer": 1, "n_head": 2}


def gguf_files(folder: Path) -> list[Path]:
    """Write GGUF files: models, an adapter, and all kinds of values and tensors."""
    tokenizer = Tokenizer.train_bpe([TEXT], 270)
    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 8, "context": 8}
    build("gpt2", sizes, vocab_size=tokenizer.vocab_size).save_gguf(folder / "m.gguf", tokenizer)
    wide = build("llama", {**SMALL, "n_embd": 32, "n_ffn": 32})
    wide.save(folder / "q8.gguf", dtype="q8_0")
    build("mlp", {"inputs": 12, "hidden": (4,), "classes": 2, "labels": ("a", "b")}).save(
        folder / "i.gguf"
    )
    nn.apply_lora(wide, rank=2, targets="all-linear")
    save_lora(wide, folder / "lora.gguf")
    kinds = (w.u8, w.i8, w.u16, w.i16, w.u32, w.i32, w.u64, w.i64, w.f32, w.f64)
    values = {f"v{i}": kind(3) for i, kind in enumerate(kinds)}
    arrays = {
        **{f"a{i}": np.arange(3, dtype=kind) for i, kind in enumerate(KINDS)},
        **{"b": True, "bs": np.array([True, False]), "s": "text", "ss": ["x", "", "yz"]},
    }
    tensors = {
        **{"f32": np.ones((3, 4), np.float32), "q8": ("q8_0", np.ones((2, 32), np.float32))},
        **{"f16": np.ones((2, 3), np.float16), "i32": np.arange(5, dtype=np.int32)},
    }
    write_gguf(folder / "kinds.gguf", {"general.architecture": "none", **values, **arrays}, tensors)
    write_gguf(folder / "values.gguf", {"general.architecture": "none", **values, **arrays}, {})
    write_gguf(folder / "tensors.gguf", {"general.architecture": "none"}, tensors)
    return sorted(folder.glob("*.gguf"))


def odd_ggufs() -> dict[str, bytes]:
    """Return headers that a reader must refuse, and that no change of a few bytes gives."""

    def text(value: bytes) -> bytes:
        return struct.pack("<Q", len(value)) + value

    def head(version: int, *counts: int) -> bytes:
        return b"GGUF" + struct.pack(f"<I{len(counts)}q", version, *counts)

    def cut(values: list[bytes], tensors: list[bytes], n: int = 0) -> bytes:
        body = head(3, len(tensors), len(values)) + b"".join(values) + b"".join(tensors)
        return body[: len(body) - n]  # n bytes before the end of the last value or tensor

    def file(values: list[bytes], tensors: list[bytes]) -> bytes:
        body = cut(values, tensors)
        return body + bytes(-len(body) % 32)

    def tensor(name: bytes, extents: tuple[int, ...], kind: int, offset: int) -> bytes:
        sizes = struct.pack(f"<I{len(extents)}q", len(extents), *extents)
        return text(name) + sizes + struct.pack("<iQ", kind, offset)

    def value(key: bytes, kind: int, *data: bytes) -> bytes:
        return text(key) + struct.pack("<i", kind) + b"".join(data)

    def array(key: bytes, kind: int, n: int, data: bytes = b"") -> bytes:
        return value(key, 9, struct.pack("<iQ", kind, n), data)

    alignment = b"general.alignment"
    half = 2**63 - 64  # of I8
    one = tensor(b"a", (1,), 24, 0)
    return {
        "half-a-magic": b"GG",
        "other-magic": b"GG\x00X" + bytes(28),
        "no-version": b"GGUF\x03",
        **{f"version-{v:x}": head(v, 0, 0) for v in (0, 1, 2, 4, 3 << 24)},
        "no-counts": head(3),
        "no-count-of-values": head(3, 0),
        "fewer-than-no-tensors": head(3, -1, 0),
        "fewer-than-no-values": head(3, 0, -1),
        "no-key": cut([text(b"key")], [], 1),
        "empty-key": file([value(b"", 4, bytes(4))], []),
        "key-twice": file([value(b"a", 4, bytes(4))] * 2, []),
        "long-key": file([struct.pack("<Q", 2**31)], []),
        "key-past-the-end": file([struct.pack("<Q", 100)], []),
        "no-type": cut([text(b"a")], []),
        "no-number": cut([value(b"a", 4, bytes(4))], [], 1),
        "no-truth": cut([value(b"a", 7)], []),
        "no-text": cut([value(b"a", 8)], []),
        "no-element-type": cut([value(b"a", 9)], []),
        "array-of-arrays": file([array(b"a", 9, 1)], []),
        "long-array": file([array(b"a", 0, 2**33)], []),
        "many-numbers": file([array(b"a", 4, 100)], []),
        "many-truths": file([array(b"a", 7, 100)], []),
        "many-texts": file([array(b"a", 8, 100)], []),
        "half-a-text": file([array(b"a", 8, 2, text(b"x") + struct.pack("<Q", 99))], []),
        "no-name": cut([], [text(b"name")], 1),
        "long-name": file([], [tensor(b"a" * 64, (1,), 24, 0)]),
        "name-twice": file([], [one, one]),
        "no-extents": cut([], [one], 13),
        "five-extents": file([], [tensor(b"a", (1,) * 5, 24, 0)]),
        "negative-extent": file([], [tensor(b"a", (1, -1), 24, 0)]),
        "no-tensor-type": cut([], [one], 9),
        "no-offset": cut([], [one], 1),
        "part-of-a-block": file([], [tensor(b"a", (33,), 8, 0)]),
        "removed-type": file([], [tensor(b"a", (32,), 4, 0)]),
        "other-offset": file([], [tensor(b"a", (1,), 24, 32)]),
        "too-large-when-padded": file([], [tensor(b"a", (2**61 - 1,), 27, 0)]),
        "alignment-of-text": file([value(alignment, 8, text(b"x"))], []),
        "alignment-3": file([value(alignment, 4, struct.pack("<I", 3))], []),
        "alignment-64": file([value(alignment, 4, struct.pack("<I", 64))], []),
        "one-too-large": file([], [tensor(b"a", (2**62,), 28, 0)]),
        "many-elements": file([], [tensor(b"a", (2**40, 2**40), 24, 0)]),
        "sum-too-large": file(
            [], [tensor(b"a", (half,), 24, 0), tensor(b"b", (half,), 24, half),
                 tensor(b"c", (half,), 24, 2 * half)],
        ),
        "context-too-large": file(
            [], [tensor(b"a", (half,), 24, 0), tensor(b"b", (half,), 24, half)]
        ),
        "past-the-padding": cut([], [one]),
        "no-data": file([], [one]),
    }  # fmt: skip


def importance_before_gguf() -> bytes:
    """Return an importance matrix as llama.cpp wrote them before GGUF."""
    rows = b"".join(
        struct.pack(f"<i{len(name)}sii3f", len(name), name, 2, 3, 0.5, 1.0, 2.0)
        for name in (b"blk.0.attn_q.weight", b"output.weight")
    )
    return struct.pack("<i", 2) + rows + struct.pack("<ii5s", 7, 5, b"a.txt")


def png() -> bytes:
    """Return a picture of 3 x 2 pixels."""

    def chunk(name: bytes, data: bytes) -> bytes:
        crc = zlib.crc32(name + data).to_bytes(4, "big")
        return len(data).to_bytes(4, "big") + name + data + crc

    head = (3).to_bytes(4, "big") + (2).to_bytes(4, "big") + bytes([8, 2, 0, 0, 0])
    rows = b"".join(b"\0" + bytes(range(9)) for _ in range(2))
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def pictures() -> dict[str, bytes]:
    """Return a picture in formats that have no checksums, which a change of a byte cannot fit."""
    picture = Image.fromarray(np.arange(96, dtype=np.uint8).reshape(4, 8, 3))
    made = {}
    for kind in ("BMP", "GIF", "JPEG", "PPM", "TIFF", "WEBP"):
        file = io.BytesIO()
        picture.save(file, kind)
        made[kind.lower()] = file.getvalue()
    return made


def zipped(text: str) -> bytes:
    """Return a text packed by gzip."""
    return gzip.compress(text.encode(), mtime=0)


def main(target: Path) -> None:
    """Write all seeds."""
    pg.seed(0)
    made = target / "made"
    made.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer.train_bpe([TEXT], 270)
    tokenizer.save(made / "tokenizer.json")
    weights = {"a": np.ones((4, 3), np.float32), "b": np.arange(6, dtype=np.int64)}
    save_safetensors(made / "w.safetensors", weights)
    state = TrainState(3, 10, 100, 1.0, {"epoch": 0}, {"g": {"x": 1}}, {"lr": 0.1}, None, None)
    save_checkpoint(made / "checkpoints", state, weights, {"m": np.ones(3, np.float32), "k": 1})
    chats = [[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]] * 2
    lines = "".join(json.dumps({"messages": chat}) + "\n" for chat in chats)
    more = json.dumps({"prompt": "a", "completion": "b"}) + "\n"
    sharegpt = json.dumps(
        {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}
    )
    idx = b"\0\0\x08\x02" + struct.pack(">2I", 2, 3) + bytes(6)
    ggufs = gguf_files(made)
    means = {"output.weight": np.ones(4, np.float32), "x": np.ones(6, np.float32)}
    counts = {"output.weight": np.ones(1), "x": np.array([3, 0])}
    write_importance(made / "imatrix", Importance(means, counts, ["a.txt"], 1, 8))
    toml = '[data]\ntext = "x.txt"\n[model]\npreset = "tiny"\n[trainer]\nsteps = 3\nlr = 1e-3\n'
    groups: dict[str, dict[str, bytes]] = {
        # The last byte chooses a reader and its options.
        "gguf": {
            f"{p.stem}-{m}": p.read_bytes() + bytes([m])
            for p in ggufs
            for m in (*range(0, 256, 29), FROM_FILE)
            if p.stat().st_size < 6000
        },
        "gguf-odd": {
            f"{n}-{m}": d + bytes([m])
            for n, d in odd_ggufs().items()
            for m in (2, 6, 14, FROM_FILE, SHORTER)
        },
        "product": {str(i): np.random.default_rng(i).bytes(64) for i in range(20)},
        "graph": {str(i): np.random.default_rng(i).bytes(128) for i in range(20)},
        "python-gguf": {p.stem: p.read_bytes() for p in ggufs if p.stem != "lora"},
        "python-safetensors": {"w": (made / "w.safetensors").read_bytes()},
        "python-tokenizer": {"t": (made / "tokenizer.json").read_bytes()},
        "python-state": {"s": (made / "checkpoints/step-000003/state.json").read_bytes()},
        "python-toml": {"t": toml.encode()},
        "python-image": {"p": png(), **pictures()},
        "python-text": {"t": TEXT.encode(), "mark": b"\xef\xbb\xbf" + "caf\u00e9\r\n".encode()},
        "python-gzip": {"g": zipped(lines + more), "empty-block": zipped("") + zipped(more)},
        "python-csv": {"c": b'a,b\n1,"x\n""y"""\n2,z\n', "s": b"a,b\r\n1,\r\n"},
        "python-pairs": {"p": more.encode()},
        "python-idx": {"plain": idx, "gzip": gzip.compress(idx, mtime=0)},
        "python-adapter": {"lora": (made / "lora.gguf").read_bytes()},
        "python-imatrix": {
            "dat": importance_before_gguf(),
            "gguf": (made / "imatrix").read_bytes(),
        },
        "python-chats": {"c": lines.encode(), "p": more.encode(), "s": sharegpt.encode()},
    }
    for name, files in groups.items():
        folder = target / name.removesuffix("-odd")
        folder.mkdir(exist_ok=True)
        for seed, data in files.items():
            (folder / f"seed-{seed}").write_bytes(data)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
