# SPDX-License-Identifier: MIT
"""Random calls of `Tensor`'s methods, operators and indices, and of what makes tensors."""

from __future__ import annotations

import copy
import inspect
import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
from draw import DTYPES, Draw, close, rough
from op_calls import argument, first

import pyggml as pg
from pyggml.ops import named
from pyggml.tensors import filled
from pyggml.tensors.methods import Methods

BINARY = ("add", "sub", "mul", "truediv", "matmul")
Call = tuple[str, Callable[[], Any], Callable[..., Any]]


def _index(d: Draw, shape: tuple[int, ...]) -> Any:
    parts: list[Any] = []
    for n in shape[: d.int(0, len(shape))]:
        kind = d.pick("int", "slice", "slice", "all", "odd") if d.chance(0.3) else "slice"
        if kind == "int":
            parts.append(d.int(-n, n))
        elif kind == "slice":
            a, b = sorted((d.int(0, n), d.int(0, n)))
            parts.append(d.pick(slice(a, b), slice(a, None), slice(-b, None), slice(None, b)))
        elif kind == "all":
            parts.append(d.pick(slice(None), Ellipsis))
        else:
            parts.append(d.odd())
    return tuple(parts) if len(parts) != 1 or d.chance(0.5) else parts[0]


def _compare(d: Draw, text: str, fn: Callable[..., Any], ref: Any, pairs: list[Any]) -> Call:
    tensors = [t for t, _ in pairs]
    values = [x for _, x in pairs]

    def check(got: np.ndarray) -> bool | None:
        if rough(*[v for v in values if isinstance(v, np.ndarray)]):
            return None
        with np.errstate(all="ignore"):
            want = np.asarray(ref(*values), np.float64)
        exact = all(t.dtype.name == "f32" for t in tensors if isinstance(t, pg.Tensor))
        return got.shape == want.shape and close(got, want, exact)

    return f"{text} {tensors!r}", lambda: fn(*tensors), check


def operator_call(d: Draw) -> Call:
    name = d.pick(*BINARY)
    fn = getattr(operator, name)
    shape = d.shape()
    low = 0.3 if name == "truediv" else -2.0
    left = d.tensor(shape, low=low)
    if name == "matmul" and len(shape) > 1:
        other = (*shape[:-2], shape[-1], d.pick(1, 3, 8))
    else:
        other = tuple(1 if d.chance(0.2) else n for n in shape)
    kind = d.pick("tensor", "tensor", "number", "array", "odd")
    if kind == "tensor":
        right: Any = d.tensor(d.near(other, 0.15), low=low)
    elif kind == "number":
        right = (x := d.pick(2, 0.5, -3, np.float32(1.5), 1e-3), x)
    elif kind == "array":
        right = (x := d.array(d.near(other, 0.15), low), x.astype(np.float64))
    else:
        right = (x := d.odd(), x)
    pairs = [left, right]
    if d.chance(0.3):
        pairs.reverse()
    return _compare(d, f"operator.{name}", fn, fn, pairs)


def _rounded(x: np.ndarray, dtype: str) -> np.ndarray:
    """What a number becomes in another dtype: the nearest one, of two the even one."""
    if dtype[0] == "i":
        return np.trunc(x)
    if dtype == "f16":
        return x.astype(np.float16).astype(np.float64)
    if dtype == "bf16":
        bits = x.astype(np.float32).view(np.uint32).astype(np.uint64)
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16
        return bits.astype(np.uint32).view(np.float32).astype(np.float64)
    return x


