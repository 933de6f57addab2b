# SPDX-License-Identifier: MIT
"""Random calls of `pyggml.nn` and `pyggml.optim`, with NumPy beside them where it is short."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import adapter_calls
import numpy as np
from draw import Draw, close, rough

import pyggml as pg
from pyggml import nn, optim
from pyggml.nn import functional, in_place, init, losses
from pyggml.nn.activations import piecewise as piece_layers
from pyggml.nn.functional import (
    activations,
    convolution,
    operations,
    piecewise,
    pooling,
    sequences,
)
from pyggml.nn.images import padding
from pyggml.nn.images import sequences as sequence_layers
from pyggml.optim import schedules

Call = tuple[str, Callable[[], Any], Callable[..., Any]]
Check = Callable[[np.ndarray], bool | None]


def no_check(got: np.ndarray) -> bool | None:
    return None


def _weight(t: pg.Tensor | None) -> Any:
    return None if t is None else t.numpy().astype(np.float64)


def np_linear(x: np.ndarray, m: Any) -> np.ndarray:
    y = x @ _weight(m.weight).T
    return y if m.bias is None else y + _weight(m.bias)


def np_layer_norm(x: np.ndarray, weight: Any, bias: Any, eps: float) -> np.ndarray:
    y = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def np_rms_norm(x: np.ndarray, weight: Any, eps: float) -> np.ndarray:
    y = x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)
    return y if weight is None else y * weight


def np_gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def np_gelu_erf(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.vectorize(math.erf, otypes=[np.float64])(x / math.sqrt(2)))


def np_silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def np_attention(q: Any, k: Any, v: Any, mask: Any, scale: Any) -> np.ndarray:
    b, t, h, width = q.shape
    k, v = (np.repeat(x, h // x.shape[2], 2) for x in (k, v))
    scores = np.einsum("bthd,bshd->bhts", q, k) * (width**-0.5 if scale is None else scale)
    scores = scores if mask is None else scores + mask
    p = np.exp(scores - scores.max(-1, keepdims=True))
    y = np.einsum("bhts,bshd->bthd", p / p.sum(-1, keepdims=True), v)
    return y.reshape(b, t, h * width)


def np_cross_entropy(x: Any, at: Any, ignore: int, reduction: str) -> np.ndarray | None:
    flat, at = x.reshape(-1, x.shape[-1]), np.asarray(at).ravel()
    counted = at != ignore
    if not ((at[counted] >= 0) & (at[counted] < x.shape[-1])).all():
        return None
    top = flat.max(-1, keepdims=True)
    logs = flat - top - np.log(np.exp(flat - top).sum(-1, keepdims=True))
    rows = np.where(counted, -logs[np.arange(len(at)), np.where(counted, at, 0)], 0)
    if reduction == "none":
        return rows.reshape(x.shape[:-1])
    return rows.sum() / (max(counted.sum(), 1) if reduction == "mean" else 1)


def _size(d: Draw, *sizes: int) -> Any:
    return d.odd() if d.chance(0.06) else d.pick(*sizes)


# Those of images; BatchNorm2d and others have cases with PyTorch beside them in tests/nn.
IMAGES = (
    "AvgPool2d", "BatchNorm1d", "BatchNorm2d", "Conv2d", "ConvTranspose1d", "ConvTranspose2d",
    "Flatten",    "GlobalAvgPool2d", "GroupNorm", "MaxPool2d", "Upsample",
)  # fmt: skip


def image_module(d: Draw, name: str, dim: Any, wide: Any, flag: bool) -> Any:
    """A layer of images, with channels that may fit."""
    channels = _size(d, 1, 5)
    if name == "Conv2d":
        groups = d.pick(1, 1, 2, channels, d.odd() if d.chance(0.1) else 1)
        kernel, stride = _size(d, 1, 3), _size(d, 1, 2)
        return nn.Conv2d(channels, wide, kernel, stride, d.pick(0, 1), groups=groups, bias=flag)
    if name == "ConvTranspose2d":
        sizes = (_size(d, 1, 3), _size(d, 1, 2), d.pick(0, 1), d.pick(0, 0, 1))
        return nn.ConvTranspose2d(channels, wide, *sizes, bias=flag)
    if name == "ConvTranspose1d":
        sizes = (_size(d, 1, 3), _size(d, 1, 2), d.pick(0, 1), d.pick(0, 0, 1))
        return nn.ConvTranspose1d(channels, wide, *sizes, bias=flag)
    if name == "Upsample":
        size, factor = d.pick((None, _size(d, 1, 2)), (_size(d, 1, 3), None), (None, d.odd()))
        return nn.Upsample(size, factor, d.pick("nearest", "bilinear", d.odd()), flag)
    if name in ("AvgPool2d", "MaxPool2d"):
        window = (_size(d, 1, 2), d.pick(None, 1, 2), d.pick(0, 0, 1))
        return getattr(nn, name)(*window, ceil_mode=flag)
    if name in ("BatchNorm1d", "BatchNorm2d"):
        momentum = d.pick(0.1, None, d.odd() if d.chance(0.1) else 1.0)
        return getattr(nn, name)(channels, momentum=momentum, affine=flag).train(d.chance(0.5))
    if name == "GroupNorm":
        return nn.GroupNorm(_size(d, 1, 5), channels, affine=flag)
    return getattr(nn, name)()


def image_reference(name: str, x: np.ndarray) -> Callable[..., Any] | None:
    """What NumPy says of the layers that take one line."""
    if name == "Flatten":
        return lambda: x.reshape(len(x), -1)
    if name == "GlobalAvgPool2d" and x.ndim == 4:
        return lambda: x.mean((2, 3))
    return None


def module_call(d: Draw) -> Call:
    """A module made and called."""
    dim, wide = _size(d, 1, 2, 8, 32), _size(d, 1, 3, 16)
    flag = d.chance(0.5)
    eps = _size(d, *[1e-5] * 3, 1e-2) if not d.chance(0.1) else d.odd()
    lead = d.near((d.pick(1, 2, 3), d.pick(1, 5)), 0.2)
    n = dim if isinstance(dim, int) and 0 < dim < 100 else 4
    shape = d.near((*lead, n), 0.1)
    name = d.pick(*MODULES)

    def make() -> tuple[Any, tuple[Any, ...], Callable[..., Any] | None]:
        x, values = d.tensor(shape, low=-2, high=2)
        if name == "Linear":
            m: Any = nn.Linear(dim, wide, flag)
            return m, (x,), lambda: np_linear(values, m)
        if name == "LayerNorm":
            m = nn.LayerNorm(dim, eps, flag)
            return m, (x,), lambda: np_layer_norm(values, _weight(m.weight), _weight(m.bias), eps)
        if name == "RMSNorm":
            m = nn.RMSNorm(dim, eps)
            return m, (x,), lambda: np_rms_norm(values, _weight(m.weight), eps)
        if name == "Embedding":
            m = nn.Embedding(wide, dim)
            ids, at = d.ids(lead, wide if isinstance(wide, int) else 3)
            return m, (ids,), lambda: _weight(m.weight)[at]
        if name == "GELUMLP":
            m = nn.GELUMLP(dim, wide, flag)
            return m, (x,), lambda: np_linear(np_gelu(np_linear(values, m.c_fc)), m.c_proj)
        if name == "MixtureOfExperts":
            experts, used = _size(d, 1, 4), _size(d, 1, 2)
            return nn.MixtureOfExperts(dim, wide, experts, used, flag, d.pick(0, 5)), (x,), None
        if name in ("SwiGLUMLP", "GEGLUMLP"):
            m = getattr(nn, name)(dim, wide, flag)
            act = np_silu if name == "SwiGLUMLP" else np_gelu
            gate = lambda: act(np_linear(values, m.gate_proj))  # noqa: E731
            up = lambda: np_linear(values, m.up_proj)  # noqa: E731
            return m, (x,), lambda: np_linear(gate() * up(), m.down_proj)
        if name == "Sequential":
            first = nn.Linear(dim, wide)
            m = nn.Sequential(first, d.pick(nn.ReLU(), nn.ReLU(), d.odd()))
            return m, (x,), lambda: np.maximum(np_linear(values, first), 0)
        if name == "CausalSelfAttention":
            heads = _size(d, 1, 2, 4)
            kinds = ("linear", "dynamic", "llama3", "yarn", "table", d.odd())
            stretched = lambda: nn.RopeScaling(d.pick(*kinds), _size(d, 1, 4), _size(d, 2, 9))  # noqa: E731
            rope = d.pick(None, nn.Rope(), nn.Rope(d.pick(10.0, d.odd())))
            rope = nn.Rope(scaling=stretched()) if d.chance(0.3) else rope
            kind = d.pick("plain", "plain", "flash")
            groups = d.pick(None, 1, 2, d.odd() if d.chance(0.1) else 1)
            m = nn.CausalSelfAttention(
                dim,
                heads,
                groups,
                bias=d.pick(flag, "qkv", d.odd()) if d.chance(0.1) else flag,
                fused=d.chance(0.5),
                rope=rope,
                head_dim=d.pick(None, None, _size(d, 2, 4)),
                qk_norm=d.pick(None, None, 1e-5),
                window=d.pick(None, None, _size(d, 1, 3)),
                attention=kind,
            )
            return m, (x,), None
        if name == "Conv1d":
            places = d.pick(0, 1), _size(d, 1, 2), flag
            return nn.Conv1d(lead[-1], wide, _size(d, 1, 2), _size(d, 1, 2), *places), (x,), None
        if name == "MultiheadAttention":
            m = nn.MultiheadAttention(dim, _size(d, 1, 2, 4), d.pick(0.0, d.odd()), flag)
            return lambda q: m(q, x, x, is_causal=flag)[d.pick(0, 0, 1)], (x,), None
        if name in ("TransformerEncoderLayer", "TransformerDecoderLayer"):
            m = getattr(nn, name)(
                dim, _size(d, 1, 2), wide, 0.0, d.pick("relu", "gelu", d.odd()), eps, flag
            )
            return m, (x,) if "Encoder" in name else (x, x), None
        if name in IMAGES:
            images, pixels = d.tensor(d.near((*lead, n, n), 0.1), low=-2, high=2)
            return image_module(d, name, dim, wide, flag), (images,), image_reference(name, pixels)
        if name == "Dropout":
            m = nn.Dropout(d.pick(0.1, 0.0, 0.9, d.odd())).train(flag)
            return m, (x,), None if flag else lambda: values
        table = {"GELU": np_gelu_erf, "SiLU": np_silu, "ReLU": lambda v: np.maximum(v, 0)}
        table["Tanh"] = np.tanh
        m = getattr(nn, name)()
        return m, (x,), (lambda: table[name](values)) if name in table else None

    kept: dict[str, Any] = {}

    def run() -> Any:
        module, args, kept["ref"] = make()
        kept["args"] = args
        if d.chance(0.05):
            args = (d.odd(), *args[1:])
            kept["ref"] = None
        return module(*args)

    def check(got: np.ndarray) -> bool | None:
        if kept["ref"] is None or any(rough(a.numpy()) for a in kept["args"]):
            return None
        with np.errstate(all="ignore"):
            want = np.asarray(kept["ref"](), np.float64)
        exact = all(a.dtype.name in ("f32", "i32") for a in kept["args"])
        return got.shape == want.shape and close(got, want, exact)

    return f"nn.{name} dim={dim!r} wide={wide!r} {flag} eps={eps!r} {shape}", run, check


MODULES = (
    *("Linear", "LayerNorm", "RMSNorm", "Embedding", "GELUMLP", "SwiGLUMLP", "Sequential"),
    *("GEGLUMLP", "MixtureOfExperts", "Conv1d", "MultiheadAttention", "TransformerEncoderLayer"),
    "TransformerDecoderLayer",
    *("CausalSelfAttention", "Dropout", "GELU", "SiLU", "ReLU", "Tanh"),
    *IMAGES,
)


def function_call(d: Draw) -> Call:
    """The functions of modules, masks, caches and losses."""
    name = d.pick(*FUNCTIONS)
    c = d.pick(1, 3, 8, 32)
    exact = True
    x, values = d.tensor(d.near((d.pick(1, 4), d.pick(1, 5), c), 0.15))
    weight, w = d.tensor(d.near((c,), 0.1), "f32")
    bias, shift = d.tensor(d.near((c,), 0.1), "f32")
    eps = d.pick(1e-5, 1e-5, 1e-2, d.odd() if d.chance(0.2) else 1e-3)
    if d.chance(0.05):
        weight = d.odd()
    if d.chance(0.05):
        bias = d.odd()
    extent = d.odd() if d.chance(0.05) else d.pick(c, (c,), [c])
    calls: dict[str, tuple[Callable[[], Any], Callable[[], Any] | None]]
    calls = {
        "layer_norm": (
            lambda: functional.layer_norm(x, extent, weight, bias, eps),
            lambda: np_layer_norm(values, w, shift, eps),
        ),
        "rms_norm": (
            lambda: functional.rms_norm(x, extent, weight, eps),
            lambda: np_rms_norm(values, w, eps),
        ),
    }
    if name == "linear":
        matrix, m = d.tensor(d.near((d.pick(1, 5), c), 0.1))
        exact = matrix.dtype.name == "f32"
        calls[name] = (lambda: functional.linear(x, matrix), lambda: values @ m.T)
    elif name in ("attention", "flash_attention"):
        b, t, s, g, width = (d.pick(1, 2, 3, 8) for _ in range(5))
        h = g * d.pick(1, 2)
        (q, nq), (k, nk), (v, nv) = (
            d.tensor(d.near(sh, 0.05), "f32") for sh in ((b, t, h, width), *[(b, s, g, width)] * 2)
        )
        mask, nm = d.tensor(d.near((t, s), 0.05), "f32") if d.chance(0.5) else (None, None)
        if mask is not None:
            mask = mask.detach()
        scale = d.pick(None, 0.5, d.odd() if d.chance(0.2) else 1.0)
        x, values = q, nq
        if d.chance(0.05):
            k = d.odd()
        if d.chance(0.05):
            mask, nm = d.odd(), np.array(np.nan)  # not compared
        calls[name] = (
            lambda: getattr(functional, name)(q, k, v, mask, scale),
            # A scale beyond f32 is infinite to ggml.
            lambda: (
                None
                if rough(nk, nv, nm, np.float64(0 if scale is None else scale))
                else np_attention(nq, nk, nv, nm, scale)
            ),
        )
    elif name == "cross_entropy":
        targets, at = d.ids(d.near(x.shape[:-1], 0.05), x.shape[-1] if x.ndim else 1)
        ignore = d.pick(-100, -100, 0, 2, d.odd() if d.chance(0.2) else -1)
        reduction = d.pick("mean", "sum", "none", d.odd() if d.chance(0.2) else "mean")
        calls[name] = (
            lambda: functional.cross_entropy(x, targets, None, ignore, reduction),
            lambda: np_cross_entropy(values, at, ignore, reduction),
        )
    elif name == "batch_norm":
        stored = [d.tensor(d.near((c,), 0.1), "f32")[0].detach() for _ in range(2)]
        mean, var = (d.odd() if d.chance(0.05) else d.pick(each, None) for each in stored)
        momentum, train = d.pick(0.1, d.odd() if d.chance(0.2) else 1.0), d.chance(0.5)
        rows, _ = d.tensor(d.near(d.pick((4, c), (2, c, 3, 3)), 0.1))
        calls[name] = (
            lambda: functional.batch_norm(rows, mean, var, weight, bias, train, momentum, eps),
            None,
        )
    elif name == "conv_transpose2d":
        images, _ = d.tensor(d.near((2, 3, 4, 4), 0.1), "f32")
        kernels, _ = d.tensor(d.near((3, c, 2, 3), 0.1), "f32")
        sizes = (_size(d, 1, 2), _size(d, 0, 1), _size(d, 0, 1))
        calls[name] = (
            lambda: functional.conv_transpose2d(images, kernels, d.pick(None, bias), *sizes),
            None,
        )
    elif name == "conv_transpose1d":
        rows, _ = d.tensor(d.near((2, 3, 5), 0.1), "f32")
        kernels, _ = d.tensor(d.near((3, c, 2), 0.1), "f32")
        sizes = (_size(d, 1, 2), _size(d, 0, 1), _size(d, 0, 1))
        calls[name] = (
            lambda: functional.conv_transpose1d(rows, kernels, d.pick(None, bias), *sizes),
            None,
        )
    elif name == "causal_mask":
        n = _size(d, 1, 2, 33)
        calls[name] = (
            lambda: nn.causal_mask(n),
            lambda: np.triu(np.full((n, n), -np.inf), 1),
        )
    elif name == "position_ids":
        n = _size(d, 1, 2, 33)
        calls[name] = (lambda: nn.position_ids(n), lambda: np.arange(n))
    elif name == "segment_mask":
        given_ids, at = d.ids(d.near((2, 5), 0.2), 3)
        calls[name] = (
            lambda: nn.segment_mask(given_ids),
            lambda: np.where(
                (at[:, None, :, None] == at[:, None, None]) & np.tri(at.shape[-1], dtype=bool),
                0.0,
                -np.inf,
            ),
        )
    elif name == "padding_mask":
        given_ids, at = d.ids(d.near((2, 5), 0.2), 2)
        rows = _size(d, 1, 3)
        calls[name] = (
            lambda: nn.padding_mask(given_ids, rows),
            lambda: np.broadcast_to(
                np.where(at > 0, 0.0, -1e30)[:, None, None], (at.shape[0], 1, rows, at.shape[1])
            ),
        )
    elif name == "relative_buckets":
        at = d.rng.integers(-300, 300, d.pick((), (1,), (7,), (2, 2)))
        buckets, far = _size(d, 2, 4, 32), _size(d, 4, 128)
        calls[name] = (lambda: pg.tensor(nn.relative_buckets(at, at, buckets, far)), None)
    elif name == "RelativePositionBias":
        heads, buckets = _size(d, 1, 2, 8), _size(d, 2, 4, 32)
        at = d.pick(_size(d, 1, 5), d.ids(d.near((2, 3), 0.2), 4)[0])
        calls[name] = (lambda: nn.RelativePositionBias(buckets, heads)(at), None)
    elif name == "Parameter":
        given = d.odd() if d.chance(0.4) else d.array(d.near((2, 32)))
        calls[name] = (lambda: nn.Parameter(given), lambda: np.asarray(given))
    elif name == "KVCache":
        sizes = [_size(d, 1, 2, 5, 8) for _ in range(4)]
        heads, width = sizes[2:]

        def update() -> Any:
            layer = nn.KVCache(*sizes).layers[0]
            length = d.pick(1, 2, 3)
            new = d.tensor(d.near((1, length, heads, width), 0.1), "f32")[0].detach()
            at = d.ids((length,), sizes[1])[0]
            return layer.update(new, new, at, d.pick(1, 2, sizes[1]))[0]

        calls[name] = (update, None)
    run, ref = calls[name]
    given_values = values

    def check(got: np.ndarray) -> bool | None:
        odd = not isinstance(weight, pg.Tensor) or not isinstance(bias, pg.Tensor)
        if ref is None or odd or rough(given_values):
            return None
        with np.errstate(all="ignore"):
            want = ref()
        if want is None or rough(w, shift):
            return None
        want = np.asarray(want, np.float64)
        return got.shape == want.shape and close(got, want, exact and x.dtype.name == "f32")

    return f"{name} {x!r} {weight!r} eps={eps!r}", run, check


FUNCTIONS = (
    *("layer_norm", "rms_norm", "linear", "attention", "flash_attention", "cross_entropy"),
    *("cross_entropy", "causal_mask", "position_ids", "segment_mask", "Parameter", "KVCache"),
    *("padding_mask", "relative_buckets", "RelativePositionBias", "batch_norm"),
    *("conv_transpose1d", "conv_transpose2d"),
)


def loss_call(d: Draw) -> Call:
    """A loss of tensors that mostly fit; compared in tests/nn/test_losses.py."""
    name = d.pick(*LOSSES)
    shape = (*d.pick((2,), (3, 4), ()), d.pick(1, 5))
    lead = shape[:-1]
    args: dict[str, Any] = {}
    for p in inspect.signature(getattr(losses, name)).parameters.values():
        if p.default is not inspect.Parameter.empty and d.chance(0.5):
            continue
        if d.chance(0.08):
            args[p.name] = d.odd()
        elif p.name in ("targets", "target") and d.chance(0.6):
            args[p.name] = d.ids(d.near(lead, 0.1), shape[-1])[0]
        elif "Tensor" in str(p.annotation):
            of = shape[-1:] if "weight" in p.name and d.chance(0.7) else shape
            args[p.name] = d.tensor(d.near(of, 0.1))[0]
        elif "str" in str(p.annotation):
            args[p.name] = d.pick("mean", "sum", "none", "batchmean")
        elif "bool" in str(p.annotation):
            args[p.name] = d.chance(0.5)
        else:
            args[p.name] = d.pick(0.1, 0.0, 1.0, -100, 2)
    return f"{name} {args!r}", lambda: getattr(losses, name)(**args), no_check


LOSSES = tuple(n for n in losses.__all__ if n.islower())


def _argument(d: Draw, p: inspect.Parameter, shape: tuple[int, ...]) -> Any:
    """Return an argument that mostly fits what a signature says of it."""
    kind = str(p.annotation)
    if d.chance(0.06):
        return d.odd()
    if "Tensor" in kind:
        one = p.name in ("weight", "bias") and d.chance(0.7)
        return d.tensor(d.near(shape[1:2] if one else shape, 0.1))[0]
    if "bool" in kind:
        return d.chance(0.5)
    if "str" in kind:
        return d.pick("fan_in", "fan_out", "relu", "tanh", "leaky_relu")
    if "int" in kind:
        return d.pick(1, 2, 3)
    if "Any" in kind:
        return d.pick(1, 2, (1, 2), (2, 1, 0, 1), None)
    return None if "None" in kind and d.chance(0.5) else d.pick(0.1, 0.5, 1.0, -1.0)


def _arguments(d: Draw, fn: Callable[..., Any], shape: tuple[int, ...]) -> dict[str, Any]:
    return {
        p.name: _argument(d, p, shape)
        for p in inspect.signature(fn).parameters.values()
        if p.default is p.empty or d.chance(0.4)
    }


def named_call(d: Draw) -> Call:
    """Functions and layers under PyTorch's names, by their signatures."""
    shape = d.pick((2, 4, 6), (1, 4, 6, 6), (3, 8), (5,), ())
    name = d.pick(*NAMED)
    fn = getattr(functional, name, None) or getattr(nn, name, None) or getattr(init, name)
    args = _arguments(d, fn, shape)
    if not inspect.isclass(fn):
        gain = lambda: pg.tensor(fn(**args))  # noqa: E731
        return (
            f"{name} {args!r}",
            gain if name == "calculate_gain" else lambda: fn(**args),
            no_check,
        )

    def run() -> Any:
        layer = fn(**args).train(d.chance(0.5))
        return layer(**_arguments(d, layer.forward, shape))

    return f"nn.{name} {args!r} {shape}", run, no_check


