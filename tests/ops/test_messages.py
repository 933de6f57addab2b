# SPDX-License-Identifier: MIT
"""Whatever is passed for an argument, a refusal names the op that was called and the argument."""

from __future__ import annotations

import inspect
import re
from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml import ops


def t(*shape: int, dtype: str = "f32") -> pg.Tensor:
    return pg.ones(shape, dtype=dtype)


def i32(*numbers: int) -> pg.Tensor:
    return pg.tensor(np.int32(numbers))


ONE = (
    "abs ceil cont cos elu exp expm1 floor gelu gelu_erf gelu_quick hardsigmoid"
    " hardswish log mean_rows neg relu round sgn sigmoid silu sin softplus sqr sqrt step sum_rows"
    " sum_sqr tanh trunc reciprocal rsqrt log2 log10 exp2 tan frac relu6 logsigmoid"
).split()
IMAGES, IDS = t(2, 4, 6, 6), pg.tensor(np.int32([[0, 1], [2, 0]]))
PLACES = {"stride": 1, "padding": 0, "dilation": 1}
# A call of each op that is accepted, with all of its arguments.
CALLS: dict[str, dict[str, Any]] = {
    **{name: {"x": t(4, 6)} for name in ONE},
    **{name: {"a": t(4, 6), "b": t(4, 6)} for name in ("add", "div", "mul", "sub")},
    **{
        name: {"gate": t(4, 6), "up": t(4, 6), "swapped": False}
        for name in ("geglu", "geglu_erf", "geglu_quick", "reglu", "swiglu")
    },
    **{name: {"x": t(4, 6), "eps": 1e-5} for name in ("l2_norm", "norm", "rms_norm")},
    **{
        name: {"x": t(4, 6), "dim": 0, "keepdim": False}
        for name in ("all amax amin any argmax argmin logsumexp max mean min prod sum").split()
    },
    **{name: {"a": t(4, 6), "b": t(4, 6)} for name in ("eq ne lt le gt ge").split()},
    **{name: {"a": t(4, 6), "b": t(4, 6)} for name in ("logical_and logical_or").split()},
    **{name: {"a": t(4, 6), "b": t(4, 6)} for name in ("maximum", "minimum")},
    **{name: {"x": t(4, 6), "diagonal": 0} for name in ("tril", "triu")},
    **{name: {"x": t(4, 6), "dim": 0} for name in ("cumsum", "log_softmax", "softmax", "unbind")},
    **{
        name: {"x": t(4, 6), "dim": 0, "keepdim": False, "correction": 1.0, "unbiased": None}
        for name in ("std", "var")
    },
    **{name: {"tensors": [t(4, 6), t(4, 6)], "dim": 0} for name in ("cat", "stack")},
    "bmm": {"a": t(2, 3, 4), "b": t(2, 4, 5)},
    "chunk": {"x": t(4, 6), "chunks": 2, "dim": 0},
    "dot": {"a": t(4), "b": t(4)},
    "flatten": {"x": t(4, 6), "start_dim": 0, "end_dim": 1},
    "flip": {"x": t(4, 6), "dims": (0,)},
    "gather": {"x": t(4, 6), "dim": 0, "index": np.zeros((2, 6), np.int32)},
    "index_select": {"x": t(4, 6), "dim": 0, "index": [0, 2]},
    "floor_divide": {"a": pg.tensor([7, 3]), "b": pg.tensor([2, 2])},
    "remainder": {"a": pg.tensor([7, 3]), "b": pg.tensor([2, 2])},
    "lerp": {"a": t(4, 6), "b": t(4, 6), "weight": 0.5},
    "logical_not": {"mask": t(4, 6)},
    **{name: {"x": t(4, 6)} for name in ("isnan", "isinf", "isfinite")},
    "masked_fill": {"x": t(4, 6), "mask": t(4, 6), "value": 0.0},
    "mm": {"a": t(4, 6), "b": t(6, 4)},
    "mv": {"a": t(4, 6), "b": t(6)},
    "narrow": {"x": t(4, 6), "dim": 0, "start": 1, "length": 2},
    "outer": {"a": t(4), "b": t(6)},
    "split": {"x": t(4, 6), "sizes": 2, "dim": 0},
    "squeeze": {"x": t(4, 1), "dim": 1},
    "tile": {"x": t(4, 6), "repeats": (1, 2)},
    "topk": {"x": t(4, 6), "k": 2, "dim": 1, "largest": True},
    "unflatten": {"x": t(4, 6), "dim": 1, "sizes": (2, 3)},
    "unsqueeze": {"x": t(4, 6), "dim": 0},
    "vector_norm": {"x": t(4, 6), "ord": 2.0, "dim": 0, "keepdim": False},
    "where": {"mask": t(4, 6), "a": t(4, 6), "b": t(4, 6)},
    **{name: {"x": t(4, 6), "part": t(2, 2), "start": (0, 1)} for name in ("acc", "set")},
    **{name: {"x": t(4, 4), "n_past": 0} for name in ("diag_mask_inf", "diag_mask_zero")},
    **{
        name: {"x": IMAGES, "weight": t(3, 4, 2, 2), **PLACES}
        for name in ("conv_2d", "conv_2d_direct")
    },
    "add1": {"x": t(4), "b": t(1)},
    "add_id": {"x": t(2, 2, 4), "bias": t(3, 4), "ids": IDS},
    "broadcast_to": {"x": t(4, 6), "shape": (2, 4, 6)},
    "cast": {"x": t(4, 6), "dtype": "f16"},
    "clamp": {"x": t(4, 6), "lo": 0.0, "hi": 1.0},
    "concat": {"tensors": [t(4, 6), t(4, 6)], "axis": 0},
    "conv_1d": {"x": t(2, 4, 9), "weight": t(3, 4, 2), **PLACES},
    "conv_2d_dw": {"x": IMAGES, "weight": t(4, 1, 2, 2), **PLACES},
    "conv_3d": {"x": t(4, 3, 3, 3), "weight": t(6, 2, 2, 2), "channels": 2, **PLACES},
    "conv_transpose_1d": {"x": t(4, 9), "weight": t(4, 3, 2), "stride": 1},
    "conv_transpose_2d": {"x": IMAGES, "weight": t(4, 3, 2, 2), "stride": 1},
    "cpy": {"src": t(4, 6), "dst": t(4, 6)},
    "cross_entropy": {
        "logits": t(3, 5), "targets": i32(0, 1, 2), "ignore_index": -100, "reduction": "mean",
    },
    "cross_entropy_loss": {"logits": t(3, 5), "labels": t(3, 5)},
    "cross_entropy_rows": {"logits": t(3, 5), "targets": i32(0, 1, 2), "ignore_index": -100},
    "diag": {"x": t(4)},
    "dropout": {"x": t(4, 6), "p": 0.5, "seed": 1, "index": 0},
    "fill": {"x": t(4), "value": 1.0},
    "flash_attn_ext": {
        "q": t(1, 2, 3, 8), "k": t(1, 2, 5, 8), "v": t(1, 2, 5, 8), "mask": t(3, 5), "scale": 1.0,
        "max_bias": 0.0, "softcap": 0.0, "sinks": t(2),
    },
    "get_rows": {"table": t(4, 6), "ids": i32(0, 1)},
    "getitem": {"x": t(4, 6), "index": 0},
    "group_norm": {"x": IMAGES, "n_groups": 2, "eps": 1e-5},
    "im2col": {"x": IMAGES, "kernel": 2, **PLACES},
    "im2col_3d": {"x": t(4, 3, 3, 3), "channels": 2, "kernel": 2, **PLACES},
    "interpolate": {
        "x": t(4, 6), "size": (3, 3), "mode": "bilinear", "align_corners": False,
        "antialias": False,
    },
    "leaky_relu": {"x": t(4, 6), "slope": 0.1},
    "linear": {"x": t(4, 6), "weight": t(5, 6), "bias": t(5)},
    "matmul": {"a": t(4, 6), "b": t(6, 5)},
    "mul_mat": {"w": t(4, 6), "x": t(5, 6)},
    "mul_mat_id": {"experts": t(3, 5, 4), "x": t(2, 1, 4), "ids": IDS},
    "opt_step_adamw": {"param": t(4), "grad": t(4), "m": t(4), "v": t(4), "hyper": t(7)},
    "opt_step_sgd": {"param": t(4), "grad": t(4), "hyper": t(2)},
    "out_prod": {"a": t(6, 4), "b": t(6, 5)},
    "pad": {"x": t(4, 6), "widths": [(1, 1)], "mode": "zeros"},
    "pad_reflect": {"x": t(4, 6), "before": 1, "after": 1},
    "permute": {"x": t(4, 6), "axes": (1, 0)},
    "pool_1d": {"x": t(4, 9), "kernel": 2, "stride": 1, "padding": 0, "kind": "max"},
    "pool_2d": {"x": IMAGES, "kernel": 2, "stride": 1, "padding": 0, "kind": "max"},
    "pow": {"x": t(4, 6), "exponent": 2.0},
    "repeat": {"x": t(4, 6), "shape": (8, 6)},
    "repeat_back": {"x": t(4, 6), "shape": (2, 3)},
    "reshape": {"x": t(4, 6), "shape": (6, 4)},
    "roll": {"x": t(4, 6), "shifts": [1]},
    "rope": {
        "x": t(3, 2, 8), "positions": i32(0, 1, 2), "n_dims": 8, "mode": "neox", "base": 1e4,
        "scale": 1.0, "freq_factors": t(4),
    },
    "scale": {"x": t(4, 6), "s": 1.0, "b": 0.0},
    "set_rows": {"dst": t(4, 6), "src": t(2, 6), "rows": i32(0, 1)},
    "soft_max": {"x": t(2, 4, 6), "mask": t(4, 6), "scale": 1.0, "max_bias": 1.0, "sinks": t(2)},
    "solve_tri": {"a": t(4, 4), "b": t(4, 2)},
    "swiglu_oai": {"gate": t(4, 6), "up": t(4, 6), "alpha": 1.7, "limit": 7.0},
    "transpose": {"x": t(4, 6), "dim0": 0, "dim1": 1},
    "top_k": {"x": t(2, 6), "k": 1},
    "tri": {"x": t(4, 4), "part": "lower"},
    "upscale": {"x": t(4, 6), "factor": 2, "mode": "nearest"},
    "win_part": {"x": t(4, 4, 2), "w": 2},
    "win_unpart": {"x": t(4, 2, 2, 1), "height": 4, "width": 4},
    "xielu": {"x": t(4, 6), "alpha_n": 0.8, "alpha_p": 0.8, "beta": 0.5, "eps": -1e-6},
}  # fmt: skip

