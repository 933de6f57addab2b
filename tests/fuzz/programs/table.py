# SPDX-License-Identifier: MIT
"""The steps of random programs: what each is in pyggml and in PyTorch.

A step's function takes tensors and the step's further arguments, which are plain Python values so
that a program can be printed. `RULES` draw a step: sources among the values there are, arguments,
and a bound on the result's numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from pyggml import ops, tensor

if TYPE_CHECKING:
    from .draw import Maker

__all__ = ["JUMPS", "KINKS", "PG", "PRODUCTS", "RULES", "torch_table"]

Fn = Callable[..., Any]
PG: dict[str, Fn] = {name: getattr(ops, name) for name in ops.__all__}
# The torch side is made when torch is there.
_TORCH: list[Callable[[Any], dict[str, Fn]]] = []
RULES: list[tuple[int, Callable[[Maker], None]]] = []
# Where a function is not smooth, or jumps: numbers this close to it say little about gradients.
KINKS: dict[str, tuple[float, ...]] = {}
# Steps whose operands autocast may round.
PRODUCTS = frozenset(
    "matmul mul_mat linear out_prod mul_mat_id conv_1d conv_2d conv_2d_direct attention".split()
)


def torch_table() -> dict[str, Fn]:
    """Return the functions of PyTorch, by the step's name."""
    import torch

    table: dict[str, Fn] = {}
    for part in _TORCH:
        table |= part(torch)
    return table


def rule(weight: int) -> Callable[[Callable[[Maker], None]], Callable[[Maker], None]]:
    """Enter a function that draws a step, as often as `weight` says."""

    def enter(fn: Callable[[Maker], None]) -> Callable[[Maker], None]:
        RULES.append((weight, fn))
        return fn

    return enter


def ids(rows: Any) -> Any:
    """Return whole numbers as a stored tensor."""
    return tensor(np.array(rows, np.int32))


# One operand, element by element: the result's bound from the operand's, and the operand's limit.
_UNARY: dict[str, tuple[Callable[[float], float], float]] = {
    **dict.fromkeys(("neg", "abs", "relu", "gelu", "gelu_erf", "gelu_quick", "silu"), (float, 50)),
    **dict.fromkeys(("hardswish", "leaky_relu", "sin_x"), (float, 50)),
    **dict.fromkeys(("tanh", "sigmoid", "hardsigmoid", "step", "sgn"), (lambda b: 1.0, 50)),
    **dict.fromkeys(("sin", "cos"), (lambda b: 1.0, 10)),
    **dict.fromkeys(("floor", "ceil", "round", "trunc"), (lambda b: b + 1, 8)),
    "softplus": (lambda b: b + 0.7, 50),
    "elu": (lambda b: max(b, 1.0), 50),
    "xielu": (lambda b: 1.2 * b * b + 2 * b + 1, 5),
    "sqr": (lambda b: b * b, 7),
    "exp": (math.exp, 3),
    "expm1": (math.exp, 3),
}
del _UNARY["sin_x"]
KINKS.update(dict.fromkeys(("abs", "relu", "leaky_relu", "elu", "xielu", "sgn", "step"), (0.0,)))
KINKS.update(dict.fromkeys(("reglu", "reglu_fused"), (0.0,)))
KINKS.update(dict.fromkeys(("hardsigmoid", "hardswish"), (-3.0, 3.0)))
JUMPS = ("floor", "ceil", "trunc", "round", "sgn", "step")
KINKS.update(dict.fromkeys(JUMPS[:3], tuple(map(float, range(-9, 10)))))
KINKS["round"] = tuple(n + 0.5 for n in range(-10, 10))


@rule(24)
def _unary(m: Maker) -> None:
    name = m.pick(*_UNARY)
    bound, limit = _UNARY[name]
    i = m.tame(m.value(), limit)
    m.emit(name, (i,), (), bound(m.bounds[i]))