NAMED = (
    *(*piecewise.__all__, *sequences.__all__, *in_place.__all__),
    *(*piece_layers.__all__, *padding.__all__, *sequence_layers.__all__),
)


def number_call(d: Draw) -> Call:
    """Initialisers, schedules and clipping: functions of numbers, by their signatures."""
    where, name = d.pick(*NUMBERS)
    fn = getattr(where, name)
    parameters = inspect.signature(fn).parameters.values()
    args: list[Any] = []
    for p in parameters:
        good: tuple[Any, ...] = (0.1, 1.0, 0.0)
        if "int" in str(p.annotation):
            good = (1, 2, 10, 100, 0)
        if name == "join":
            good = ([schedules.constant(1.0)] * 2, [3], [])
        elif p.name in ("then", "schedule"):
            good = (schedules.constant(1.0), schedules.linear(1.0, 0.0, 5))
        elif "str" in str(p.annotation):
            good = ("linear", "cosine", "sqrt", "min", "max", "rel")
        args.append(d.odd() if d.chance(0.2) else d.pick(*good))
    step: Any = d.odd() if d.chance(0.1) else d.pick(0, 1, 5, 1000)
    shape: Any = d.odd() if d.chance(0.2) else d.pick((3, 4), (2,), (1, 1), (2, 3, 4))

    def run() -> Any:
        made = fn(*args)
        if where is init:
            return pg.tensor(made(shape))
        takes_step = where is schedules or name == "ReduceOnPlateau"
        return pg.tensor(float(made(step) if takes_step else made))

    return f"{where.__name__}.{name} {args!r} {step!r} {shape!r}", run, no_check


