# SPDX-License-Identifier: MIT
"""Mixed precision: which matmuls may round their operands."""

from __future__ import annotations

from typing import Any, SupportsIndex

from ..backend.dtypes import DType, as_dtype, is_dtype
from ..backend.library import lib
from ..backend.scopes import Scope, Scopes
from ..errors import fitting, shown

__all__ = ["allow_rounding", "at_level", "autocast", "bf16_matmuls", "rounding", "rounds_operands"]

_LEVELS = {
    "f32": lib.GGML_PREC_UNDEFINED,
    "tf32": lib.GGML_PREC_TF32,
    "bf16": lib.GGML_PREC_BF16,
    "f16": lib.GGML_PREC_F16,
}
# What ggml's matmuls round to by themselves. They read the level of f16 as leave for bf16, so
# the operands of f16 are rounded by casts; adding f16 here leaves it to the matmuls.
_IN_PRODUCTS = {lib.GGML_PREC_TF32, lib.GGML_PREC_BF16}
# What torch.set_float32_matmul_precision and others call these.
_OF_TORCH = {"highest": "f32", "high": "tf32", "medium": "bf16", "fp16": "f16", "fp32": "f32"}


_levels = Scopes()
_PLAIN = int(lib.GGML_PREC_UNDEFINED)


@fitting
def autocast(dtype: DType | str = "bf16") -> Scope:
    """Let the matmuls recorded on this thread multiply bf16, TF32 or f16 instead of f32.

    Parameters, activations, gradients and sums stay f32: only what is multiplied is rounded,
    while it is copied into the matmul's panels, so there are no second copies in memory. The
    matmuls of the backward follow those of the forward. It is a permission: devices that gain
    nothing from bf16 go on in f32; see `bf16_matmuls`.

    With TF32, CUDA's matmuls round their operands to 10 bits behind the point, on GPUs of compute
    capability 8.0 and later; the range is that of f32. Attention, and all other devices, go on in
    f32.

    With f16 the operands of the forward's matmuls are rounded for certain, by casts of their own:
    more memory, no more speed. The backward multiplies those rounded operands with gradients in
    f32. Numbers beyond 65504 become infinite.

    Args:
        dtype: bf16, f16 or "tf32", or f32 to take the permission back inside.

    Raises:
        ValueError: another dtype.

    Source: torch.autocast, torch.set_float32_matmul_precision; ggml_prec_set_src.

    Example:
        >>> with autocast("bf16"):
        ...     y = ops.mul_mat(w, x)  # doctest: +SKIP
    """
    name = as_dtype(dtype).name if is_dtype(dtype) or not isinstance(dtype, str) else dtype
    if name not in _LEVELS:
        lower = str(name).lower()
        own = lower if lower in _LEVELS else _OF_TORCH.get(lower)
        cure = (
            f"pg.autocast('{own}')" if own else "pg.autocast('bf16') is of the device that computes"
        )
        raise ValueError(
            f"autocast: dtype must be tf32, bf16, f16 or f32; got {shown(name)}: {cure}"
        )
    return _Level(_LEVELS[name])


class _Level(Scope):
    """Sets a level of rounding."""

    def __init__(self, level: int):
        super().__init__(_levels, level)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return _Level, (self.value,)


def at_level(level: int) -> Scope:
    """Set the level of rounding that `rounding` returned."""
    return _Level(level)


def rounding() -> int:
    """Return the level of rounding that matmuls recorded now may use, a part of a graph's key."""
    if not _levels.entries:
        return _PLAIN
    level: int = _levels.innermost(_PLAIN)
    return level


def allow_rounding(matmul: Any, sources: int = 2) -> None:
    """Give a recorded matmul or attention the permission of this thread.

    Args:
        matmul: ggml tensor of MUL_MAT, MUL_MAT_ID, OUT_PROD or FLASH_ATTN_EXT.
        sources: how many are multiplied; 3 of attention.
    """
    level = rounding()
    if level in _IN_PRODUCTS:
        for source in range(sources):
            lib.ggml_prec_set_src(matmul, level, source)


def rounds_operands() -> bool:
    """Return True if matmuls recorded now round their f32 operands by casts to f16."""
    return rounding() not in _IN_PRODUCTS and rounding() != lib.GGML_PREC_UNDEFINED


@fitting
def bf16_matmuls() -> bool:
    """Return True if this CPU multiplies bf16 in hardware: `autocast` then makes it faster.

    Example:
        >>> isinstance(bf16_matmuls(), bool)
        True
    """
    return bool(lib.ggml_cpu_has_avx512_bf16())