def method_call(d: Draw) -> Call:
    t, x = d.tensor(d.shape())
    pair = [(t, x)]
    axis = d.pick(None, 0, -1, d.int(-5, 5), d.odd() if d.chance(0.2) else None)
    keep = d.chance(0.5)
    axes = d.random.sample(range(t.ndim), t.ndim)
    if d.chance(0.2):
        axes = [d.int(-5, 5) for _ in range(d.int(0, 5))]
    a, b = d.int(-5, 5), d.int(-5, 5)
    new: Any = d.near((*t.shape[1:], *t.shape[:1]), 0.3)
    if new and d.chance(0.3):
        new = (-1, *new[1:])
    power = d.pick(2, 3, 0, 1, -1, 0.5, d.odd() if d.chance(0.3) else 2)
    dtype = d.pick(*DTYPES, "x")
    index = _index(d, t.shape)
    device: Any = d.pick("cpu", "auto", "cuda:9", d.odd())
    options: dict[str, tuple[Callable[..., Any], Callable[..., Any] | None]] = {
        "getitem": (lambda t: t[index],) * 2,
        "reshape": (lambda t: t.reshape(*new) if keep else t.reshape(new),) * 2,
        "permute": (lambda t: t.permute(*axes), lambda x: x.transpose(axes)),
        "transpose": (lambda t: t.transpose(a, b), lambda x: x.swapaxes(a, b)),
        "T": (lambda t: t.T, lambda x: x.T),
        "contiguous": (lambda t: t.contiguous(), lambda x: x),
        "sum": (lambda t: t.sum(axis, keep), lambda x: x.sum(axis, keepdims=keep)),
        "mean": (lambda t: t.mean(axis, keep), lambda x: x.mean(axis, keepdims=keep)),
        "astype": (lambda t: t.astype(dtype), lambda x: _rounded(x, dtype)),
        "pow": (lambda t: t**power, None),
        "neg": (operator.neg, operator.neg),
        "detach": (lambda t: t.detach(), lambda x: x),
        # Of another tensor it takes the dtype too.
        "to": (lambda t: t.to(device), None if isinstance(device, pg.Tensor) else lambda x: x),
        "numpy": (lambda t: pg.tensor(t.numpy()), lambda x: x),
        "tolist": (lambda t: pg.tensor(t.tolist()), lambda x: x),
        "item": (lambda t: pg.tensor(t.item()), lambda x: x.reshape(())),
        "array": (lambda t: pg.tensor(np.asarray(t)), lambda x: x),
        "float": (lambda t: pg.tensor(float(t)), lambda x: x.reshape(())),
        "int": (lambda t: pg.tensor(int(t)), lambda x: np.trunc(x.reshape(()))),
        "bool": (lambda t: pg.tensor(int(bool(t))), lambda x: x.reshape(()) != 0),
        "iter": (lambda t: list(t)[-1], lambda x: x[-1]),
        "len": (lambda t: pg.tensor(len(t)), len),
        "copy": (copy.copy, lambda x: x),
        "deepcopy": (copy.deepcopy, lambda x: x),
        "pickle": (lambda t: pickle.loads(pickle.dumps(t)), lambda x: x),
        "nbytes": (lambda t: pg.tensor(t.nbytes * 0 + t.numel()), lambda x: x.size),
        "clone": (lambda t: t.clone(), lambda x: x),
        "cpu": (lambda t: t.cpu(), lambda x: x),
        "mT": (lambda t: t.mT, lambda x: x.swapaxes(-1, -2)),
        "dim": (lambda t: pg.tensor(t.dim() + len(t.describe()) * 0), lambda x: x.ndim),
        "numel": (lambda t: pg.tensor(t.numel()), lambda x: x.size),
        "ndim": (lambda t: pg.tensor(t.ndim), lambda x: x.ndim),
        "repr": (lambda t: pg.tensor(len(repr(t)) * 0), lambda x: 0),
    }
    name = d.pick(*options)
    fn, ref = options[name]
    if ref is None or (name == "astype" and dtype[0] in "qi"):
        return f"{name} {t!r}", lambda: fn(t), lambda got: None
    return _compare(d, name, fn, ref, pair)