NUMBERS = (
    *(
        (init, n)
        for n in init.__all__
        if n not in ("Initializer", "empty_weights", *in_place.__all__)
    ),
    *((schedules, n) for n in (*optim.schedule_functions(), "join", "warmup")),
    (optim, "clip_factor"),
    (optim, "ReduceOnPlateau"),
)


def np_adamw(w: Any, grads: list[Any], lr: float, wd: float, clip: float | None) -> np.ndarray:
    m, v = np.zeros_like(w), np.zeros_like(w)
    for t, g in enumerate(grads, 1):
        cut = g * np_clip(g, clip)
        m, v = 0.9 * m + 0.1 * cut, 0.999 * v + 0.001 * cut * cut
        w = w * (1 - lr * wd) - lr * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return w


def np_sgd(w: Any, grads: list[Any], lr: float, wd: float, clip: float | None) -> np.ndarray:
    for g in grads:
        w = w * (1 - lr * wd) - lr * g * np_clip(g, clip)
    return w


def np_clip(g: np.ndarray, clip: float | None) -> float:
    return 1.0 if clip is None else min(1.0, clip / (float(np.linalg.norm(g)) + 1e-6))


def optimizer_call(d: Draw) -> Call:
    """An optimizer over a few steps; groups, frozen parameters, clipping, state."""
    name = d.pick(*OPTIMIZERS)
    lr: Any = d.odd() if d.chance(0.1) else d.pick(0.1, 1e-3, 0.0)
    decay: Any = d.odd() if d.chance(0.1) else d.pick(0.0, 0.1)
    clip: Any = d.odd() if d.chance(0.1) else d.pick(None, 1.0, 0.1)
    shape = d.near(d.shape(0, 3), 0.05)
    odd = d.pick(None, None, None, "groups", "twice", "frozen", "odd", "state", "load")
    start = d.array(shape)
    grads = [d.array(shape) for _ in range(d.int(1, 3))]

    def run() -> Any:
        p = nn.Parameter(start)
        params: Any = [p]
        if odd == "groups":
            params = [{"params": [p], "weight_decay": decay, d.pick("lr_scale", "other"): d.odd()}]
        elif odd == "twice":
            params = [p, p]
        elif odd == "frozen":
            p.requires_grad = False
        elif odd == "odd":
            params = d.odd()
        optimizer = getattr(optim, name)(params, lr=lr, weight_decay=decay)
        for g in grads:
            optimizer.zero_grad()
            loss = (p * pg.tensor(g)).sum()
            loss.backward()
            if optimizer.needs_closure:
                optimizer.step(loss.item, clip=clip)
            else:
                optimizer.step(clip=clip)
        if odd in ("state", "load"):
            state: dict[str, Any] = optimizer.state_dict()
            if odd == "load":
                state[d.pick(*state, "other")] = d.odd()
            optimizer.load_state_dict(state)
        return p

    def check(got: np.ndarray) -> bool | None:
        reference = OPTIMIZERS[name]
        if reference is None or odd in ("groups", "odd", "frozen") or rough(start, *grads):
            return None
        limit = None if clip is None else float(clip)
        want = reference(start, grads, float(lr), float(decay), limit)
        # Where a gradient nearly vanishes, AdamW divides rounding by rounding.
        return got.shape == want.shape and close(got, want, True)

    text = f"optim.{name} lr={lr!r} decay={decay!r} clip={clip!r} {shape} {odd}"
    return text, run, check


