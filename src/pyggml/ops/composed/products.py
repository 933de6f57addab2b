# SPDX-License-Identifier: MIT
"""Products under PyTorch's names, and sums of products by letters."""

from __future__ import annotations

import math
from string import ascii_letters
from typing import Any

from ...errors import ShapeError, composed, shown
from ...tensors.on_demand import on_demand
from ...tensors.storage import MAX_DIMS
from ...tensors.tensor import Tensor
from ..elementwise import mul
from ..matrices import matmul
from ..operands import need_float, need_ndim
from ..reductions import sum
from ..shape import permute, reshape

__all__ = ["bmm", "dot", "einsum", "mm", "mv", "outer"]


def _ranks(who: str, a: Any, b: Any, rank_a: int, rank_b: int) -> None:
    need_ndim(who, "a", need_float(who, "a", a), rank_a)
    need_ndim(who, "b", need_float(who, "b", b), rank_b)


@on_demand
@composed
def mm(a: Tensor, b: Tensor) -> Tensor:
    """Matrix product (N, K) @ (K, M); see `matmul`."""
    _ranks("mm", a, b, 2, 2)
    return matmul(a, b)


@on_demand
@composed
def bmm(a: Tensor, b: Tensor) -> Tensor:
    """Matrix products of a batch, (B, N, K) @ (B, K, M); see `matmul`."""
    _ranks("bmm", a, b, 3, 3)
    if a.shape[0] != b.shape[0]:
        raise ShapeError(f"bmm: a and b must have one batch; got {a.shape} and {b.shape}")
    return matmul(a, b)


@on_demand
@composed
def mv(a: Tensor, b: Tensor) -> Tensor:
    """Product of a matrix and a vector, (N, K) @ (K,); see `matmul`."""
    _ranks("mv", a, b, 2, 1)
    return matmul(a, b)


@on_demand
@composed
def dot(a: Tensor, b: Tensor) -> Tensor:
    """Sum of the products of two vectors' elements; see `matmul`."""
    _ranks("dot", a, b, 1, 1)
    return matmul(a, b)


@on_demand
@composed
def outer(a: Tensor, b: Tensor) -> Tensor:
    """Return all products of two vectors' elements, (N,) and (M,) -> (N, M).

    Example:
        >>> outer(tensor([1.0, 2.0]), tensor([3.0, 4.0])).tolist()
        [[3.0, 4.0], [6.0, 8.0]]
    """
    _ranks("outer", a, b, 1, 1)
    return mul(reshape(a, (a.numel(), 1)), reshape(b, (1, b.numel())))


@on_demand
@composed
def einsum(equation: str, *operands: Tensor) -> Tensor:
    """Sum products of elements over the axes that the result does not name.

    Args:
        equation: a letter for each axis of each operand, and of the result: "bij,bjk->bik".
            Without an arrow, the letters that occur once, in the alphabet's order. `...` stands for
            the axes of an operand that have no letter, and comes first where there is no arrow.
        operands: f32; more than two are multiplied from left to right.

    Raises:
        ShapeError: the letters do not fit the shapes, an operand has a letter twice, or a product
            would have more than four axes.
        ValueError: the equation is none.

    Source: torch.einsum; ggml_mul_mat.

    Example:
        >>> einsum("ij,jk->ik", ones((2, 3)), ones((3, 4))).tolist()
        [[3.0, 3.0, 3.0, 3.0], [3.0, 3.0, 3.0, 3.0]]
    """
    inputs, result = _letters(_spelt_out(equation, operands), len(operands))
    extents: dict[str, int] = {}
    for i, (letters, x) in enumerate(zip(inputs, operands, strict=True)):
        need_float("einsum", f"operands[{i}]", x)
        if len(letters) != x.ndim or len(set(letters)) != len(letters):
            raise ShapeError(
                f"einsum: {letters!r} must name each of the {x.ndim} axes of operand {i} once"
            )
        for letter, n in zip(letters, x.shape, strict=True):
            if extents.setdefault(letter, n) != n:
                raise ShapeError(
                    f"einsum: axis {letter!r} must have one extent; got {extents[letter]} and {n}"
                )
    if set(result) - set(extents) or len(set(result)) != len(result):
        raise ShapeError(f"einsum: {result!r} must name axes of the operands, each once")
    left, x = inputs[0], operands[0]
    for i, (right, y) in enumerate(zip(inputs[1:], operands[1:], strict=True), 1):
        kept = {*result, *"".join(inputs[i + 1 :])}
        left, x = _product(left, x, right, y, kept)
    left, x = _summed(left, x, set(result))
    return permute(x, [left.index(letter) for letter in result])


