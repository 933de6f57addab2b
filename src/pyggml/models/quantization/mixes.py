# SPDX-License-Identifier: MIT
"""Which type a tensor gets in a mix of llama.cpp's: the rules of its quantiser, written down.

Source: src/llama-quant.cpp of llama.cpp, build b11549.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...backend.dtypes import as_dtype
from ...errors import ShapeError

__all__ = ["MIXES", "Mix", "Mixer", "in_order", "is_quantised", "needs_importance"]


@dataclass(frozen=True)
class Mix:
    """A mix of types.

    Args:
        number: llama.cpp's `general.file_type`.
        kind: the type of most matrices.
    """

    number: int
    kind: str


MIXES: dict[str, Mix] = {
    name: Mix(number, kind)
    for name, number, kind in (
        ("F32", 0, "f32"), ("F16", 1, "f16"), ("BF16", 32, "bf16"), ("Q4_0", 2, "q4_0"),
        ("Q4_1", 3, "q4_1"), ("Q5_0", 8, "q5_0"), ("Q5_1", 9, "q5_1"), ("Q8_0", 7, "q8_0"),
        ("Q1_0", 40, "q1_0"), ("Q2_0", 41, "q2_0"), ("MXFP4_MOE", 38, "mxfp4"),
        ("Q2_K", 10, "q2_K"), ("Q2_K_S", 21, "q2_K"), ("Q3_K_S", 11, "q3_K"),
        ("Q3_K_M", 12, "q3_K"), ("Q3_K_L", 13, "q3_K"), ("Q4_K_S", 14, "q4_K"),
        ("Q4_K_M", 15, "q4_K"), ("Q5_K_S", 16, "q5_K"), ("Q5_K_M", 17, "q5_K"),
        ("Q6_K", 18, "q6_K"), ("TQ1_0", 36, "tq1_0"), ("TQ2_0", 37, "tq2_0"),
        ("IQ1_S", 24, "iq1_s"), ("IQ1_M", 31, "iq1_m"), ("IQ2_XXS", 19, "iq2_xxs"),
        ("IQ2_XS", 20, "iq2_xs"), ("IQ2_S", 28, "iq2_xs"), ("IQ2_M", 29, "iq2_s"),
        ("IQ3_XXS", 23, "iq3_xxs"), ("IQ3_XS", 22, "iq3_s"), ("IQ3_S", 26, "iq3_s"),
        ("IQ3_M", 27, "iq3_s"), ("IQ4_NL", 25, "iq4_nl"), ("IQ4_XS", 30, "iq4_xs"),
    )
}  # fmt: skip
"""llama.cpp's mixes by name."""
MIXES |= {"Q3_K": MIXES["Q3_K_M"], "Q4_K": MIXES["Q4_K_M"], "Q5_K": MIXES["Q5_K_M"]}

# Matrices that stay as they are: names that end so, or hold so.
_KEPT_NAMES = ("position_embd.weight", "token_types.weight")
_KEPT_PARTS = (
    *("_norm.weight", "ffn_gate_inp.weight", "attn_rel_b.weight", "ssm_conv1d", "altup", "laurel"),
    *("shortconv.conv.weight", "per_layer_model_proj", ".position_embd", ".patch_embd"),
)
# What takes the place of a type whose blocks do not fit the rows.
_NARROWER = {
    **dict.fromkeys("iq1_s iq1_m iq2_xxs iq2_xs iq2_s iq3_xxs iq3_s iq4_xs".split(), "iq4_nl"),
    **dict.fromkeys("q2_0 q2_K q3_K tq1_0 tq2_0".split(), "q4_0"),
    **{"q4_K": "q5_0", "q5_K": "q5_1", "q6_K": "q8_0"},
}
_FEWEST_BITS = ("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M")
_IMPORTANT = ("iq3_xxs", "iq2_xxs", "iq2_xs", "iq2_s", "iq1_m", "iq1_s")
_PARTS = (
    *("attn_qkv.weight", "attn_kv_b.weight", "attn_v.weight", "attn_k.weight", "attn_q.weight"),
    *("attn_output.weight", "ffn_up", "ffn_gate", "ffn_down"),
)
_VALUES = ("attn_v.weight", "attn_qkv.weight", "attn_kv_b.weight")


def in_order(names: Iterable[str]) -> list[str]:
    """Return the names in llama.cpp's order: what is in no block, then block by block."""

    def place(name: str) -> tuple[int, bytes]:
        found = re.match(r"blk\.(\d+)\.", name)
        return (int(found[1]) if found else -1, name.encode())

    return sorted(names, key=place)


def is_quantised(name: str, shape: tuple[int, ...]) -> bool:
    """Return True for a tensor that a mix gives a type: most matrices."""
    kept = name in _KEPT_NAMES or any(part in name for part in _KEPT_PARTS)
    return len(shape) > 1 and name.endswith("weight") and not kept