@rule(3)
def _positive(m: Maker) -> None:
    i = m.tame(m.value(), 5)
    square = m.emit("sqr", (i,), (), m.bounds[i] ** 2)
    above = m.emit("scale", (square,), (1.0, 0.5), m.bounds[square] + 0.5)
    kind = m.pick("log", "sqrt", "pow", "div")
    if kind == "pow":
        m.emit("pow", (above,), (m.pick(-1.0, 0.5, 1.5, 2, -2),), max(m.bounds[above] ** 2, 4.0))
    elif kind == "div":
        j = m.other(above)
        m.emit("div", (j, above), (), 2 * m.bounds[j])
    else:
        m.emit(kind, (above,), (), max(math.log(2), m.bounds[above]))


@rule(6)
def _scalar(m: Maker) -> None:
    i = m.value()
    kind = m.pick("scale", "clamp", "add_number", "rsub_number", "mul_number")
    x = m.number()
    if kind == "scale":
        y = m.number()
        m.emit("scale", (i,), (x, y), abs(x) * m.bounds[i] + abs(y))
    elif kind == "clamp":
        m.emit("clamp", (i,), (-abs(x), 0.75), max(abs(x), 0.75))
    elif kind == "mul_number":
        m.emit(kind, (i,), (x,), abs(x) * m.bounds[i])
    else:
        m.emit(kind, (i,), (x,), abs(x) + m.bounds[i])


PG["add_number"] = lambda x, n: x + n
PG["mul_number"] = lambda x, n: n * x
PG["rsub_number"] = lambda x, n: n - x


@rule(16)
def _binary(m: Maker) -> None:
    i = m.tame(m.value(), 7)
    j = m.tame(m.other(i), 7)
    name = m.pick("add", "add", "sub", "mul")
    if m.chance(0.5):
        i, j = j, i
    a, b = m.bounds[i], m.bounds[j]
    m.emit(name, (i, j), (), a * b if name == "mul" else a + b)


@rule(4)
def _gated(m: Maker) -> None:
    name = m.pick("swiglu", "reglu", "geglu", "geglu_erf", "geglu_quick", "swiglu_oai")
    i = m.tame(m.value(), 6)
    if m.shapes[i] and m.shapes[i][-1] % 2 == 0 and m.chance(0.6):
        m.emit(f"{name}_fused", (i,), (), 49)
    else:
        j = m.tame(m.alike(i), 6)
        m.emit(name, (i, j), (), 49)


for _name in ("swiglu", "reglu", "geglu", "geglu_erf", "geglu_quick", "swiglu_oai"):
    PG[f"{_name}_fused"] = getattr(ops, _name)


@rule(7)
def _reduction(m: Maker) -> None:
    i = m.value(lambda s: len(s) > 0)
    shape = m.shapes[i]
    kind = m.pick("sum", "mean", "mean", "sum_rows", "mean_rows", "cumsum")
    i = m.tame(i, 50 / max(shape) if kind in ("sum", "sum_rows", "cumsum") else 50)
    bound = m.bounds[i] * (1 if "mean" in kind else max(shape))
    if kind in ("sum", "mean"):
        m.emit(kind, (i,), (m.int(-len(shape), len(shape) - 1), m.chance(0.5)), bound)
    else:
        m.emit(kind, (i,), (), bound)


@rule(7)
def _norm(m: Maker) -> None:
    i = m.value(lambda s: len(s) > 0)
    width = m.shapes[i][-1]
    kind = m.pick("norm", "rms_norm", "l2_norm", "soft_max", "soft_max", "group_norm", "affine")
    if kind == "group_norm":
        i = m.value(lambda s: len(s) >= 3)
        groups = m.pick(*[g for g in (1, 2, 3) if m.shapes[i][-3] % g == 0])
        m.emit("group_norm", (i,), (groups, 0.01), math.sqrt(math.prod(m.shapes[i])))
    elif kind == "soft_max":
        m.emit("soft_max", (m.tame(i, 20),), (None, m.pick(1.0, 0.5)), 1)
    elif kind == "affine":  # as layers have it: one fused step of the CPU
        y = m.emit(m.pick("norm", "rms_norm"), (i,), (0.01,), math.sqrt(width))
        y = m.emit("mul", (y, m.leaf((width,), 0.5, 1.5)), (), 1.5 * m.bounds[y])
        m.emit("add", (y, m.leaf((width,))), (), m.bounds[y] + 1)
    else:
        m.emit(kind, (i,), (0.01,), math.sqrt(width))


