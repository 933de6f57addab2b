# SPDX-License-Identifier: MIT
"""Damaged files: run as `python files.py COUNT SEED FOLDER`.

A whole file of each format is damaged (bits, bytes, lengths, numbers of its JSON, its end) and
read. It must be read, or refused by an error of pyggml that names it. The last line on stdout is a
JSON object of counts; FOLDER/last.txt and the damaged file are left when the process dies.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gzip
import importlib
import json
import random
import resource
import shutil
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import pyggml as pg
from pyggml import nn
from pyggml.data import TokenDataset, Tokenizer, TokenStore, read_records, read_text
from pyggml.errors import ConfigError
from pyggml.io import load_safetensors, read_gguf, save_safetensors, write_gguf
from pyggml.io.sealed import hash_of, seal
from pyggml.models import build, load, load_lora, save_lora
from pyggml.train import CheckpointError, TrainState, load_checkpoint, save_checkpoint

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "fuzz"))
seeds, readers = importlib.import_module("seeds"), importlib.import_module("readers")

REFUSALS = (pg.FormatError, CheckpointError, ConfigError)
# Of fuzz/readers.py, which reads them from the seeds of its fuzzers.
SEEDED = ("toml", "image", "gzip", "csv", "pairs", "chats", "idx", "imatrix")
LIMIT_S = 60
HUGE = (0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**63, 2**64 - 1)
TEXT = "To be, or not to be, that is the question.\n" * 20
counts: Counter[str] = Counter()


def write_model(folder: Path) -> None:
    tokenizer = Tokenizer.train_bpe([TEXT], 270)
    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 8, "context": 8}
    model = build("gpt2", sizes, vocab_size=tokenizer.vocab_size)
    model.save_gguf(folder / "model.gguf", tokenizer)
    tokenizer.save(folder / "tokenizer.json")
    small = {"vocab_size": 16, "context": 8, "n_embd": 8, "n_layer": 1, "n_head": 2}
    for arch, given in OTHERS.items():
        own = {key: value for key, value in small.items() if arch not in IMAGES}
        build(arch, {**own, **given}).save(folder / f"{arch}.gguf")
    wide = build("llama", {**small, "n_embd": 32, "n_ffn": 32})
    wide.save(folder / "kept.gguf", dtype="q8_0")
    nn.apply_lora(wide, rank=2, targets="all-linear")
    save_lora(wide, folder / "adapter.gguf")
    arrays = {"f32": np.ones((3, 4), np.float32), "q8": ("q8_0", np.ones((2, 32), np.float32))}
    values = {"general.architecture": "none", "ids": np.arange(3), "text": ["x", "yz"]}
    write_gguf(folder / "plain.gguf", values, {**arrays, "i": np.arange(5, dtype=np.int32)})
    weights = {"a": np.ones((4, 3), np.float32), "b": np.arange(6, dtype=np.int64)}
    save_safetensors(folder / "w.safetensors", weights)
    save_safetensors(folder / "sharded", weights, max_shard_bytes=50)
    state = TrainState(3, 10, 100, 1.0, {"epoch": 0}, {"g": {"x": 1}}, {"lr": 0.1}, None, None)
    save_checkpoint(folder / "checkpoints", state, weights, {"m": np.ones(3, np.float32), "k": 1})
    (folder / "text.txt").write_text(TEXT)
    write_rest(folder, tokenizer)


def write_rest(folder: Path, tokenizer: Tokenizer) -> None:
    """Write a store of tokens, the settings of a tokenizer, a table, and the fuzzers' seeds."""
    (folder / "hf").mkdir()
    tokenizer.save(folder / "hf/tokenizer.json")
    settings = {"bos_token": {"content": "t"}, "eos_token": "e", "add_bos_token": True, "x": 3}
    (folder / "hf/tokenizer_config.json").write_text(json.dumps(settings))
    store = TokenStore.build(folder / "text.txt", Tokenizer.chars([TEXT]), folder / "stores")
    store.path.rename(folder / "store")
    with contextlib.suppress(ImportError):
        import pyarrow
        from pyarrow import parquet

        table = pyarrow.table({"prompt": ["a", "b", "c"], "completion": ["x", None, "z"]})
        parquet.write_table(table, folder / "rows.parquet")
    seeds.main(folder / "seeds")
    for name in SEEDED:
        for seed in sorted((folder / f"seeds/python-{name}").iterdir()):
            own = folder / f"{name}-{seed.name}"
            own.mkdir()
            shutil.copy(seed, own / readers.READERS[name][0])


def read_kept(path: Path) -> None:
    model, _ = load(path, keep_types=True)
    model(pg.tensor(np.zeros((1, min(2, model.config.context)), np.int32))).numpy()


