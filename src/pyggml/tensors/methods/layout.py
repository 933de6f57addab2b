# SPDX-License-Identifier: MIT
"""`Tensor`'s methods that move, cut and multiply, under PyTorch's names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...errors import ShapeError, composed
from ..operators import HIGHER, Operators, signatures_told

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["LayoutMethods"]

Whole = int  # `int` is a method here


def _shape(given: tuple[Any, ...]) -> Any:
    """Take reshape(2, 3) and reshape((2, 3))."""
    alone = len(given) == 1 and not isinstance(given[0], Whole)
    return given[0] if alone else given


@signatures_told
class LayoutMethods(Operators):
    """The methods of shapes, parts and products, each of which `pyggml.ops` describes."""

    __slots__ = ()

    def reshape(self, *shape: Any) -> Self:
        """Return the elements in another shape; one extent may be -1."""
        return HIGHER["reshape"](self, _shape(shape))

    @composed
    def view(self, *shape: Any) -> Self:
        """Return the elements in another shape, copied only when they are out of order."""
        return HIGHER["reshape"](self, _shape(shape))

    def flatten(self, start_dim: Whole = 0, end_dim: Whole = -1) -> Self:
        """Make one axis of several."""
        return HIGHER["flatten"](self, start_dim, end_dim)

    def unflatten(self, dim: Whole, sizes: Sequence[Whole]) -> Self:
        """Make several axes of one."""
        return HIGHER["unflatten"](self, dim, sizes)

    def squeeze(self, dim: Whole | Sequence[Whole] | None = None) -> Self:
        """Take axes of extent one away."""
        return HIGHER["squeeze"](self, dim)

    def unsqueeze(self, dim: Whole) -> Self:
        """Give an axis of extent one."""
        return HIGHER["unsqueeze"](self, dim)

    def permute(self, *axes: Any) -> Self:
        """Reorder the axes, as NumPy's transpose."""
        return HIGHER["permute"](self, _shape(axes) if axes else axes)

    def transpose(self, dim0: Whole, dim1: Whole) -> Self:
        """Swap two axes."""
        return HIGHER["transpose"](self, dim0, dim1)

    @composed
    def t(self) -> Self:
        """Swap the axes of a matrix; a vector or a scalar stays as it is."""
        if len(self.shape) > 2:  # type: ignore[attr-defined]
            shape = self.shape  # type: ignore[attr-defined]
            raise ShapeError(f"t: x must have at most two axes; got {shape}: use x.mT, or x.T")
        return self.T

    @property
    @composed
    def T(self) -> Self:
        """All axes in reverse order, as in NumPy; `mT` swaps the last two."""
        n = len(self.shape)  # type: ignore[attr-defined]
        return self if n < 2 else HIGHER["permute"](self, tuple(range(n - 1, -1, -1)))

    @property
    @composed
    def mT(self) -> Self:
        """The last two axes swapped; see `T`."""
        return HIGHER["transpose"](self, -1, -2)

    @composed
    def expand(self, *shape: Any) -> Self:
        """Stretch extents of one, copying; -1 keeps an extent."""
        wanted = _shape(shape)
        if isinstance(wanted, (list, tuple)):
            more = len(wanted) - len(self.shape)  # type: ignore[attr-defined]
            kept = [*(0,) * more, *self.shape]  # type: ignore[attr-defined]
            wanted = [k if n == -1 else n for n, k in zip(wanted, kept, strict=False)]
        return HIGHER["broadcast_to"](self, wanted)

    @composed
    def repeat(self, *repeats: Any) -> Self:
        """Repeat along each axis that often."""
        return HIGHER["tile"](self, _shape(repeats))

    def split(self, sizes: Whole | Sequence[Whole], dim: Whole = 0) -> list[Self]:
        """Cut into parts along an axis."""
        return HIGHER["split"](self, sizes, dim)

    def chunk(self, chunks: Whole, dim: Whole = 0) -> list[Self]:
        """Cut into a number of parts along an axis."""
        return HIGHER["chunk"](self, chunks, dim)

    def unbind(self, dim: Whole = 0) -> list[Self]:
        """The parts along an axis, without it."""
        return HIGHER["unbind"](self, dim)

    def narrow(self, dim: Whole, start: Whole, length: Whole) -> Self:
        """Some elements of an axis."""
        return HIGHER["narrow"](self, dim, start, length)

    def flip(self, *dims: Any) -> Self:
        """Reverse the order along axes."""
        return HIGHER["flip"](self, _shape(dims))

    def gather(self, dim: Whole, index: Any) -> Self:
        """The elements along an axis that an index names at each place."""
        return HIGHER["gather"](self, dim, index)

    def index_select(self, dim: Whole, index: Any) -> Self:
        """The elements of an axis with these numbers."""
        return HIGHER["index_select"](self, dim, index)

    def cumsum(self, dim: Whole = -1) -> Self:
        """Running sums along an axis."""
        return HIGHER["cumsum"](self, dim)

    def matmul(self, other: Any) -> Self:
        """Matrix product."""
        return HIGHER["matmul"](self, other)

    def mm(self, other: Any) -> Self:
        """Product of two matrices."""
        return HIGHER["mm"](self, other)

    def bmm(self, other: Any) -> Self:
        """Products of a batch of matrices."""
        return HIGHER["bmm"](self, other)

    def mv(self, other: Any) -> Self:
        """Product with a vector."""
        return HIGHER["mv"](self, other)

    def dot(self, other: Any) -> Self:
        """Sum of the products of two vectors' elements."""
        return HIGHER["dot"](self, other)

    def outer(self, other: Any) -> Self:
        """All products of two vectors' elements."""
        return HIGHER["outer"](self, other)

    @composed
    def contiguous(self) -> Self:
        """Return the tensor with its elements in order in memory."""
        return HIGHER["cont"](self)

    @composed
    def astype(self, dtype: Any) -> Self:
        """Return the numbers in another dtype."""
        return HIGHER["convert"](self, dtype)

    @composed
    def float(self) -> Self:
        """Return the numbers as f32."""
        return HIGHER["convert"](self, "f32")

    @composed
    def half(self) -> Self:
        """Return the numbers as f16."""
        return HIGHER["convert"](self, "f16")

    @composed
    def bfloat16(self) -> Self:
        """Return the numbers as bf16."""
        return HIGHER["convert"](self, "bf16")

    @composed
    def int(self) -> Self:
        """Return the numbers as i32, without what is behind the point."""
        return HIGHER["convert"](self, "i32")
