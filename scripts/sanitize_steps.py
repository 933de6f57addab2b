# SPDX-License-Identifier: MIT
"""Training steps of small models, for the sanitizers: rows enough for every thread of ggml.

The operands of the op table are tiny; here products are larger than a tile, the fused attention
splits its keys, and two threads of Python record and compute at once.
"""

from __future__ import annotations

import argparse
import threading

import numpy as np

import pyggml as pg
from pyggml import ops, optim
from pyggml.models import LanguageModel, build

VOCAB, BATCH, LENGTH = 211, 2, 70


def model_of(arch: str, attention: str, seed: int) -> LanguageModel:
    """A model of one block with weights of that seed."""
    pg.seed(seed)
    return build(arch, "tiny", vocab_size=VOCAB, context=LENGTH, n_layer=1, attention=attention)


def train(model: LanguageModel, seed: int) -> list[float]:
    """The losses of two AdamW steps."""
    ids = np.random.default_rng(seed).integers(0, VOCAB, (BATCH, LENGTH + 1), dtype=np.int32)
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(2):
        logits = model(pg.tensor(ids[:, :-1])).reshape(BATCH * LENGTH, VOCAB)
        loss = ops.cross_entropy(logits, pg.tensor(ids[:, 1:].reshape(-1)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main() -> None:
    """Train each kind, then two at once; a loss must fall and not depend on the company."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=4, help="of ggml")
    pg.set_threads(parser.parse_args().threads)
    for arch in ("gpt2", "llama"):
        for attention in ("plain", "flash"):
            losses = train(model_of(arch, attention, 0), 0)
            print(arch, attention, losses)
            assert losses[1] < losses[0]
    alone = {seed: train(model_of("gpt2", "flash", seed), seed) for seed in (1, 2)}
    together: dict[int, list[float]] = {}

    def run(model: LanguageModel, seed: int) -> None:
        together[seed] = train(model, seed)

    models = {seed: model_of("gpt2", "flash", seed) for seed in (1, 2)}
    threads = [threading.Thread(target=run, args=(models[seed], seed)) for seed in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("one after the other", alone)
    assert together == alone


if __name__ == "__main__":
    main()