@rule(10)
def _product(m: Maker) -> None:
    kind = m.pick("matmul", "matmul", "mul_mat", "linear", "linear", "out_prod")
    i = m.tame(m.value(lambda s: len(s) >= 2), 6)
    shape = m.shapes[i]
    k = shape[-2] if kind == "out_prod" else shape[-1]
    n = m.pick(1, 2, 3, 4, 6, 17)
    if kind == "matmul":
        fitting = m.matching(lambda s: len(s) == 2 and s[0] == k)
        sources = (i, m.leaf((k, n)) if fitting is None else m.tame(fitting, 6))
    elif kind == "mul_mat":
        fitting = m.matching(lambda s: len(s) == 2 and s[1] == k)
        sources = (m.leaf((n, k)) if fitting is None else m.tame(fitting, 6), i)
    elif kind == "linear":
        sources = (i, m.leaf((n, k)), m.leaf((n,))) if m.chance(0.5) else (i, m.leaf((n, k)))
    else:
        sources = (m.leaf((k, n)), i)
    bound = k * math.prod(m.bounds[s] for s in sources[:2]) + 1
    y = m.emit(kind, sources, (), bound)
    if m.chance(0.3):  # a product added to what is there
        other = m.tame(m.alike(y), 6)
        m.emit("add", (y, other) if m.chance(0.5) else (other, y), (), bound + m.bounds[other])


