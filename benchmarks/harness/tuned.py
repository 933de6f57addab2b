# SPDX-License-Identifier: MIT
"""The models that are fine-tuned: random ones of published shapes, in several types."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

# Those of Qwen2.5, and one that a test has time for.
SHAPES: dict[str, dict[str, Any]] = {
    "0.5b": {
        "n_layer": 24, "n_head": 14, "n_kv_head": 2, "n_embd": 896, "n_ffn": 4864,
        "vocab_size": 151936, "context": 32768,
    },
    "1.5b": {
        "n_layer": 28, "n_head": 12, "n_kv_head": 2, "n_embd": 1536, "n_ffn": 8960,
        "vocab_size": 151936, "context": 32768,
    },
    "tiny": {
        "n_layer": 2, "n_head": 4, "n_kv_head": 2, "n_embd": 256, "n_ffn": 512,
        "vocab_size": 512, "context": 512,
    },
}  # fmt: skip
# Mixes of llama.cpp by the names of the table.
KINDS = {"f16": "F16", "q8_0": "Q8_0", "q4_K_M": "Q4_K_M"}


@dataclass(frozen=True)
class Spec:
    """A step.

    Args:
        batch: B, sequences.
        seq: T, tokens of a sequence.
        rank: of the adapters.
        lr: learning rate.
        bf16: pyggml multiplies in bf16.
        checkpointing: blocks keep only their inputs for the backward.
        torch_dtype: of PyTorch's weights and products, bf16 or f32.
        seed: of adapters and tokens.
    """

    batch: int = 1
    seq: int = 512
    rank: int = 16
    lr: float = 2e-4
    bf16: bool = False
    checkpointing: bool = False
    torch_dtype: str = "bf16"
    seed: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The fields, as JSON carries them to a contender."""
        return asdict(self)


def batch(spec: Spec) -> tuple[np.ndarray, np.ndarray]:
    """The tokens of a step and those that follow; the same in all processes."""
    rng = np.random.default_rng(spec.seed)
    ids = rng.integers(0, 500, (spec.batch, spec.seq + 1)).astype(np.int32)
    return ids[:, :-1].copy(), ids[:, 1:].copy()


def write(shape: str, folder: Path, kinds: list[str], torch: bool) -> dict[str, Path]:
    """Write a random model in each type, and for PyTorch as a folder in bf16; return the paths."""
    import pyggml as pg
    from pyggml.models import build, convert
    from pyggml.models.quantization import quantize_gguf

    whole = folder / f"{shape}-f16.gguf"
    if not whole.exists():
        pg.seed(0)
        model = build("llama", {"family": "qwen2", "tie": True, **SHAPES[shape]})
        model.save_gguf(whole, dtype="f16", strict=None)
        del model
    paths = {"f16": whole}
    for kind in kinds:
        paths[kind] = folder / f"{shape}-{kind}.gguf"
        if not paths[kind].exists():
            quantize_gguf(whole, paths[kind], KINDS[kind])
    if torch:
        paths["torch"] = folder / f"{shape}-bf16"
        if not paths["torch"].exists():
            convert(whole, paths["torch"], "bf16")
    return paths
