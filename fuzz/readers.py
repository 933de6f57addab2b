# SPDX-License-Identifier: MIT
"""The Python readers of files, as their fuzzers call them.

`python fuzz/readers.py NAME CORPUS FILE...` reads each file once; it returns 1 at a finding.

Bytes are written to a file and read. They must be read, or refused by an error of the package that
names the file.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np

import pyggml as pg
from pyggml.data import Tokenizer, read_chats, read_idx, read_pairs, read_records, read_text
from pyggml.data.images.files import read_image
from pyggml.errors import ConfigError
from pyggml.io import load_safetensors, read_gguf
from pyggml.io.sealed import seal
from pyggml.models import load, load_lora
from pyggml.models.quantization import read_importance
from pyggml.recipes.config_file import read_config
from pyggml.train import CheckpointError, load_checkpoint

__all__ = ["READERS", "limit", "prepare", "read"]

_MOST_BYTES = 2**33  # of address space: what a bad size would make of the machine's memory
_REFUSALS = (pg.FormatError, CheckpointError, ConfigError)


def _gguf(path: Path) -> None:
    with read_gguf(path) as file:
        for name in file:
            file.array(name, dequantise=True)
    model, tokenizer = load(path)
    if tokenizer is not None:
        tokenizer.decode([0, 1])
    if hasattr(model.config, "context"):
        model(pg.tensor(np.zeros((1, min(2, model.config.context)), np.int32))).numpy()


def _tokenizer(path: Path) -> None:
    tokenizer = Tokenizer.from_file(path)
    try:
        tokenizer.decode(tokenizer.encode("to be or not"))
        tokenizer.to_gguf_metadata()
    except ValueError as error:  # such as a vocabulary that lacks this text's letters
        if not str(error).startswith("Tokenizer."):
            raise


def _image(path: Path) -> None:
    """Read an image; an error of the package's own code is no refusal, though read as one."""
    try:
        read_image(path)
    except pg.FormatError as error:
        cause = error.__cause__
        frames = [] if cause is None else traceback.extract_tb(cause.__traceback__)
        own = frames and Path(frames[-1].filename).is_relative_to(Path(pg.__file__).parent)
        if cause is not None and own and not isinstance(cause, (ValueError, OSError)):
            raise cause from None
        raise


def _state(path: Path) -> None:
    """Give the record a checksum that fits, so that more than the checksum is looked at."""
    with contextlib.suppress(ValueError, RecursionError):
        record = json.loads(path.read_bytes())
        if isinstance(record, dict):
            record.pop("sha256", None)
            path.write_bytes(seal(record))
    load_checkpoint(path.parent)


def _adapter(path: Path) -> None:
    model, _ = load(path.with_name("base.gguf"))
    load_lora(model, path)


def _rows(path: Path) -> None:
    for _ in read_records(path):
        pass


# The name of a reader: its file's name, and what reads it.
READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "gguf": ("model.gguf", _gguf),
    "safetensors": ("w.safetensors", load_safetensors),
    "tokenizer": ("tokenizer.json", _tokenizer),
    "state": ("state.json", _state),
    "toml": ("run.toml", read_config),
    "image": ("image.png", _image),
    "text": ("text.txt", read_text),
    "gzip": ("rows.jsonl.gz", _rows),
    "csv": ("rows.csv", _rows),
    "pairs": ("pairs.jsonl", lambda path: list(read_pairs(path))),
    "chats": ("chats.jsonl", read_chats),
    "idx": ("images.idx", read_idx),
    "adapter": ("adapter.gguf", _adapter),
    "imatrix": ("imatrix.dat", read_importance),
}


def prepare(name: str, corpus: Path, folder: Path) -> None:
    """Put what a reader needs beside its file into a folder; seeds.py wrote it into `corpus`."""
    if name == "state":
        for file in (corpus / "made/checkpoints/step-000003").iterdir():
            if file.name != "state.json":
                os.link(file, folder / file.name)
    elif name == "adapter":
        os.link(corpus / "made/q8.gguf", folder / "base.gguf")


def read(name: str, data: bytes, folder: Path) -> bool:
    """Read bytes; True where they were read, False where they were refused.

    Raises:
        AssertionError: the refusal does not name the file.
        Exception: anything else is a finding.
    """
    file, reader = READERS[name]
    path = folder / file
    path.write_bytes(data)
    try:
        reader(path)
    except _REFUSALS as error:
        if file not in str(error) and str(folder) not in str(error):
            raise AssertionError(f"the error names no file: {error}") from error
        return False
    return True


def limit() -> None:
    """Limit what a bad size can ask for."""
    importlib.import_module("pyggml.backend.device").available_bytes = lambda: 2**28
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, hard))


def main(name: str, corpus: Path, files: list[Path]) -> int:
    """Read files once each; return 1 if there is a finding."""
    with tempfile.TemporaryDirectory(prefix="pyggml-fuzz-") as temporary:
        folder = Path(temporary)
        prepare(name, corpus, folder)
        limit()
        bad = 0
        for file in files:
            try:
                read(name, file.read_bytes(), folder)
            except Exception:  # noqa: BLE001 - any is a finding
                print(f"{file}:\n{traceback.format_exc()}", file=sys.stderr)
                bad = 1
    return bad


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), [Path(file) for file in sys.argv[3:]]))