@rule(16)
def _moved(m: Maker) -> None:
    kind = m.pick(*["permute"] * 2, "transpose", *["reshape"] * 2, *["getitem"] * 3, "cont")
    i = m.value(lambda s: len(s) >= 2)
    shape = m.shapes[i]
    if kind == "permute":
        args: Any = (tuple(m.random.sample(range(len(shape)), len(shape))),)
    elif kind == "transpose":
        args = tuple(m.random.sample(range(len(shape)), 2))
    elif kind == "reshape":
        size = math.prod(shape)
        first = m.pick(*[d for d in range(1, size + 1) if size % d == 0])
        args = (m.pick((first, size // first), (size // first, -1), (size,), (1, first, -1)),)
    elif kind == "getitem":
        index = []
        for extent in shape[: m.int(1, len(shape))]:
            a = m.int(0, extent - 1)
            b = m.int(a + 1, extent)
            index.append(m.pick(("i", a), ("s", a, b), ("s", a, b), ("s", 0, extent)))
        args = (tuple(index),)
    else:
        args = ()
    m.emit(kind, (i,), args, m.bounds[i])


def _cut(index: Any) -> Any:
    """Return an index of Python from its printed form."""
    return tuple(part[1] if part[0] == "i" else slice(*part[1:]) for part in index)


PG["getitem"] = lambda x, index: x[_cut(index)]


@rule(8)
def _placed(m: Maker) -> None:
    kind = m.pick("concat", "repeat", "broadcast_to", "pad", "pad_reflect", "roll", "set", "acc")
    i = m.value(lambda s: 1 <= len(s) <= 3)
    shape, bound = m.shapes[i], m.bounds[i]
    if kind == "concat":
        axis = m.int(0, len(shape) - 1)
        others = [s for s in (m.alike(i), m.alike(i)) if m.chance(0.8)] or [i]
        m.emit(kind, (i, *others), (axis,), max(bound, *(m.bounds[s] for s in others)))
    elif kind == "repeat":
        m.emit(kind, (i,), (tuple(n * m.pick(1, 2) for n in shape),), bound)
    elif kind == "broadcast_to":
        m.emit(kind, (i,), ((m.pick(1, 2, 3), *shape),), bound)
    elif kind == "pad":
        widths = tuple((m.int(0, 2), m.int(0, 2)) for _ in shape)
        m.emit(kind, (i,), (widths,), bound)
    elif kind == "pad_reflect":
        most = shape[-1] - 1
        m.emit(kind, (i,), (m.int(0, most), m.int(0, most)), bound)
    elif kind == "roll":
        m.emit(kind, (i,), (tuple(m.int(-2, 2) for _ in shape),), bound)
    else:
        part = tuple(m.int(1, n) for n in shape)
        start = tuple(m.int(0, n - p) for n, p in zip(shape, part, strict=True))
        j = m.matching(lambda s: s == part)
        j = m.leaf(part) if j is None else j
        m.emit(kind, (i, j), (start,), bound + m.bounds[j])


PG["concat"] = lambda *given: ops.concat(given[:-1], given[-1])


@rule(3)
def _matrix(m: Maker) -> None:
    kind = m.pick("tri", "diag_mask_zero", "diag", "solve_tri")
    i = m.value(lambda s: len(s) >= 2)
    n = m.shapes[i][-1]
    if kind == "tri":
        gram = m.emit("matmul", (m.leaf((n, m.shapes[i][-2])), m.tame(i, 3)), (), 50)
        part = m.pick("lower", "strictly_lower", "upper", "strictly_upper")
        m.emit("tri", (gram,), (part,), m.bounds[gram])
    elif kind == "diag_mask_zero":
        m.emit(kind, (i,), (m.int(0, 2),), m.bounds[i])
    elif kind == "diag":
        i = m.value(lambda s: len(s) == 1)
        m.emit(kind, (i,), (), m.bounds[i])
    else:
        i = m.tame(m.value(lambda s: len(s) == 2), 3)
        rows = m.shapes[i][0]
        if rows <= 6:
            m.emit(kind, (m.leaf((rows, rows), 1.0, 1.5), i), (), 3 * 2.5**rows)


@rule(6)
def _rows(m: Maker) -> None:
    kind = m.pick("get_rows", "get_rows", "cross_entropy", "add_id", "mul_mat_id")
    if kind == "get_rows":
        i = m.value(lambda s: len(s) == 2)
        chosen = tuple(m.int(0, m.shapes[i][0] - 1) for _ in range(m.int(1, 7)))
        m.emit(kind, (i,), (chosen,), m.bounds[i])
    elif kind == "cross_entropy":
        i = m.tame(m.value(lambda s: len(s) == 2), 20)
        n, classes = m.shapes[i]
        targets = tuple(m.int(0, classes - 1) for _ in range(n))
        m.emit(kind, (i,), (targets,), 2 * m.bounds[i] + math.log(classes))
    else:
        i = m.tame(m.value(lambda s: len(s) == 3), 6)
        t, used, c = m.shapes[i]
        chosen_of = tuple(tuple(m.random.sample(range(4), min(used, 4))) for _ in range(t))
        if used > 4:
            return
        if kind == "add_id":
            m.emit(kind, (i, m.leaf((4, c))), (chosen_of,), m.bounds[i] + 1)
        else:
            m.emit(kind, (m.leaf((4, 3, c)), i), (chosen_of,), c * m.bounds[i])


PG["get_rows"] = lambda x, rows: ops.get_rows(x, ids(rows))
PG["cross_entropy"] = lambda x, targets: ops.cross_entropy(x, ids(targets))
PG["add_id"] = lambda x, table, rows: ops.add_id(x, table, ids(rows))
PG["mul_mat_id"] = lambda experts, x, rows: ops.mul_mat_id(experts, x, ids(rows))


@rule(4)
def _attention(m: Maker) -> None:
    i = m.tame(m.value(lambda s: len(s) == 4), 5)
    b, h, t, width = m.shapes[i]
    if m.chance(0.5):
        if width % 2 == 0:
            m.emit("rope", (i,), (width, m.pick("neox", "normal")), 1.5 * m.bounds[i])
        return
    g = m.pick(*[g for g in (1, 2, 3) if h % g == 0])
    s = m.pick(1, 3, t)
    k, v = (m.leaf((b, g, s, width)) for _ in range(2))
    causal = s == t and m.chance(0.6)
    m.emit("attention", (i, k, v), (causal, m.pick(0.0, 2.0)), 1)


def _causal(n: int) -> Any:
    return np.triu(np.full((n, n), -np.inf, np.float32), 1)


def _pg_attention(q: Any, k: Any, v: Any, causal: bool, softcap: float) -> Any:
    mask = tensor(_causal(q.shape[-2]), "f16") if causal else None
    return ops.flash_attn_ext(q, k, v, mask, softcap=softcap)


PG["attention"] = _pg_attention
PG["rope"] = lambda x, n, mode: ops.rope(x, tensor(np.arange(x.shape[-3], dtype=np.int32)), n, mode)


@rule(5)
def _image(m: Maker) -> None:
    kinds = ("conv_2d", "conv_2d_direct", "conv_2d_dw", "conv_transpose_2d", "avg_pool", "upscale")
    kind = m.pick(*kinds, "interpolate", "max_pool")
    i = m.tame(m.value(lambda s: len(s) == 4 and min(s[2:]) >= 2), 5)
    c, bound = m.shapes[i][1], m.bounds[i]
    if kind in ("conv_2d", "conv_2d_direct"):
        w = m.leaf((m.pick(1, 2, 3), c, m.pick(1, 2), m.pick(1, 2)))
        m.emit(kind, (i, w), (m.pick(1, 2), m.pick(0, 1)), 4 * c * bound)
    elif kind == "conv_2d_dw":
        m.emit(kind, (i, m.leaf((c, 1, 2, 2))), (1, m.pick(0, 1)), 4 * bound)
    elif kind == "conv_transpose_2d":
        m.emit(kind, (i, m.leaf((c, 2, 2, 2))), (m.pick(1, 2),), 4 * c * bound)
    elif kind in ("avg_pool", "max_pool"):
        m.emit(kind, (i,), (m.pick(1, 2),), bound)
    elif kind == "upscale":
        m.emit(kind, (i,), (2, m.pick("nearest", "bilinear", "bicubic")), 2 * bound)
    else:
        m.emit(kind, (i,), ((m.pick(2, 3, 5), m.pick(2, 3)),), bound)


PG["avg_pool"] = lambda x, stride: ops.pool_2d(x, 2, stride, 0, "avg")
PG["max_pool"] = lambda x, stride: ops.pool_2d(x, 2, stride, 0, "max")


@rule(2)
def _line(m: Maker) -> None:
    i = m.tame(m.value(lambda s: len(s) == 3 and s[-1] >= 2), 5)
    c = m.shapes[i][1]
    w = m.leaf((2, c, m.pick(1, 2)))
    m.emit("conv_1d", (i, w), (m.pick(1, 2), m.pick(0, 1)), 2 * c * m.bounds[i])


@rule(2)
def _rounded(m: Maker) -> None:
    i = m.value(lambda s: len(s) > 0)
    m.emit("rounded", (i,), (m.pick("f16", "bf16"),), m.bounds[i])


PG["rounded"] = lambda x, dtype: ops.cast(ops.cast(x, dtype), "f32")


@rule(2)
def _keep(m: Maker) -> None:
    """Write a source of a step into a buffer, whenever the step is computed."""
    i = m.made()
    if i is not None:
        m.emit("keep", (i, m.sources_of(i)[0]), (len(m.kept),), m.bounds[i])


@_TORCH.append
def _torch_elements(torch: Any) -> dict[str, Fn]:
    f = torch.nn.functional

    def xielu(x: Any, a_n: float = 0.8, a_p: float = 0.8, beta: float = 0.5) -> Any:
        n, p = beta + math.log1p(math.exp(a_n)), math.log1p(math.exp(a_p))
        below = n * (torch.expm1(torch.clamp(x, max=-1e-6)) - x) + beta * x
        return torch.where(x > 0, p * x * x + beta * x, below)

    def oai(g: Any, u: Any) -> Any:
        g, u = g.clamp(max=7.0), u.clamp(-7.0, 7.0)
        return g * torch.sigmoid(1.702 * g) * (u + 1)

    def quick(x: Any) -> Any:
        return x * torch.sigmoid(1.702 * x)

    def tanh_gelu(x: Any) -> Any:
        return f.gelu(x, approximate="tanh")

    acts: dict[str, Fn] = {"swiglu": f.silu, "reglu": f.relu, "geglu": tanh_gelu}
    acts |= {"geglu_erf": f.gelu, "geglu_quick": quick}
    gated: dict[str, Fn] = {n: lambda a, b, act=act: act(a) * b for n, act in acts.items()}
    gated["swiglu_oai"] = oai
    fused = {f"{n}_fused": lambda x, fn=fn: fn(*x.chunk(2, -1)) for n, fn in gated.items()}
    named = "neg abs relu sigmoid tanh sin cos floor ceil trunc exp expm1 log sqrt".split()
    return {
        **{n: getattr(torch, n) for n in named},
        **{"silu": f.silu, "hardswish": f.hardswish, "hardsigmoid": f.hardsigmoid},
        **{"softplus": f.softplus, "elu": f.elu, "leaky_relu": f.leaky_relu, "sqr": torch.square},
        **{"gelu": tanh_gelu, "gelu_erf": f.gelu, "gelu_quick": quick, "xielu": xielu},
        "step": lambda x: (x > 0).to(x.dtype) + 0 * x,
        "sgn": lambda x: torch.sign(x.detach()) + 0 * x,
        "round": torch.round,
        "scale": lambda x, s, b: x * s + b,
        "clamp": torch.clamp,
        "add_number": lambda x, n: x + n,
        "mul_number": lambda x, n: x * n,
        "rsub_number": lambda x, n: n - x,
        **{n: getattr(torch, n) for n in ("add", "sub", "mul", "div", "pow")},
        **gated,
        **fused,
    }


@_TORCH.append
def _torch_rows(torch: Any) -> dict[str, Fn]:
    f = torch.nn.functional

    def group_norm(x: Any, groups: int, eps: float) -> Any:
        whole = x.reshape(*x.shape[:-3], groups, -1)  # group_norm refuses a group of one
        return f.layer_norm(whole, whole.shape[-1:], eps=eps).reshape(x.shape)

    def rms(x: Any, eps: float) -> Any:
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps)

    def l2(x: Any, eps: float) -> Any:
        return x / torch.clamp((x * x).sum(-1, keepdim=True).sqrt(), min=eps)

    def get(table: Any, rows: Any) -> Any:
        return table[torch.tensor(rows)]

    return {
        "sum": lambda x, axis, keep: x.sum(axis, keepdim=keep),
        "mean": lambda x, axis, keep: x.mean(axis, keepdim=keep),
        "sum_rows": lambda x: x.sum(-1, keepdim=True),
        "mean_rows": lambda x: x.mean(-1, keepdim=True),
        "cumsum": lambda x: x.cumsum(-1),
        "norm": lambda x, eps: f.layer_norm(x, x.shape[-1:], eps=eps),
        "rms_norm": rms,
        "l2_norm": l2,
        "group_norm": group_norm,
        "soft_max": lambda x, _, scale: torch.softmax(x * scale, -1),
        "matmul": torch.matmul,
        "mul_mat": lambda w, x: x @ w.transpose(-1, -2),
        "linear": f.linear,
        "out_prod": lambda a, b: b.transpose(-1, -2) @ a,
        "get_rows": get,
        "cross_entropy": lambda x, targets: f.cross_entropy(x, torch.tensor(targets)),
        "add_id": lambda x, table, rows: x + get(table, rows),
        "mul_mat_id": lambda w, x, rows: (get(w, rows) @ x[..., None])[..., 0],
        "tri": lambda x, part: getattr(torch, "tril" if "lower" in part else "triu")(
            x, {"strictly_lower": -1, "strictly_upper": 1}.get(part, 0)
        ),
        "diag": torch.diag,
        "diag_mask_zero": torch.tril,
        "solve_tri": lambda a, b: torch.linalg.solve_triangular(a.tril(), b, upper=False),
    }


@_TORCH.append
def _torch_places(torch: Any) -> dict[str, Fn]:
    f = torch.nn.functional

    def pad(x: Any, widths: Any) -> Any:
        return f.pad(x, [n for pair in reversed(widths) for n in pair])

    def reflect(x: Any, before: int, after: int) -> Any:
        n = x.shape[-1]
        at = [*range(before, 0, -1), *range(n), *range(n - 2, n - 2 - after, -1)]
        return x[..., at]

    def put(x: Any, part: Any, start: Any, add: bool) -> Any:
        at = tuple(slice(a, a + n) for a, n in zip(start, part.shape, strict=True))
        out = x.clone()
        out[at] = out[at] + part if add else part
        return out

    def repeat(x: Any, shape: Any) -> Any:
        return x.repeat(*(a // b for a, b in zip(shape, x.shape, strict=True)))

    return {
        "permute": lambda x, axes: x.permute(*axes),
        "transpose": torch.transpose,
        "reshape": torch.reshape,
        "getitem": lambda x, index: x[_cut(index)],
        "cont": lambda x: x,
        "concat": lambda *given: torch.cat(given[:-1], given[-1]),
        "repeat": repeat,
        "broadcast_to": lambda x, shape: x.expand(*shape),
        "pad": pad,
        "pad_reflect": reflect,
        "roll": lambda x, shifts: torch.roll(x, shifts, tuple(range(len(shifts)))),
        "set": lambda x, part, start: put(x, part, start, add=False),
        "acc": lambda x, part, start: put(x, part, start, add=True),
    }


@_TORCH.append
def _torch_images(torch: Any) -> dict[str, Fn]:
    f = torch.nn.functional

    def attention(q: Any, k: Any, v: Any, causal: bool, softcap: float) -> Any:
        n = q.shape[1] // k.shape[1]
        k, v = (x.repeat_interleave(n, 1) for x in (k, v))
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        if softcap:
            scores = softcap * torch.tanh(scores / softcap)
        if causal:
            scores = scores + torch.from_numpy(_causal(q.shape[-2])).to(scores)
        return (torch.softmax(scores, -1) @ v).transpose(1, 2)

    def rope(x: Any, n: int, mode: str) -> Any:
        t = torch.arange(x.shape[-3]).to(x)[:, None, None]
        angle = t * 10000.0 ** (-2 * torch.arange(n // 2).to(x) / n)
        cos, sin = angle.cos(), angle.sin()
        if mode == "neox":
            a, b = x.chunk(2, -1)
            return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)

    def depthwise(x: Any, w: Any, stride: int, padding: int) -> Any:
        return f.conv2d(x, w, None, stride, padding, groups=x.shape[1])

    def upscale(x: Any, factor: int, mode: str) -> Any:
        more = {} if mode == "nearest" else {"align_corners": False}
        return f.interpolate(x, scale_factor=factor, mode=mode, **more)

    return {
        **{"attention": attention, "rope": rope, "conv_2d_dw": depthwise, "upscale": upscale},
        "conv_1d": lambda x, w, stride, padding: f.conv1d(x, w, None, stride, padding),
        **dict.fromkeys(
            ("conv_2d", "conv_2d_direct"),
            lambda x, w, stride, padding: f.conv2d(x, w, None, stride, padding),
        ),
        "conv_transpose_2d": lambda x, w, stride: f.conv_transpose2d(x, w, None, stride),
        "avg_pool": lambda x, stride: f.avg_pool2d(x, 2, stride),
        "max_pool": lambda x, stride: f.max_pool2d(x, 2, stride),
        "interpolate": lambda x, size: f.interpolate(x, size, mode="bilinear"),
    }