def _spelt_out(equation: Any, operands: tuple[Any, ...]) -> Any:
    """Return the equation with letters of their own for the axes that `...` stands for."""
    if not isinstance(equation, str) or "..." not in equation:
        return equation
    left, arrow, result = equation.replace(" ", "").partition("->")
    inputs = left.split(",")
    if len(inputs) != len(operands):
        return left.replace("...", "")  # whose number is told
    free = [c for c in ascii_letters if c not in equation]
    counts = [
        need_float("einsum", f"operands[{i}]", x).ndim - len(letters.replace("...", ""))
        for i, (letters, x) in enumerate(zip(inputs, operands, strict=True))
        if "..." in letters
    ]
    for count in counts:
        if not 0 <= count <= MAX_DIMS:
            raise ShapeError(
                f"einsum: an operand of {shown(equation)} must have an axis for each letter; got"
                f" {count} axes for '...'"
            )
    most = max(counts, default=0)
    dots = free[:most]
    named = left.replace("...", "").replace(",", "")
    counted = iter(counts)
    inputs = [
        each.replace("...", "".join(dots[most - next(counted) :])) if "..." in each else each
        for each in inputs
    ]
    if not arrow:
        result = "..." + "".join(sorted(c for c in set(named) if named.count(c) == 1))
    return f"{','.join(inputs)}->{result.replace('...', ''.join(dots))}"


def _letters(equation: Any, count: int) -> tuple[list[str], str]:
    text = equation.replace(" ", "") if isinstance(equation, str) else ""
    left, arrow, result = text.partition("->")
    inputs = left.split(",")
    plain = "".join(inputs) + result
    if not text or (plain and not (plain.isalpha() and plain.isascii())):
        raise ValueError(
            f"einsum: equation must be letters such as 'ij,jk->ik'; got {shown(equation)}"
        )
    if len(inputs) != count:
        raise ValueError(f"einsum: equation must name {count} operands; got {shown(equation)}")
    if not arrow:
        joined = "".join(inputs)
        result = "".join(sorted(c for c in set(joined) if joined.count(c) == 1))
    return inputs, result


def _summed(letters: str, x: Tensor, kept: set[str]) -> tuple[str, Tensor]:
    """Sum over the axes that nothing asks for."""
    gone = [i for i, letter in enumerate(letters) if letter not in kept]
    if not gone:
        return letters, x
    return "".join(c for c in letters if c in kept), sum(x, tuple(gone))


def _product(left: str, x: Tensor, right: str, y: Tensor, kept: set[str]) -> tuple[str, Tensor]:
    """Multiply two operands, and sum over the letters that only these two have."""
    left, x = _summed(left, x, kept | set(right))
    right, y = _summed(right, y, kept | set(left))
    both = [c for c in left if c in right]
    batch, inner = [c for c in both if c in kept], [c for c in both if c not in kept]
    rows, columns = [c for c in left if c not in right], [c for c in right if c not in left]
    letters = "".join([*batch, *rows, *columns])
    if len(letters) > MAX_DIMS:
        raise ShapeError(
            f"einsum: the product of {left!r} and {right!r} must have at most {MAX_DIMS} axes;"
            f" got {letters!r}"
        )
    extents = {**dict(zip(left, x.shape, strict=True)), **dict(zip(right, y.shape, strict=True))}

    def grouped(letters: str, x: Tensor, *groups: list[str]) -> Tensor:
        order = [letters.index(c) for group in groups for c in group]
        return reshape(permute(x, order), [math.prod(extents[c] for c in g) for g in groups])

    product = matmul(grouped(left, x, batch, rows, inner), grouped(right, y, batch, inner, columns))
    return letters, reshape(product, [extents[c] for c in letters])
