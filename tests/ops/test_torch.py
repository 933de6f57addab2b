# SPDX-License-Identifier: MIT
"""The table's gradients against PyTorch's in float64, for every op that PyTorch has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml.testing import CASES, TOLERANCES, Case
from pyggml.testing import references as r
from pyggml.testing import references_attention as a
from pyggml.testing.cases_rows import BATCHED

torch = pytest.importorskip("torch")
F = torch.nn.functional
# PyTorch differentiates exactly: what is left is ggml's f32.
FORWARD, BACKWARD = TOLERANCES["f32"][0], 1e-5


def _split(x: Any, swapped: bool) -> tuple[Any, Any]:
    gate, up = x.chunk(2, -1)
    return (up, gate) if swapped else (gate, up)


def _gated(act: Callable[..., Any]) -> Callable[..., Any]:
    def fn(gate: Any, up: Any = None, swapped: bool = False) -> Any:
        if up is None:
            gate, up = _split(gate, swapped)
        elif swapped:
            gate, up = up, gate
        return act(gate) * up

    return fn


def _oai(case: Case) -> Callable[..., Any]:
    alpha, limit = (1.2, 1.5) if case.view else (1.702, 7.0)

    def fn(gate: Any, up: Any = None) -> Any:
        gate, up = _split(gate, False) if up is None else (gate, up)
        gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
        return gate * torch.sigmoid(alpha * gate) * (up + 1)

    return fn


def _mul_mat(w: Any, x: Any) -> Any:
    for axis in range(w.ndim - 2):
        w = w.repeat_interleave(x.shape[x.ndim - w.ndim + axis] // w.shape[axis], axis)
    return x @ w.mT


def _out_prod(x: Any, y: Any) -> Any:
    for axis in range(x.ndim - 2):
        x = x.repeat_interleave(y.shape[y.ndim - x.ndim + axis] // x.shape[axis], axis)
    return y.mT @ x


def _sum(x: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    return x.sum() if axis is None else x.sum(axis, keepdim=keepdims)


def _pad(x: Any, widths: Any, mode: str) -> Any:
    flat = [n for pair in reversed(widths) for n in pair]
    if mode == "zeros":
        return F.pad(x, flat)
    return F.pad(x[None], flat, mode="circular")[0]


def _reflect(x: Any, before: int, after: int) -> Any:
    rows = F.pad(x.reshape(1, -1, x.shape[-1]), (before, after), mode="reflect")
    return rows.reshape(*x.shape[:-1], -1)


def _interpolate(x: Any, size: Any, mode: str, corners: bool = False, anti: bool = False) -> Any:
    options = {} if mode == "nearest" else {"align_corners": corners, "antialias": anti}
    images = x if x.ndim == 4 else x.reshape(-1, 1, *x.shape[-2:])
    return F.interpolate(images, size, mode=mode, **options).reshape(*x.shape[:-2], *size)


def _upscale(x: Any, factor: int, mode: str = "nearest") -> Any:
    return _interpolate(x, (x.shape[-2] * factor, x.shape[-1] * factor), mode)


def _pool(dims: int) -> Callable[..., Any]:
    kinds = {
        (1, "max"): F.max_pool1d,
        (2, "max"): F.max_pool2d,
        (1, "avg"): F.avg_pool1d,
        (2, "avg"): F.avg_pool2d,
    }

    def fn(x: Any, kernel: Any, stride: Any, padding: int, kind: str) -> Any:
        # ggml leaves the padding of one axis out of the mean, and counts that of two as zeros.
        options = {"count_include_pad": False} if (dims, kind) == (1, "avg") else {}
        return kinds[dims, kind](x, kernel, stride, padding, **options)

    return fn


def _conv_3d(x: Any, w: Any, channels: int, stride: Any, padding: Any) -> Any:
    images, kernels = (t.reshape(-1, channels, *t.shape[1:]) for t in (x, w))
    y = F.conv3d(images, kernels, None, stride, padding)
    return y.reshape(-1, *y.shape[2:])


def _soft_max(case: Case) -> Callable[..., Any] | None:
    if case.variant == "plain":
        return lambda x: x.softmax(-1)
    if case.variant == "mask" and case.shapes[0] == (4, 3, 5, 5):
        return lambda x: (x * 0.3 + torch.tensor(r.MASK)).softmax(-1)
    if case.variant == "sinks":

        def fn(x: Any, sinks: Any) -> Any:
            column = sinks[:, None, None].expand(*x.shape[:-1], 1)
            return torch.cat([x, column], -1).softmax(-1)[..., :-1]

        return fn
    return None


def _flash(case: Case) -> Callable[..., Any] | None:
    masks = {
        ("mask", 5): torch.tensor(a.DISTANCES),
        ("mask", 66): torch.tensor(a.causal(66, 67)),
        ("plain", 5): None,
        ("plain", 6): None,
    }
    key = (case.variant, case.shapes[0][-2])
    if key not in masks:
        return None

    def fn(q: Any, k: Any, v: Any) -> Any:
        k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
        return F.scaled_dot_product_attention(q, k, v, masks[key]).transpose(1, 2)

    return fn


def _get_rows(case: Case) -> Callable[..., Any]:
    if case.variant:
        return _take
    return lambda t: F.embedding(torch.tensor(r.IDS), t)


def _take(t: Any) -> Any:
    ids = torch.tensor(BATCHED if t.ndim == 4 else BATCHED[0], dtype=torch.int64)
    return torch.take_along_dim(t, ids[..., None], -2)


NAMES: dict[str, Callable[..., Any]] = {
    **{
        name: getattr(torch, name)
        for name in "neg abs sqrt exp log sin cos relu tanh sigmoid expm1 floor ceil trunc".split()
    },
    "sgn": torch.sgn,
    "sqr": torch.square,
    "gelu": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_erf": F.gelu,
    "gelu_quick": lambda x: x * torch.sigmoid(1.702 * x),
    "silu": F.silu,
    "softplus": F.softplus,
    "elu": F.elu,
    "leaky_relu": F.leaky_relu,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "add1": torch.add,
    "scale": lambda x, s, b: x * s + b,
    "clamp": torch.clamp,
    "pow": torch.pow,
    "swiglu": _gated(F.silu),
    "reglu": _gated(torch.relu),
    "geglu": _gated(lambda x: F.gelu(x, approximate="tanh")),
    "geglu_erf": _gated(F.gelu),
    "geglu_quick": _gated(lambda x: x * torch.sigmoid(1.702 * x)),
    "sum": _sum,
    "sum_rows": lambda x: x.sum(-1, keepdim=True),
    "sum_sqr": lambda x: (x * x).sum(),
    "mean": lambda x, axis=None: x.mean() if axis is None else x.mean(axis),
    "mean_rows": lambda x: x.mean(-1, keepdim=True),
    "mul_mat": _mul_mat,
    "out_prod": _out_prod,
    "matmul": torch.matmul,
    "linear": F.linear,
    "solve_tri": lambda x, y: torch.linalg.solve_triangular(x.tril(), y, upper=False),
    "norm": lambda x, eps: F.layer_norm(x, x.shape[-1:], eps=eps),
    "rms_norm": lambda x, eps: F.rms_norm(x, x.shape[-1:], eps=eps),
    "l2_norm": lambda x, eps: F.normalize(x, dim=-1, eps=eps),
    "group_norm": lambda x, n, eps: F.group_norm(x.reshape(-1, *x.shape[-3:]), n, eps=eps).reshape(
        x.shape
    ),
    "pad": _pad,
    "pad_reflect": _reflect,
    "roll": lambda x, shifts: x.roll(shifts, tuple(range(x.ndim - len(shifts), x.ndim))),
    "upscale": _upscale,
    "interpolate": _interpolate,
    "diag": torch.diag_embed,
    "cumsum": lambda x: x.cumsum(-1),
    "conv_1d": lambda x, w, s, p: F.conv1d(x, w, None, s, p),
    "conv_2d": lambda x, w, *rest: F.conv2d(x, w, None, *rest),
    "conv_2d_direct": lambda x, w, *rest: F.conv2d(x, w, None, *rest),
    "conv_2d_dw": lambda x, w, s, p: F.conv2d(x, w, None, s, p, groups=x.shape[1]),
    "conv_3d": _conv_3d,
    "conv_transpose_1d": lambda x, w, s: F.conv_transpose1d(x[None], w, None, s)[0],
    "conv_transpose_2d": lambda x, w, s: F.conv_transpose2d(x, w, None, s),
    "pool_1d": _pool(1),
    "pool_2d": _pool(2),
    "cross_entropy_rows": lambda x: F.cross_entropy(
        x, torch.tensor(r.TARGETS, dtype=torch.int64), reduction="none"
    ),
    "cross_entropy": lambda x: F.cross_entropy(x, torch.tensor(r.TARGETS, dtype=torch.int64)),
    "cross_entropy_loss": lambda x: F.cross_entropy(x, torch.tensor(a.LABELS)),
    "broadcast_to": torch.broadcast_to,
    "cont": torch.clone,
    "reshape": torch.reshape,
    "permute": torch.permute,
    "transpose": lambda x: x.mT,
    "getitem": lambda x, i: x[i],
    "diag_mask_zero": torch.tril,
}
PER_CASE: dict[str, Callable[[Case], Callable[..., Any] | None]] = {
    "swiglu_oai": _oai,
    "soft_max": _soft_max,
    "flash_attn_ext": _flash,
    "get_rows": _get_rows,
}


def oracle(case: Case) -> Callable[..., Any] | None:
    """PyTorch's function for a row, if it has one."""
    if case.name == "diag" and len(case.shapes[0]) > 1:
        return lambda x: torch.diag_embed(x[..., 0, :])
    if case.name == "getitem" and case.variant:
        return None  # PyTorch takes no negative step; tests/tensors/calls.py has the rest
    return PER_CASE[case.name](case) if case.name in PER_CASE else NAMES.get(case.name)


