# SPDX-License-Identifier: MIT
"""Attention and its pieces: masked softmax, rotary positions, the fused op."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from ..backend.device import Device
from ..backend.library import ffi, lib
from ..checks import choice, number, whole
from ..errors import DTypeError, ShapeError
from ..tensors.autocast import allow_rounding
from ..tensors.node import Arena
from ..tensors.on_demand import on_demand
from ..tensors.record import record
from ..tensors.storage import read
from ..tensors.tensor import Tensor
from .matrices import rows_in_order
from .operands import contiguous, need_dtype, need_float, need_ndim, need_tensor
from .shape import cast

__all__ = ["flash_attn_ext", "rope", "soft_max"]

_F16_MAX = 65504.0
_ROPE_MODES = {"normal": 0, "neox": lib.GGML_ROPE_TYPE_NEOX}


def _mask(who: str, mask: Any, lead: tuple[int, ...], last: tuple[int, ...], scores: str) -> Tensor:
    need_tensor(who, "mask", mask)
    need_dtype(who, "mask", mask, "f32", "f16")
    fits = (
        2 <= mask.ndim <= len(lead) + 2
        and mask.shape[-2:] == last
        and all(nx % nm == 0 for nx, nm in zip(lead[::-1], mask.shape[:-2][::-1], strict=False))
    )
    if not fits:
        raise ShapeError(
            f"{who}: mask must be (T, S) = {last} for this {scores}, its leading extents dividing"
            f" {lead}; got mask.shape={mask.shape}"
        )
    if mask.requires_grad:
        raise ValueError(f"{who}: the mask cannot require a gradient; use mask.detach()")
    return contiguous(mask)


def _fits_f16(who: str, mask: Tensor) -> None:
    """Raise for a stored mask whose finite numbers would become infinite in f16."""
    if mask.dtype.name == "f32" and mask.is_stored:
        values = read(mask.node)
        beyond = np.isfinite(values) & (np.abs(values) > _F16_MAX)
        if beyond.any():
            raise ValueError(
                f"{who}: the mask is computed in f16, whose finite numbers end at"
                f" ±{_F16_MAX:g}; got {values[beyond][0]:g}; hide elements with -inf"
            )


def _bias(who: str, max_bias: Any, mask: Tensor | None) -> float:
    bias = number(who, "max_bias", max_bias, 0.0)
    if bias > 0 and mask is None:
        raise ValueError(f"{who}: max_bias={bias} slopes the mask of each head; give a mask")
    return bias


def _sinks(who: str, sinks: Any, heads: int) -> Tensor:
    need_float(who, "sinks", sinks)
    if sinks.shape != (heads,):
        raise ShapeError(f"{who}: sinks must be (H,) = ({heads},); got {sinks.shape}")
    return contiguous(sinks)


def _soft_max(ctx: Any, x: Any, mask: Any, scale: float, max_bias: float, sinks: Any) -> Any:
    ptr = lib.ggml_soft_max_ext(ctx, x, mask, scale, max_bias)
    lib.ggml_soft_max_add_sinks(ptr, sinks)
    return ptr


@on_demand
def soft_max(
    x: Tensor,
    mask: Tensor | None = None,
    scale: float = 1.0,
    max_bias: float = 0.0,
    sinks: Tensor | None = None,
) -> Tensor:
    """softmax(scale · x + slope · mask) over the last axis.

    Args:
        x: f32 scores.
        mask: f32 or f16, added before the softmax; -inf hides an element. No gradient flows to it.
        scale: factor of x.
        max_bias: above 0, ALiBi: the mask holds negative distances, and each head has its own
            slope of them; 0 is a slope of 1.
        sinks: f32, one more score for each head, which takes its share and gives nothing.

    Shape:
        x (..., H, T, S), mask (T, S) or with leading extents that divide those of x, sinks (H,)
        -> (..., H, T, S)

    Raises:
        ShapeError: the mask or the sinks do not fit.
        DTypeError: an input is not f32.
        ValueError: max_bias without a mask, a number out of range, or a mask that requires a
            gradient.

    Source: ggml_soft_max_ext, ggml_soft_max_add_sinks; ALiBi: Press et al. 2021,
        arXiv:2108.12409; sinks: Xiao et al. 2023, arXiv:2309.17453.
    """
    need_float("soft_max", "x", x)
    if x.ndim == 0:
        raise ShapeError("soft_max: x must have an axis; got a scalar")
    factor = number("soft_max", "scale", scale)
    args: list[Any] = [contiguous(x), ffi.NULL, factor, 0.0]
    if mask is not None:
        if x.ndim < 2:
            raise ShapeError(f"soft_max: a mask needs x (..., T, S); got x.shape={x.shape}")
        args[1] = _mask("soft_max", mask, x.shape[:-2], x.shape[-2:], "x")
    args[3] = _bias("soft_max", max_bias, mask)
    if sinks is None:
        return record(lib.ggml_soft_max_ext, args, x.shape)
    args.append(_sinks("soft_max", sinks, x.shape[-3] if x.ndim > 2 else 1))
    return record(_soft_max, args, x.shape)


@lru_cache(maxsize=64)
def computes_flash_attn(
    where: Device, width: int, softcap: bool = False, sinks: bool = False
) -> bool:
    """Return True if a device computes `flash_attn_ext` of f32 heads and its gradient.

    Args:
        where: the device.
        width: of a head.
        softcap: of scores with a soft cap.
        sinks: with sinks, whose gradient it computes too.
    """
    rows = 32  # more than what takes the kernels of generation
    arena = Arena(16)

    def new(kind: int, *extents: int) -> Any:
        return lib.ggml_new_tensor_4d(arena.ctx, kind, *extents)

    heads = (new(lib.GGML_TYPE_F32, width, 1, rows, 1) for _ in "qkv")
    q, k, v = (lib.ggml_permute(arena.ctx, x, 0, 2, 1, 3) for x in heads)
    mask = new(lib.GGML_TYPE_F16, rows, rows, 1, 1)
    factors = (width**-0.5, 0.0, 50.0 if softcap else 0.0)
    out = lib.ggml_flash_attn_ext(arena.ctx, q, k, v, mask, *factors)
    extra = new(lib.GGML_TYPE_F32, 1, 1, 1, 1) if sinks else ffi.NULL
    if sinks:
        lib.ggml_flash_attn_ext_add_sinks(out, extra)
    back = lib.ggml_flash_attn_ext_back(arena.ctx, out, q, k, v, mask, extra, out, *factors)
    return where.supports(out) and where.supports(back)


def _flash_attn_ext(ctx: Any, *args: Any) -> Any:
    *rest, sinks = args
    ptr = lib.ggml_flash_attn_ext(ctx, *rest)
    lib.ggml_flash_attn_ext_add_sinks(ptr, sinks)
    return ptr


@on_demand
def flash_attn_ext(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    scale: float | None = None,
    max_bias: float = 0.0,
    softcap: float = 0.0,
    sinks: Tensor | None = None,
) -> Tensor:
    """softmax(scale · q @ kᵀ + slope · mask) @ v of each head, without storing the T × S scores.

    The backward computes them again, tile by tile.

    Precision on the CPU: f32 keys and values give results and gradients within 1e-6 of the plain
    ops, and so do f16 ones from 32 query rows (T) on, up to 16384 keys. Fewer rows or more keys of
    f16, and any of bf16, take ggml's older forward, which rounds the queries to k's dtype and, for
    f16, adds up in it: a result that is off by up to 8e-3 of its largest number, and gradients of
    q and k, which are made from it, by up to 6e-3. Train over few rows with f32 keys and values.
    With fewer than 32 query rows an infinite score, of an infinite key for instance, hides all
    others, where softmax has NaN.
    Inside `autocast("bf16")` a GPU may round q, k, v and the gradient to bf16 in the backward.

    Args:
        q: f32 queries.
        k: keys, f32, f16 or bf16; a key-value head serves H / G query heads beside each other.
        v: values, of k's dtype.
        mask: added before the softmax; -inf hides an element, and a row in which all is hidden
            gives 0. f32 is rounded to f16, which has 11 bits and ends at ±65504: finite numbers
            beyond raise in a stored mask, and are infinite in a recorded one or one that
            is overwritten later. No gradient flows to it.
        scale: None is 1 / sqrt(D).
        max_bias: above 0, ALiBi; see `soft_max`.
        softcap: above 0, scores become softcap · tanh(score / softcap) before the mask.
        sinks: f32, one more score for each head; see `soft_max`.

    Shape:
        q (B, H, T, D), k (B, G, S, D), v (B, G, S, E), mask (T, S) or with leading extents that
        divide (B, H), sinks (H,) -> (B, T, H, E)

    Raises:
        ShapeError: the shapes do not belong together.
        DTypeError: a dtype is another.
        ValueError: max_bias without a mask, a number out of range, a mask that requires a
            gradient, or one with finite numbers beyond f16's.

    Source: ggml_flash_attn_ext; Dao 2023, arXiv:2307.08691; softcap: arXiv:2408.00118.

    Example:
        >>> q, k = ones((1, 4, 3, 8)), ones((1, 2, 5, 8))
        >>> flash_attn_ext(q, k, k).shape
        (1, 3, 4, 8)
    """
    who = "flash_attn_ext"
    need_float(who, "q", q)
    need_tensor(who, "k", k)
    need_tensor(who, "v", v)
    need_dtype(who, "k", k, "f32", "f16", "bf16")
    if v.dtype != k.dtype:
        raise DTypeError(f"{who}: v must be {k.dtype.name}, as k is; got {v.dtype.name}")
    for name, x in (("q", q), ("k", k), ("v", v)):
        need_ndim(who, name, x, 4)
    (batch, heads, length, width), (_, groups, span, _) = q.shape, k.shape
    if (k.shape[0], k.shape[3]) != (batch, width) or v.shape[:3] != k.shape[:3] or heads % groups:
        raise ShapeError(
            f"{who}: needs q (B, H, T, D), k (B, G, S, D), v (B, G, S, E), H a multiple of G;"
            f" got q {q.shape}, k {k.shape}, v {v.shape}"
        )
    scale = 1.0 / math.sqrt(width) if scale is None else scale
    factor = number(who, "scale", scale)
    bias = _bias(who, max_bias, mask)
    cap = number(who, "softcap", softcap, 0.0)
    hidden: Any = ffi.NULL
    if mask is not None:
        hidden = _mask(who, mask, (batch, heads), (length, span), "q and k")
        _fits_f16(who, mask)
        hidden = contiguous(cast(hidden, "f16"))
    args = [*map(rows_in_order, (q, k, v)), hidden, factor, bias, cap]
    args.append(ffi.NULL if sinks is None else _sinks(who, sinks, heads))
    result = record(_flash_attn_ext, args, (batch, length, heads, v.shape[3]))
    allow_rounding(result.ptr, sources=3)
    return result


@on_demand
def rope(
    x: Tensor,
    positions: Tensor,
    n_dims: int | None = None,
    mode: str = "neox",
    base: float = 10000.0,
    scale: float = 1.0,
    freq_factors: Tensor | None = None,
) -> Tensor:
    """Rotate pairs of each head's numbers by an angle that grows with the position.

    Pair i of n_dims/2 turns by position · scale · base^(-2i/n_dims) / freq_factors[i]. A pair is
    (i, i + n_dims/2) in mode "neox", as in Hugging Face's models, and (2i, 2i + 1) in "normal".

    Args:
        x: f32 queries or keys.
        positions: i32.
        n_dims: how many leading numbers of a head turn; even; None for all.
        mode: "neox" or "normal".
        base: base of the angles, > 0.
        scale: factor of the positions.
        freq_factors: divisors of the angles, f32.

    Shape:
        x (B, T, H, D) or (T, H, D), positions (T,), freq_factors (n_dims/2,) -> as x

    Raises:
        ShapeError: positions are not (T,), or n_dims does not fit D.
        ValueError: an unknown mode, or a number out of range.

    Source: ggml_rope_ext; Su et al. 2021, arXiv:2104.09864.
    """
    need_float("rope", "x", x)
    need_ndim("rope", "x", x, 3, 4)
    need_tensor("rope", "positions", positions)
    need_dtype("rope", "positions", positions, "i32")
    choice("rope", "mode", mode, _ROPE_MODES)
    if positions.shape != (x.shape[-3],):
        raise ShapeError(
            f"rope: positions must be (T,)=({x.shape[-3]},) for x.shape={x.shape};"
            f" got {positions.shape}"
        )
    width = x.shape[-1]
    dims = width if n_dims is None else whole("rope", "n_dims", n_dims, 2, width)
    # ggml copies the numbers that do not turn in pairs, too.
    if width % 2 or dims % 2:
        raise ShapeError(
            f"rope: the last axis of x and n_dims must be even; got x.shape={x.shape},"
            f" n_dims={dims}"
        )
    base = number("rope", "base", base)
    scale = number("rope", "scale", scale)
    if not base > 0:
        raise ValueError(f"rope: base must be above 0; got {base}")
    factors = ffi.NULL
    if freq_factors is not None:
        need_tensor("rope", "freq_factors", freq_factors)
        if freq_factors.dtype.name != "f32":
            raise DTypeError(f"rope: freq_factors must be f32; got {freq_factors.dtype.name}")
        if freq_factors.shape != (dims // 2,):
            raise ShapeError(
                f"rope: freq_factors must be (n_dims/2,) = ({dims // 2},); got {freq_factors.shape}"
            )
        if freq_factors.requires_grad:
            raise ValueError("rope: freq_factors cannot require a gradient")
        factors = contiguous(freq_factors)
    # The last five: no YaRN extrapolation, no attention factor.
    args = [contiguous(x), contiguous(positions), factors, dims, _ROPE_MODES[mode], 0]
    args += [base, scale, 0.0, 1.0, 32.0, 1.0]
    return record(lib.ggml_rope_ext, args, x.shape)