def state_call(d: Draw) -> Call:
    """What changes a tensor: writing, requires_grad, grad, hooks, backward."""
    t, _ = d.tensor(d.shape())
    values: Any = d.odd() if d.chance(0.3) else d.array(d.near(t.shape, 0.2))
    other = d.tensor(d.near(t.shape, 0.2))[0]

    def write() -> pg.Tensor:
        t.copy_(values)
        return t

    def gradient() -> pg.Tensor:
        t.grad = d.pick(None, other, t)
        return t

    def hook() -> pg.Tensor:
        remove = t.register_hook(lambda g: None)
        t.run_hooks()
        remove()
        return t

    def trained() -> pg.Tensor:
        t.requires_grad = d.chance(0.5)
        return t

    def inside() -> pg.Tensor:
        graph = pg.Graph([t, other][: d.int(0, 2)], device=d.pick(None, "cpu", "cuda:7", 3))
        graph.run()
        return pg.tensor(graph.read(d.pick(t, other)))

    def back() -> pg.Tensor:
        t.backward()
        return t

    def compiled() -> pg.Tensor:
        return pg.compile(lambda *a: a[0] + a[-1])(t, d.pick(t, other, values))

    def both() -> pg.Tensor:
        return pg.value_and_grad(lambda a: (a * a).sum(), d.pick(0, [0], 1, -1))(t)[0]

    def checked() -> pg.Tensor:
        pg.check_grads(lambda a: a * a, t.reshape(t.numel())[:3])
        return t

    def anomaly() -> pg.Tensor:
        with pg.detect_anomaly():
            return pg.tensor((t.exp() if hasattr(t, "exp") else pg.ops.log(t)).numpy())

    def cast() -> pg.Tensor:
        with pg.autocast(d.pick("bf16", "bf16", "f16", "f32", values)):
            return t @ d.pick(t, t.mT if t.ndim > 1 else t, other)

    def again() -> pg.Tensor:
        return pg.checkpoint(d.pick(pg.ops.relu, lambda a: a * a, None), t)

    def custom() -> pg.Tensor:
        forward = d.pick(lambda *a: a[0] * 2.0, lambda *a: (a[0], a[-1]), lambda *a: values, None)
        backward = d.pick(
            lambda g, y, *a: (g,) * len(a),
            lambda g, y, *a: (g[0] * a[0], *[None] * (len(a) - 1)),
            lambda g, y, *a: values,
        )
        made = pg.custom_function(forward, backward)(t, *d.pick((), (t,), (other,), (values,)))
        return made if isinstance(made, pg.Tensor) else made[0]

    def profiled() -> pg.Tensor:
        with pg.profile():
            (t * 2.0).numpy()
        return t

    def settings() -> pg.Tensor:
        pick = d.pick(pg.set_threads, pg.set_default_device, pg.seed, pg.device, pg.as_dtype)
        given = d.odd()
        if given is not True:  # one thread, or the seed 1
            pick(given)
        return t

    steps = {
        "autocast": cast,
        "checkpoint": again,
        "custom_function": custom,
        "recompute": lambda: pg.recompute(d.pick(t, t * 1.0, values)),
        "postpone": lambda: pg.postpone(d.pick(t, t * 1.0, values)),
        "profile": profiled,
        "settings": settings,
        "copy_": write,
        "zero_": t.zero_,
        "move_": lambda: d.pick(t, t * 1.0).move_(d.pick("cpu", "auto", "cuda:9", d.odd())),
        "grad": gradient,
        "register_hook": hook,
        "requires_grad": trained,
        "requires_grad_": lambda: t.requires_grad_(d.pick(True, False, d.odd())),
        "Graph": inside,
        "backward": back,
        "compile": compiled,
        "value_and_grad": both,
        "check_grads": checked,
        "detect_anomaly": anomaly,
    }
    name = d.pick(*steps)
    return f"{name} {t!r} {other!r} {values!r}", steps[name], lambda got: None


# Methods that are ops, and functions that make tensors, which take what their signatures say.
METHODS = sorted({name for kind in Methods.__mro__ for name in vars(kind)} - {"T", "mT", "astype"})
METHODS = [name for name in METHODS if not name.startswith("_")]
MADE = list(filled.__all__)


