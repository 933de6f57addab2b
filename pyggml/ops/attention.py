# SPDX-License-Identifier: MIT
"""The pieces of attention: masked softmax and rotary positions."""

from __future__ import annotations

from .._lib import ffi, lib
from ..errors import DTypeError, ShapeError
from ..tensor import Tensor, record
from ._check import contiguous, is_scalar, need_dtype, need_float, need_ndim, need_tensor

__all__ = ["rope", "soft_max"]

_ROPE_MODES = {"normal": 0, "neox": lib.GGML_ROPE_TYPE_NEOX}


def soft_max(x: Tensor, mask: Tensor | None = None, scale: float = 1.0) -> Tensor:
    """softmax(scale · x + mask) over the last axis.

    Args:
        x: f32 scores.
        mask: f32, added before the softmax; -inf hides an element. No gradient flows to it.
        scale: factor of x.

    Shape:
        x (..., T, S), mask (T, S) or with leading extents that divide those of x -> (..., T, S)

    Raises:
        ShapeError: the mask does not fit.
        DTypeError: an input is not f32.

    Source: ggml_soft_max_ext.
    """
    need_float("soft_max", "x", x)
    if x.ndim == 0:
        raise ShapeError("soft_max: x must have an axis; got a scalar")
    if not is_scalar(scale):
        raise TypeError(f"soft_max: scale must be a number; got {type(scale).__name__}")
    args = [contiguous(x), ffi.NULL, float(scale), 0.0]
    if mask is not None:
        need_float("soft_max", "mask", mask)
        fits = (
            2 <= mask.ndim <= x.ndim
            and mask.shape[-2:] == x.shape[-2:]
            and all(
                nx % nm == 0
                for nx, nm in zip(x.shape[:-2][::-1], mask.shape[:-2][::-1], strict=False)
            )
        )
        if not fits:
            raise ShapeError(
                "soft_max: mask must be (T, S) of x (..., T, S), its leading extents dividing x's;"
                f" got mask.shape={mask.shape}, x.shape={x.shape}"
            )
        if mask.requires_grad:
            raise ValueError("soft_max: the mask cannot require a gradient; use mask.detach()")
        args[1] = contiguous(mask)
    return record(lib.ggml_soft_max_ext, args, x.shape)


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
        ValueError: an unknown mode.

    Source: ggml_rope_ext; Su et al. 2021, arXiv:2104.09864.
    """
    need_float("rope", "x", x)
    need_ndim("rope", "x", x, 3, 4)
    need_tensor("rope", "positions", positions)
    need_dtype("rope", "positions", positions, "i32")
    if mode not in _ROPE_MODES:
        raise ValueError(f"rope: mode must be one of {', '.join(_ROPE_MODES)}; got {mode!r}")
    if positions.shape != (x.shape[-3],):
        raise ShapeError(
            f"rope: positions must be (T,)=({x.shape[-3]},) for x.shape={x.shape};"
            f" got {positions.shape}"
        )
    dims = x.shape[-1] if n_dims is None else n_dims
    if isinstance(dims, bool) or not isinstance(dims, int):
        raise ShapeError(f"rope: n_dims must be an integer; got {n_dims!r}")
    # ggml copies the numbers that do not turn in pairs, too.
    if x.shape[-1] % 2 or dims % 2 or not 2 <= dims <= x.shape[-1]:
        raise ShapeError(
            f"rope: D and n_dims must be even, n_dims at most D={x.shape[-1]}; got n_dims={dims}"
        )
    if not (is_scalar(base) and is_scalar(scale) and base > 0):
        raise ValueError(f"rope: base must be positive; got base={base!r}, scale={scale!r}")
    factors = ffi.NULL
    if freq_factors is not None:
        need_tensor("rope", "freq_factors", freq_factors)
        if freq_factors.dtype.name != "f32":
            raise DTypeError(f"rope: freq_factors must be f32; got {freq_factors.dtype.name}")
        if freq_factors.shape != (dims // 2,):
            raise ShapeError(f"rope: freq_factors must be ({dims // 2},); got {freq_factors.shape}")
        if freq_factors.requires_grad:
            raise ValueError("rope: freq_factors cannot require a gradient")
        factors = contiguous(freq_factors)
    # The last five: no YaRN extrapolation, no attention factor.
    args = [contiguous(x), contiguous(positions), factors, dims, _ROPE_MODES[mode], 0]
    args += [float(base), float(scale), 0.0, 1.0, 32.0, 1.0]
    return record(lib.ggml_rope_ext, args, x.shape)