WRONG: list[Any] = [
    *(None, "a", "", b"x", True, object(), lambda: 0, pg.Tensor, range(3), np),
    *([], (), {}, {1: 2}, {"a": 1}, {1, 2}, ["a"], [None], [1.5], [True], [[1, 2], [3]]),
    *((1, 2, 3, 4, 5), [(1, 2, 3)], [(2**31, 0)], [(0, 2**62)], (slice(0, 0),), [2**70]),
    *(t(3), t(1), t(), t(2, 2, 2, 2), t(4, 6, dtype="f16"), i32(1), i32(0, 5)),
    *(-1, 0, 2**31, 2**40, 2**70, -(2**70), 10**400, 10**5000, 1.5, 0.0, -1.5, np.nan, np.inf),
    *(1j, np.complex64(1), np.float32(2.5), np.int64(-3), np.bool_(True), np.array(2)),
    *(np.array([1, 2]), np.array(["a"]), np.array([]), np.array([1j]), np.ma.masked_equal([1], 1)),
    *(slice(None), ..., slice("a"), slice(None, None, -1), slice(None, None, 0)),
]


def test_every_op_has_a_call() -> None:
    assert CALLS.keys() | {"einsum"} == set(ops.__all__)
    for name, given in CALLS.items():
        assert list(given) == list(inspect.signature(getattr(ops, name)).parameters)


@pytest.mark.filterwarnings("ignore:Data type alias")  # NumPy's, of the dtype "a"
@pytest.mark.parametrize("name", CALLS)
def test_refusals_name_op_and_argument(name: str) -> None:
    fn, given = getattr(ops, name), CALLS[name]
    fn(**given)
    for argument in given:
        refused = 0
        for wrong in WRONG:
            try:
                fn(**{**given, argument: wrong})
            except (ValueError, TypeError, IndexError) as error:
                refused += 1
                message = str(error)
                assert message.startswith(f"{name}: "), (argument, message)
                assert re.search(rf"\b{argument}\b", message[len(name) :]), message
                assert len(message) < 400, message
        assert refused > 30, f"{argument}: nearly all is taken"