def read_adapter(path: Path) -> None:
    model, _ = load(path.with_name("kept.gguf"), keep_types=True)
    load_lora(model, path)
    model(pg.tensor(np.zeros((1, 2), np.int32))).numpy()


def read_model(path: Path) -> None:
    model, tokenizer = load(path)
    if tokenizer is not None:
        tokenizer.decode([0, 1])
    if model.arch in IMAGES:
        with contextlib.suppress(ValueError):  # a whole file of a model for other images
            model.predict_proba(pg.ones((1, *IMAGES[model.arch]))).numpy()
        return
    ids = pg.tensor(np.zeros((1, min(2, model.config.context)), np.int32))
    more = {"decoder_ids": ids} if model.arch == "t5" else {}
    model(ids, **more).numpy()


def read_plain(path: Path) -> None:
    with read_gguf(path) as file:
        for name in file:
            file.array(name, dequantise=True)


def read_tokens(path: Path) -> None:
    tokenizer = Tokenizer.from_file(path)
    try:
        ids = tokenizer.encode("to be or not")
        tokenizer.decode(ids)
        tokenizer.to_gguf_metadata()
    except ValueError as error:  # a vocabulary that is whole, but lacks what this text asks for
        if not str(error).startswith("Tokenizer."):
            raise


def read_checkpoint(path: Path) -> None:
    folder = path.parent
    checkpoint = load_checkpoint(folder)
    assert isinstance(checkpoint.state.step, int)


def read_settings(path: Path) -> None:
    read_tokens(path.with_name("tokenizer.json"))


def read_rows(path: Path) -> None:
    for _ in read_records(path):
        pass


def read_store(path: Path) -> None:
    """Read a store whose hashes do not fit the damage, without looking at them."""
    store = TokenStore(path.parent, check=False)
    for document in store.documents:
        document.sum()
    with contextlib.suppress(pg.FormatError):
        store.verify()


def read_dataset(path: Path) -> None:
    texts = read_text(path)
    ids = np.frombuffer("".join(texts).encode(), np.uint8).astype(np.int32)
    if len(ids) > 8:
        TokenDataset(ids, 4).batch(np.array([0]))


# Models besides GPT-2, and the images that some of them take.
OTHERS: dict[str, dict[str, Any]] = {
    "llama": {
        **{"n_expert": 3, "n_ffn": 16, "window": 3, "tie": False},
        "rope_scaling": {"kind": "yarn", "factor": 2.0, "original": 4},
    },
    "bert-classifier": {"labels": ("a", "b"), "dropout": 0.0},
    "t5": {"n_head_dim": 4, "n_ffn": 16, "dropout": 0.0},
    "mlp": {"inputs": 12, "hidden": (4,), "norm": "batch", "labels": tuple("0123456789")},
    "cnn": {"channels": 2, "size": (4, 5), "widths": (3,), "mean": (0.1, 0.2), "std": (1.0, 2.0)},
    "resnet": {"widths": (3, 4), "blocks": (1, 2)},
}
IMAGES = {"mlp": (3, 2, 2), "cnn": (2, 4, 5), "resnet": (3, 5, 4)}

KINDS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "model": ("model.gguf", read_model),
    **{arch: (f"{arch}.gguf", read_model) for arch in OTHERS},
    "kept": ("kept.gguf", read_kept),
    "adapter": ("adapter.gguf", read_adapter),
    "gguf": ("plain.gguf", read_plain),
    "safetensors": ("w.safetensors", lambda p: load_safetensors(p) and None),
    "index": ("sharded/model.safetensors.index.json", lambda p: load_safetensors(p) and None),
    "tokenizer": ("tokenizer.json", read_tokens),
    "state": ("checkpoints/step-000003/state.json", read_checkpoint),
    "weights": ("checkpoints/step-000003/model.safetensors", read_checkpoint),
    "optimizer": ("checkpoints/step-000003/optimizer.safetensors", read_checkpoint),
    "text": ("text.txt", read_dataset),
    "settings": ("hf/tokenizer_config.json", read_settings),
    "parquet": ("rows.parquet", read_rows),
    "store": ("store/store.json", read_store),
    "store-tokens": ("store/tokens.bin", read_store),
    "store-documents": ("store/documents.bin", read_store),
    # A folder for each seed.
    **{name: (f"{name}-*/{readers.READERS[name][0]}", readers.READERS[name][1]) for name in SEEDED},
}


def _json_paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, part in items:
        found.append((*at, key))
        if isinstance(part, (dict, list)) and len(found) < 200:
            found += _json_paths(part, (*at, key))
    return found