# The others are compared in tests/optim.
OPTIMIZERS: dict[str, Callable[..., np.ndarray] | None] = {
    **{kind.__name__: None for kind in optim.optimizers().values()},
    "SGD": np_sgd,
    "AdamW": np_adamw,
}
CALLS = (
    *(module_call, module_call, function_call, loss_call, number_call, optimizer_call),
    named_call,
)

# Public names that are not called, and why.
ELSEWHERE = {
    "Module": "a base class; every module above is one",
    "IncompatibleKeys": "returned by load_state_dict",
    "LayerCache": "made by KVCache",
    **dict.fromkeys(("ModuleDict", "ModuleList"), "only holds; see tests/nn/test_containers.py"),
    **dict.fromkeys(("TransformerDecoder", "TransformerEncoder"), "copies of a layer above"),
    "RemovableHandle": "made by register_forward_hook",
    **dict.fromkeys(("LayerSummary", "Summary"), "made by summary"),
    "summary": "reads a model",
    "Rope": "an argument of CausalSelfAttention",
    "RopeScaling": "an argument of Rope",
    "balance_loss": "reads what MixtureOfExperts appends; compared in tests/nn/test_experts.py",
    "functional": "a namespace",
    "lora": "a namespace",
    **dict.fromkeys(
        ("LoRAConv2d", "LoRAEmbedding", "LoRAStackedLinear"),
        "made by apply_lora; compared in tests/nn/test_lora_kinds.py",
    ),
    "RoundedWeights": "made by quantization_aware",
    "empty_dtype": "takes nothing",
    "losses": "a namespace",
    **{n: "calls the function of its name" for n in losses.__all__ if not n.islower()},
    "init": "a namespace",
    "schedules": "a namespace",
    "Initializer": "a type",
    "Schedule": "a type",
    "ParamGroups": "a type",
    "empty_weights": "a context; its types are drawn in tests/models/test_keep_types.py",
    "Group": "made by optimizers",
    "Optimizer": "a base class",
    "optimizers": "takes nothing",
    "schedule_functions": "takes nothing",
    "Joined": "made by join",
    "is_adaptive": "tells kinds of schedules apart",
    "update_schedule": "called by training steps",
    "GradNorm": "made by optimizers",
    **dict.fromkeys(
        (
            *("ELU", "Identity", "LeakyReLU", "LogSoftmax", "Sigmoid", "Softmax", "Softplus"),
            *("Hardsigmoid", "Hardswish", "Mish", "ReLU6"),
            *("AdaptiveAvgPool2d", "Unflatten"),
        ),
        "calls one function, compared with PyTorch by tests/tensors",
    ),
    "ClipValue": "made by training steps",
    **dict.fromkeys(
        ("decay_groups", "param_groups", "muon_groups", "layerwise_lr", "EMA"), "reads a model"
    ),
}


def drawn() -> list[str]:
    return sorted(
        {
            *(*MODULES, *FUNCTIONS, *LOSSES, *(n for _, n in NUMBERS), *OPTIMIZERS, *ELSEWHERE),
            *adapter_calls.NAMES,
            *operations.__all__,  # op_calls.py draws these
            *convolution.__all__,
            *pooling.__all__,
            *activations.__all__,
            *NAMED,
            *(name for name in functional.__all__ if name in pg.ops.__all__),
        }
    )


def offered() -> list[str]:
    """All that the packages offer."""
    named = (nn, functional, init, optim, schedules)
    return sorted({n for package in named for n in package.__all__})