def needs_importance(name: str, kind: str, mix: str) -> bool:
    """Return True for a tensor that is worth nothing without an importance matrix."""
    if name in ("token_embd.weight", "per_layer_token_embd.weight", "output.weight"):
        return False
    return kind in _IMPORTANT or (kind == "q2_K" and mix == "Q2_K_S")


class Mixer:
    """The choice of types for the tensors of one file, asked in llama.cpp's order.

    Args:
        mix: a key of `MIXES`.
        metadata: of the file.
        names: of all tensors.
        important: whether there is an importance matrix.
        pure: every matrix gets the mix's own type.
    """

    def __init__(
        self,
        mix: str,
        metadata: Mapping[str, Any],
        names: Iterable[str],
        important: bool,
        pure: bool = False,
    ) -> None:
        known = list(names)
        arch = metadata.get("general.architecture")
        self.mix = next(n for n, each in MIXES.items() if each == MIXES[mix])
        self.kind, self.important, self.pure = MIXES[mix].kind, important, pure
        self.arch = arch
        self.blocks = _number(metadata, f"{arch}.block_count")
        self.experts = _number(metadata, f"{arch}.expert_count")
        heads = _number(metadata, f"{arch}.attention.head_count")
        groups = _number(metadata, f"{arch}.attention.head_count_kv", heads)
        self.shared = heads // groups if groups else 0
        # Llama 70B and its like, whose heads share what is seen
        self.many = self.blocks == 80 and (arch == "qwen2" or (arch == "llama" and heads != groups))
        self.tied = "output.weight" not in known
        self.values = sum(any(part in name for part in _VALUES) for name in known)
        self._seen = dict.fromkeys(("value", "ffn_down", "ffn_gate", "ffn_up"), 0)

    def choose(self, name: str, shape: tuple[int, ...], kind: str) -> str:
        """Return the type of a tensor.

        Args:
            name: the tensor's.
            shape: in Python order.
            kind: its type now.
        """
        if not is_quantised(name, shape):
            return kind
        if not as_dtype(self.kind).quantized:
            return self.kind
        chosen = self.kind if self.pure else self._choose(name, shape)
        return _fitting(chosen, shape[-1])

    def _choose(self, name: str, shape: tuple[int, ...]) -> str:
        part = next((part for part in _PARTS if part in name), None)
        table = name in ("token_embd.weight", "per_layer_token_embd.weight")
        if name == "output.weight" or (table and self.tied):
            return self._head(shape)
        if self.mix == "MXFP4_MOE":
            return "mxfp4" if len(shape) > 2 else "q8_0"
        if table:
            return self._table()
        if self.mix in _FEWEST_BITS:
            return self._few_bits(part)
        if part in _VALUES:
            return self._value()
        if part == "ffn_down":
            return self._down(name)
        if part in ("ffn_gate", "ffn_up"):
            return self._wide(part, name)
        if part == "attn_output.weight":
            return self._output()
        if part in ("attn_q.weight", "attn_k.weight"):
            return "q8_0" if part == "attn_k.weight" and self.experts == 8 else self._seeking()
        return self.kind

    def _head(self, shape: tuple[int, ...]) -> str:
        if self.mix == "MXFP4_MOE" or self.arch == "falcon":
            return "q8_0"
        if shape[-1] % as_dtype(self.kind).block_size:
            return "q8_0"
        if self.mix in (*_FEWEST_BITS, "IQ3_XXS"):
            return "q5_K"
        return "q8_0" if self.kind == "q8_0" else "q6_K"

    def _table(self) -> str:
        if self.mix in ("IQ2_XXS", "IQ2_XS", "IQ1_S", "IQ1_M"):
            return "q2_K"
        if self.mix in ("IQ2_S", "IQ2_M", "IQ3_XXS"):
            return "iq3_s"
        return "q4_K" if self.mix in ("TQ1_0", "TQ2_0", "Q2_0") else self.kind

    def _few_bits(self, part: str | None) -> str:
        """The mixes of one and two bits."""
        better = self.mix in ("IQ2_S", "IQ2_M")
        if part in _VALUES:
            self._next("value")
            if self.shared >= 4 or self.experts >= 4:
                return "q4_K"
            return "iq3_s" if better else "q2_K"
        if part == "attn_k.weight" and self.experts == 8:
            return "q4_K"
        if part == "ffn_down" and self._next("ffn_down") < self.blocks // 8:
            return "iq3_s" if better else "q2_K"
        if part == "attn_output.weight":
            if self.experts == 8:
                return "q5_K"
            if better:
                return "iq3_s"
            return "iq2_xxs" if self.mix in ("IQ1_S", "IQ1_M") else self.kind
        return self.kind

    def _value(self) -> str:
        """Return the type of the matrix of values, or of the joint one; it needs the most bits."""
        at, mix, grouped = self._next("value"), self.mix, self.shared >= 4
        kind = self.kind
        if mix == "Q2_K":
            kind = "q4_K" if grouped else "q3_K"
        elif grouped and mix in ("Q2_K_S", "IQ3_XXS", "IQ3_XS", "IQ3_S"):
            kind = "q4_K"
        elif mix == "IQ3_XXS":
            kind = "iq3_xxs" if self.important else "iq3_s"
        elif mix == "IQ3_M":
            kind = "q4_K"
        elif mix == "Q3_K_M":
            kind = "q5_K" if at < 2 else "q4_K"
        elif mix == "Q3_K_L" or (grouped and mix in ("IQ4_NL", "IQ4_XS")):
            kind = "q5_K"
        elif mix in ("Q4_K_M", "Q5_K_M") and _more_bits(at, self.values):
            kind = "q6_K"
        elif mix == "Q4_K_S" and at < 4:
            kind = "q5_K"
        if self.many and kind in ("q3_K", "q4_K"):
            kind = "q5_K"
        return "q8_0" if self.experts == 8 else kind

    def _seeking(self) -> str:
        """Queries and keys."""
        return {"IQ3_XS": "iq3_xxs", "IQ3_XXS": "iq2_s"}.get(self.mix, self.kind)

    def _output(self) -> str:
        if self.arch == "falcon":
            return "q4_K" if self.mix == "Q3_K_L" else self.kind
        if self.experts == 8:
            fewer = "Q2_K IQ3_XS IQ3_XXS Q3_K_S Q3_K_M IQ4_NL Q4_K_S Q4_K_M IQ3_S IQ3_M IQ4_XS"
            return "q5_K" if self.mix in fewer.split() else self.kind
        better = {"Q2_K": "q3_K", "IQ3_XXS": "iq3_s", "Q3_K_M": "q4_K", "Q3_K_L": "q5_K"}
        return {**better, "IQ3_M": "q4_K"}.get(self.mix, self.kind)

    def _down(self, name: str) -> str:
        at, blocks, mix = self._place("ffn_down", name), self.blocks, self.mix
        falcon, first = self.arch == "falcon", at < blocks // 8
        if mix == "Q2_K":
            return "q3_K"
        if mix == "Q2_K_S":
            return "q4_K" if first else self.kind
        if mix == "IQ3_XXS" and not self.important:
            return "q4_K" if first else "q3_K"
        if mix == "Q3_K_M":
            if at < blocks // 16:
                return "q5_K"
            return "q4_K" if not falcon or _more_bits(at, blocks) else "q3_K"
        if mix == "IQ3_M" and (first or (self.experts == 8 and _more_bits(at, blocks))):
            return "q4_K"
        if mix == "Q3_K_L":
            return "q4_K" if falcon else "q5_K"
        if mix == "Q4_K_M":
            if falcon and at >= blocks // 16:
                return "q5_K" if _more_bits(at, blocks) else "q4_K"
            return "q6_K" if falcon or _more_bits(at, blocks) else self.kind
        if first and mix in ("IQ4_NL", "IQ4_XS") and not self.important:
            return "q5_K"
        if mix == "Q5_K_M" and _more_bits(at, blocks):
            return "q6_K"
        if mix == "Q4_K_S" and not falcon and first:
            return "q5_K"
        if mix in ("Q4_0", "Q5_0") and self.important and first:
            return {"Q4_0": "q4_1", "Q5_0": "q5_1"}[mix]
        return self.kind

    def _wide(self, part: str, name: str) -> str:
        """Return the type of a widening matrix of the feed-forward part."""
        at, blocks = self._place(part, name), self.blocks
        inner = blocks // 8 <= at < 7 * blocks // 8
        return "iq3_xxs" if self.mix == "IQ3_XS" and inner else self.kind

    def _next(self, part: str) -> int:
        """The number of the tensor among its like."""
        self._seen[part] += 1
        return self._seen[part] - 1

    def _place(self, part: str, name: str) -> int:
        """The number of the block, which is counted where there are no experts."""
        at = self._next(part)
        found = re.match(r"blk\.(\d+)\.", name)
        return int(found[1]) if self.experts > 1 and found else at


def _number(metadata: Mapping[str, Any], key: str, default: int = 0) -> int:
    """A count, the first of those by block."""
    value = metadata.get(key, default)
    if isinstance(value, (list, np.ndarray)):
        value = value[0] if len(value) else default
    return int(value) if isinstance(value, (int, np.integer)) else default


def _more_bits(at: int, blocks: int) -> bool:
    """The first eighth, the last, and every third between."""
    return at < blocks // 8 or at >= 7 * blocks // 8 or (at - blocks // 8) % 3 == 2


def _fitting(kind: str, columns: int) -> str:
    """The type, or the next one whose blocks fit the rows."""
    if columns % as_dtype(kind).block_size == 0:
        return kind
    other = _NARROWER.get(kind, kind)
    if other == kind and as_dtype(kind).block_size > 32:
        raise ShapeError(f"quantize_gguf: rows of {columns} numbers have no blocks of {kind}")
    return other if columns % as_dtype(other).block_size == 0 else "f16"