ROWS = [case for case in CASES if case.grad is None and oracle(case) is not None]


def error(got: np.ndarray, want: Any) -> float:
    want = want.detach().numpy(force=True)
    assert got.shape == want.shape
    return float(np.linalg.norm(got - want) / max(float(np.linalg.norm(want)), 1e-3))


@pytest.mark.parametrize("case", ROWS, ids=lambda c: c.id)
def test_forward_and_gradient_against_pytorch(case: Case) -> None:
    fn = oracle(case)
    assert fn is not None
    arrays = case.operands(1)
    leaves = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in arrays]
    first = leaves[0].permute(case.view) if case.view else leaves[0]
    want = fn(first, *leaves[1:], *case.extra)
    params = [pg.tensor(x, "f32", requires_grad=True) for x in arrays]
    got = case.run(*params)
    assert error(got.numpy(), want) <= FORWARD
    weight = np.random.default_rng(2).uniform(0.5, 1.5, got.shape).astype(np.float32)
    (got * pg.tensor(weight)).sum().backward()
    (want * torch.tensor(weight, dtype=torch.float64)).sum().backward()
    for param, leaf in zip(params, leaves, strict=True):
        wanted = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        grad = np.zeros(param.shape) if param.grad is None else param.grad.numpy()
        assert error(grad, wanted) <= BACKWARD


def test_most_rows_have_a_second_oracle() -> None:
    assert len({(case.name, case.variant) for case in ROWS}) >= 85