def signature_call(d: Draw) -> Call:
    t, _ = d.tensor(d.shape())
    if d.chance(0.3):
        name, fn = (name := d.pick(*MADE)), getattr(pg, name)
    else:
        name, fn = (name := d.pick(*METHODS)), getattr(t, name)
    args = [argument(d, p, t.shape) for p in inspect.signature(fn).parameters.values()
            if p.kind is not p.KEYWORD_ONLY and p.name != "device"]  # fmt: skip
    if args and name in ("rand", "randn", "linspace", "eye", "arange"):
        args = [d.pick(2, 5, 2.5, -1, d.odd()) for _ in range(d.int(0, 3))]

    return f"{name} {t!r} {args!r}", lambda: first(fn(*args)), lambda got: None


def creation_call(d: Draw) -> Call:
    name = d.pick("tensor", "zeros", "ones", "full", "empty", "zeros_group")
    shape: Any = d.odd() if d.chance(0.3) else d.near(d.shape(), 0.2)
    dtype = d.odd() if d.chance(0.1) else d.pick(*DTYPES)
    device = d.pick(None, None, None, "cpu", "auto", "cuda:9", d.odd())
    value = d.pick(1.0, 0, d.odd())
    calls: dict[str, Callable[[], Any]] = {
        "tensor": lambda: pg.tensor(d.pick(shape, value, d.array((2, 32))), dtype, device),
        "zeros": lambda: pg.zeros(shape, dtype=dtype, device=device),
        "ones": lambda: pg.ones(shape, dtype=dtype, device=device),
        "full": lambda: pg.full(shape, value, dtype=dtype, device=device),
        "empty": lambda: pg.empty(shape, dtype=dtype, device=device),
        "zeros_group": lambda: pg.zeros_group([(shape, dtype), ((2, 32), dtype)], device)[0],
    }
    return f"{name} {shape!r} {value!r} {dtype!r} {device!r}", calls[name], lambda got: None


CALLS = (
    *(operator_call, operator_call, method_call, method_call, state_call, creation_call),
    signature_call,
)


# Names of the package itself that the calls use, and those that take nothing or are types.
TOP = {
    *("Graph", "as_dtype", "autocast", "check_grads", "checkpoint", "compile", "detect_anomaly"),
    *("custom_function", "device", "empty", "full", "ones", "ops", "postpone", "profile"),
    *("recompute", "seed", "tensor"),
    *("set_default_device", "set_threads", "value_and_grad", "zeros", "zeros_group"),
    *MADE,
    *(name for name in pg.__all__ if name in pg.ops.__all__),  # op_calls.py draws them
    *named.__all__,  # of the same ops, whose arguments are drawn
}
NOT_CALLED = {
    *("AnomalyError", "BackendError", "DTypeError", "DistributedError", "FormatError"),
    *("GradientError", "ShapeError"),
    *("OutOfMemoryError", "RecordingError"),
    *("Compiled", "DType", "Device", "DropoutStream", "Tensor"),  # made by what is called
    *(
        "alone",
        "default_device",
        "devices",
        "get_threads",
        "ggml_version",
        "patch_count",
    ),  # take nothing
    *("random_generator", "bf16_matmuls"),
    *("ffi", "lib"),  # C, unchecked by design
    *("e", "inf", "nan", "newaxis", "pi"),  # numbers
    "load",  # reads files, as `files.py` does
    "progress",  # of any items, as tests/train/test_progress.py has them
    "measure_peaks",  # seconds of measuring, of a device
}


def drawn() -> list[str]:
    """Public names of `Tensor` that the calls above use."""
    return [
        *("T", "astype", "backward", "contiguous", "copy_", "detach", "dtype", "grad", "item"),
        *("is_stored", "mean", "nbytes", "move_", "ndim", "numpy", "permute", "register_hook"),
        *("requires_grad", "requires_grad_", "reshape", "run_hooks", "shape", "size", "sum", "to"),
        *("tolist", "transpose", "zero_", "clone", "cpu", "describe", "dim", "numel", "mT"),
        *METHODS,
    ]
