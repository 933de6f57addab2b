# SPDX-License-Identifier: MIT
"""A corpus larger than the memory that is used to tokenize it and to train on it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pyggml.data import Tokenizer, embedded_text

pytest.importorskip("tokenizers")

CORPUS_BYTES = int(os.environ.get("PYGGML_CORPUS_BYTES", "2000000000"))
EXTRA_BYTES_MAX = 200 * 10**6

RUN = """
import json, resource, sys
from pathlib import Path
import numpy as np
import pyggml as pg
from pyggml.data import Loader, RandomWindows, TokenStore, Tokenizer
from pyggml.models import build
from pyggml.optim import AdamW
from pyggml.train import TrainStep

def peak():
    kib = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * kib

folder = Path(sys.argv[1])
tokenizer = Tokenizer.from_file(folder / "tokenizer.json")
sizes = {"n_layer": 2, "n_head": 2, "n_embd": 32, "context": 256}
model = build("llama", sizes, vocab_size=tokenizer.vocab_size)
step = TrainStep(model, AdamW(model.parameters(), lr=1e-2))

def train(ids, steps):
    loader = Loader(RandomWindows(ids, 256), 4, seed=1)
    return [step([next(loader)]).loss for _ in range(steps)]

# The same training on tokens that are in memory, for comparison.
train(tokenizer.encode((folder / "small.txt").read_text()), 3)
before = peak()
store = TokenStore.build(folder / "corpus", tokenizer, folder / "cache")
built = peak()
losses = train(store.ids, 60)
after = peak()
assert isinstance(store.ids, np.memmap)
print(json.dumps({
    "tokens": len(store), "before": before, "built": built, "after": after,
    "extra": after - before, "first": losses[0], "last": losses[-1],
}))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs getrusage")
def test_two_gigabytes_take_little_memory(tmp_path: Path) -> None:
    if shutil.disk_usage(tmp_path).free < 4 * CORPUS_BYTES:
        pytest.skip("the disk is too full")
    texts = embedded_text()
    Tokenizer.train_bpe(texts, 512).save(tmp_path / "tokenizer.json")
    block = "\n".join(texts).encode()
    (tmp_path / "small.txt").write_bytes(block[:20000])
    (tmp_path / "corpus").mkdir()
    with open(tmp_path / "corpus" / "all.txt", "wb") as file:
        while file.tell() < CORPUS_BYTES:
            file.write(block)
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout.splitlines()[-1])
    print(result)
    assert result["tokens"] > CORPUS_BYTES / 8
    assert result["last"] < result["first"]
    assert result["extra"] < EXTRA_BYTES_MAX