def damage_json(r: random.Random, data: bytes) -> bytes:
    """Another value, or none, somewhere in a JSON file."""
    content = json.loads(data)
    for _ in range(r.randint(1, 2)):
        paths = _json_paths(content)
        if not paths:
            break
        path = r.choice(paths)
        parent = content
        try:
            for key in path[:-1]:
                parent = parent[key]
            if r.random() < 0.3:
                del parent[path[-1]]
            else:
                odd = (*HUGE, -1, 0.5, 1e308, None, True, "", "x", "../x", [], {}, [[]], "\x00")
                parent[path[-1]] = r.choice(odd)
        except (KeyError, IndexError, TypeError):
            continue
    return json.dumps(content).encode()


def damage_within(r: random.Random, name: str, data: bytes) -> bytes:
    """Damage what a file holds rather than its bytes: JSON, a line of it, what gzip packed."""
    if name.endswith(".json"):
        return damage_json(r, data)
    if name.endswith(".jsonl"):
        lines = data.splitlines()
        at = r.randrange(len(lines))
        lines[at] = damage_json(r, lines[at])
        return b"\n".join(lines)
    if data[:2] == b"\x1f\x8b":
        return gzip.compress(damage(r, gzip.decompress(data)))
    return damage(r, data)


def damage(r: random.Random, data: bytes) -> bytes:
    """Bits, bytes, lengths, or the end of a file."""
    out = bytearray(data)
    # Headers are short, and where the interesting numbers are.
    end = len(out) if r.random() < 0.4 else min(len(out), r.choice((32, 256, 2048)))
    kind = r.choice(("bits", "bytes", "number", "number", "cut", "insert", "random", "swap"))
    at = r.randrange(end)
    if kind == "bits":
        for _ in range(r.randint(1, 8)):
            out[r.randrange(end)] ^= 1 << r.randrange(8)
    elif kind == "bytes":
        n = r.randint(1, 16)
        out[at : at + n] = r.randbytes(n)
    elif kind == "number":
        n = r.choice((4, 8))
        out[at : at + n] = (r.choice(HUGE) & (2 ** (8 * n) - 1)).to_bytes(n, "little")
    elif kind == "cut":
        del out[r.randrange(len(out)) :]
    elif kind == "insert":
        out[at:at] = r.randbytes(r.choice((1, 8, 64)))
    elif kind == "random":
        out = bytearray(out[: r.choice((0, 4, 8))] + r.randbytes(r.randint(0, 500)))
    else:
        other = r.randrange(end)
        out[at], out[other] = out[other], out[at]
    return bytes(out)


def one(r: random.Random, folder: Path) -> None:
    kind = r.choice([kind for kind, (name, _) in KINDS.items() if any(folder.glob(name))])
    name, read = KINDS[kind]
    path = r.choice(sorted(folder.glob(name)))
    whole = path.read_bytes()
    within = r.random() < 0.6
    path.write_bytes(damage_within(r, name, whole) if within else damage(r, whole))
    state = folder / "checkpoints/step-000003/state.json"
    kept = state.read_bytes()
    if kind in ("weights", "optimizer") and r.random() < 0.7:  # a checksum that fits the damage
        record = json.loads(kept)
        del record["sha256"]
        data = path.read_bytes()
        record["files"][path.name] = {"size_bytes": len(data), "sha256": hash_of(data)}
        state.write_bytes(seal(record))
    counts["files"] += 1
    (folder / "last.txt").write_text(kind)
    try:
        read(path)
        counts["read"] += 1
    except REFUSALS as error:
        counts["refused"] += 1
        if path.name not in str(error) and str(path.parent) not in str(error):
            raise AssertionError(f"{kind}: the error does not name the file: {error}") from error
    except Exception as error:
        shutil.copy(path, folder / f"bad-{kind}")
        raise AssertionError(f"{kind}: {type(error).__name__}: {error}") from error
    finally:
        if kind != "state":
            state.write_bytes(kept)
        path.write_bytes(whole)


def main(count: int, seed: int, folder: Path) -> int:
    pg.seed(0)
    write_model(folder)
    importlib.import_module("pyggml.backend.device").available_bytes = lambda: 2**28
    # What a bad size would make of the machine's memory.
    resource.setrlimit(resource.RLIMIT_AS, (2**33, resource.getrlimit(resource.RLIMIT_AS)[1]))
    failed = 0
    for i in range(count):
        faulthandler.dump_traceback_later(LIMIT_S, exit=True)
        try:
            one(random.Random(f"{seed}-{i}"), folder)
        except AssertionError:
            failed += 1
            traceback.print_exc()
        faulthandler.cancel_dump_traceback_later()
    print(json.dumps({**counts, "failed": failed}), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))
