# SPDX-License-Identifier: MIT
"""The model that every contender trains: GPT-2's shapes, first weights and tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

LR = 3e-4
BETAS = (0.9, 0.95)
EPS = 1e-8
WEIGHT_DECAY = 0.1  # of the matrices
CLIP = 1.0
NORM_EPS = 1e-5


@dataclass(frozen=True)
class Spec:
    """What is trained, and how.

    Args:
        layers: L, blocks.
        embd: C, width of the stream.
        heads: H, heads; must divide embd.
        vocab: V, tokens.
        batch: B, sequences of a step.
        seq: T, tokens of a sequence.
        dtype: "f32", or "tf32" or "bf16" for the operands of products.
        threads: of the computation.
        checkpointing: blocks keep only their inputs for the backward.
        fused_update: nobody clips, and pyggml updates in the backward, without gradients kept.
        attention: pyggml's, "plain", "flash" or "auto"; "" leaves it to the model.
        seed: of weights and tokens.
        weights: folder that `write_weights` filled.
    """

    layers: int = 12
    embd: int = 768
    heads: int = 12
    vocab: int = 50257
    batch: int = 4
    seq: int = 256
    dtype: str = "f32"
    threads: int = 2
    checkpointing: bool = False
    fused_update: bool = False
    attention: str = ""
    seed: int = 0
    weights: str = ""

    @property
    def tokens(self) -> int:
        """Tokens of a step."""
        return self.batch * self.seq

    @property
    def clip(self) -> float | None:
        """Longest gradient; None clips nothing."""
        return None if self.fused_update else CLIP

    @property
    def shape(self) -> tuple[int, ...]:
        """What decides the first weights."""
        return (self.layers, self.embd, self.vocab, self.seq, self.seed)

    @property
    def step_flops(self) -> int:
        """Multiplications and additions of a step's products, forward and backward.

        Attention counts whole: 4 T C of each token and block, the masked half included.
        """
        block = 2 * 12 * self.embd**2 + 4 * self.seq * self.embd
        return 3 * self.tokens * (self.layers * block + 2 * self.vocab * self.embd)

    def to_dict(self) -> dict[str, Any]:
        """The fields, as JSON carries them to a contender."""
        return asdict(self)


def parameters(spec: Spec) -> Iterator[tuple[str, tuple[int, ...], float | None]]:
    """Name, shape (out, in) and deviation of each parameter; None fills with ones."""
    c = spec.embd
    yield "transformer.wte.weight", (spec.vocab, c), 0.02
    yield "transformer.wpe.weight", (spec.seq, c), 0.02
    residual = 0.02 / (2 * spec.layers) ** 0.5
    for i in range(spec.layers):
        h = f"transformer.h.{i}"
        yield f"{h}.ln_1.weight", (c,), None
        yield f"{h}.ln_1.bias", (c,), 0.0
        yield f"{h}.attn.c_attn.weight", (3 * c, c), 0.02
        yield f"{h}.attn.c_attn.bias", (3 * c,), 0.0
        yield f"{h}.attn.c_proj.weight", (c, c), residual
        yield f"{h}.attn.c_proj.bias", (c,), 0.0
        yield f"{h}.ln_2.weight", (c,), None
        yield f"{h}.ln_2.bias", (c,), 0.0
        yield f"{h}.mlp.c_fc.weight", (4 * c, c), 0.02
        yield f"{h}.mlp.c_fc.bias", (4 * c,), 0.0
        yield f"{h}.mlp.c_proj.weight", (c, 4 * c), residual
        yield f"{h}.mlp.c_proj.bias", (c,), 0.0
    yield "transformer.ln_f.weight", (c,), None
    yield "transformer.ln_f.bias", (c,), 0.0


def write_weights(spec: Spec, folder: Path) -> None:
    """Draw the first weights into a folder, one file each, so that nobody holds all twice."""
    rng = np.random.default_rng(spec.seed)
    for name, shape, deviation in parameters(spec):
        if deviation is None:
            array = np.ones(shape, np.float32)
        elif deviation == 0.0:
            array = np.zeros(shape, np.float32)
        else:
            array = rng.standard_normal(shape, np.float32) * np.float32(deviation)
        np.save(folder / f"{name}.npy", array)


def read_weight(spec: Spec, name: str) -> np.ndarray:
    """One of the first weights, (out, in)."""
    array: np.ndarray = np.load(Path(spec.weights) / f"{name}.npy")
    return array


def batch(spec: Spec) -> tuple[np.ndarray, np.ndarray]:
    """Random inputs and the tokens after each: (B, T) i32, the same in every step."""
    rng = np.random.default_rng(spec.seed + 1)
    ids = rng.integers(0, spec.vocab, (spec.batch, spec.seq + 1), dtype=np.int32)
    return np.ascontiguousarray(ids[:, :-1]), np.ascontiguousarray(ids[:, 1:])
