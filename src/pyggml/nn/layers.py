# SPDX-License-Identifier: MIT
"""The basic layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from .. import checks, ops
from ..errors import ShapeError
from ..ops.operands import need_tensor
from ..tensors import Tensor, without_gradient
from . import functional, init
from .functional.norms import F32_EPS, normalized
from .module import Module, Parameter

__all__ = [
    "Elementwise",
    "GELU",
    "Dropout",
    "Embedding",
    "LayerNorm",
    "Linear",
    "RMSNorm",
    "ReLU",
    "SiLU",
    "Tanh",
]


class Linear(Module):
    """Multiply by a trained matrix and add a trained bias.

    y = x @ weight.T + bias

    Args:
        in_features: width of the input.
        out_features: width of the output.
        bias: learn a bias.
        init_weight: initialiser; None is uniform within 1 / sqrt(in_features), as is the bias.

    Shape:
        x (..., in_features) -> (..., out_features)

    Raises:
        TypeError: an argument is of a wrong kind.
        ValueError: a width is below 1, or init_weight returns another shape.

    Example:
        >>> Linear(4, 3)(ones((2, 4))).shape
        (2, 3)
    """

    RECORDS_LITTLE = True

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        init_weight: init.Initializer | None = None,
    ) -> None:
        in_features, out_features = check_sizes(
            "Linear", in_features=in_features, out_features=out_features
        )
        learns_bias = checks.flag("Linear", "bias", bias)
        bound = 1.0 / math.sqrt(in_features)
        first = (out_features,) if learns_bias else None
        weight, start = drawn("Linear", init_weight, bound, (out_features, in_features), first)
        self.weight = Parameter(weight)
        self.bias = None if start is None else Parameter(start)

    @property
    def in_features(self) -> int:
        """Width of the input."""
        return self.weight.shape[1]

    @property
    def out_features(self) -> int:
        """Width of the output."""
        return self.weight.shape[0]

    def forward(self, x: Tensor) -> Tensor:
        """Return `x @ weight.T + bias`."""
        return functional.linear(x, self.weight, self.bias)


class Embedding(Module):
    """A trained vector for every index.

    Args:
        num_embeddings: how many vectors.
        embedding_dim: width of a vector.
        padding_idx: index of a vector that begins as zeros and gets no gradient.
        init_weight: initialiser; None is the standard normal.

    Shape:
        ids (...) i32, at most 3-d -> (..., dim)

    Raises:
        TypeError: a size is not a whole number.
        ValueError: a size is below 1, or there is no vector padding_idx.

    Source: ggml_get_rows; torch.nn.Embedding.

    Example:
        >>> Embedding(10, 4)(tensor([1, 2])).shape
        (2, 4)
    """

    RECORDS_LITTLE = True

    # Optimizer groups may leave embedding tables undecayed; they ask for this name.
    is_embedding: ClassVar[bool] = True

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        *,
        init_weight: init.Initializer | None = None,
    ) -> None:
        who = "Embedding"
        shape = check_sizes(who, num_embeddings=num_embeddings, embedding_dim=embedding_dim)
        weight = initial(who, init.normal(1.0) if init_weight is None else init_weight, shape)
        self.padding_idx = None
        if padding_idx is not None:
            given = checks.whole(who, "padding_idx", padding_idx, -shape[0], shape[0] - 1)
            self.padding_idx = given % shape[0]
            weight[self.padding_idx] = 0.0
        self.weight = Parameter(weight)

    @property
    def num_embeddings(self) -> int:
        """Number of vectors."""
        return self.weight.shape[0]

    @property
    def embedding_dim(self) -> int:
        """Width of a vector."""
        return self.weight.shape[1]

    def forward(self, ids: Tensor) -> Tensor:
        """Return the vectors at `ids`."""
        found = ops.get_rows(self.weight, ids)
        if self.padding_idx is None:
            return found
        padding = ops.unsqueeze(ops.eq(ids, self.padding_idx), -1)
        return ops.where(padding, without_gradient(found), found)


class LayerNorm(Module):
    """Normalise over the last axes, then scale and add a bias; see `functional.layer_norm`.

    Args:
        normalized_shape: extents of the last axes, or of the last one.
        eps: added to the variance, > 0.
        elementwise_affine: learn a scale and, with `bias`, a bias.
        bias: learn a bias.

    Shape:
        x (..., *normalized_shape) -> as x

    Raises:
        TypeError: an argument is of a wrong kind.
        ShapeError: an extent is below 1, or x does not end in them.
        ValueError: eps is not positive.

    Example:
        >>> LayerNorm(4)(ones((2, 4))).shape
        (2, 4)
    """

    RECORDS_LITTLE = True

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
    ) -> None:
        who = "LayerNorm"
        self.normalized_shape = shape = normalized(who, normalized_shape)
        learns_scale = checks.flag(who, "elementwise_affine", elementwise_affine)
        learns_bias = checks.flag(who, "bias", bias) and learns_scale
        self.eps = check_eps(who, eps)
        self.weight = Parameter(init.constant(1.0)(shape)) if learns_scale else None
        self.bias = Parameter(init.constant(0.0)(shape)) if learns_bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalised, scaled and shifted `x`."""
        return functional.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm(Module):
    """Divide by the root mean square over the last axes, then scale; see `functional.rms_norm`.

    Args:
        normalized_shape: extents of the last axes, or of the last one.
        eps: added to the mean square, > 0; None is 2^-23, as in PyTorch.
        offset: the scale is 1 + weight, as Gemma has it, and the weight begins at 0.

    Shape:
        x (..., *normalized_shape) -> as x

    Raises:
        TypeError: an argument is of a wrong kind.
        ShapeError: an extent is below 1, or x does not end in them.
        ValueError: eps is not positive.

    Example:
        >>> RMSNorm(4)(ones((2, 4))).shape
        (2, 4)
    """

    RECORDS_LITTLE = True

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        offset: bool = False,
    ) -> None:
        self.normalized_shape = normalized("RMSNorm", normalized_shape)
        self.eps = F32_EPS if eps is None else check_eps("RMSNorm", eps)
        self.offset = checks.flag("RMSNorm", "offset", offset)
        first = init.constant(0.0 if self.offset else 1.0)
        self.weight = Parameter(first(self.normalized_shape))

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalised and scaled `x`."""
        scale = self.weight + 1.0 if self.offset else self.weight
        return functional.rms_norm(x, self.normalized_shape, scale, self.eps)


class GELU(Module):
    """x * Phi(x), the normal distribution's.

    Args:
        approximate: "none", or "tanh" for the formula that GPT-2 has.

    Raises:
        TypeError: approximate is not a str.
        ValueError: approximate is neither.

    Source: Hendrycks and Gimpel 2016, arXiv:1606.08415.
    """

    RECORDS_LITTLE = True

    def __init__(self, approximate: str = "none") -> None:
        self.approximate = checks.choice("GELU", "approximate", approximate, ("tanh", "none"))

    def forward(self, x: Tensor) -> Tensor:
        """Return gelu(x)."""
        return ops.gelu(x) if self.approximate == "tanh" else ops.gelu_erf(x)


class Elementwise(Module):
    """A function of each element; `inplace` is taken as PyTorch takes it, and makes no difference.

    Raises:
        TypeError: inplace is not True or False.
    """

    RECORDS_LITTLE = True

    def __init__(self, inplace: bool = False) -> None:
        checks.flag(type(self).__name__, "inplace", inplace)


class SiLU(Elementwise):
    """x * sigmoid(x).

    Source: Elfwing et al. 2017, arXiv:1702.03118.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return silu(x)."""
        return ops.silu(x)


class ReLU(Elementwise):
    """max(x, 0)."""

    def forward(self, x: Tensor) -> Tensor:
        """Return relu(x)."""
        return ops.relu(x)


class Tanh(Module):
    """Hyperbolic tangent."""

    RECORDS_LITTLE = True

    def forward(self, x: Tensor) -> Tensor:
        """Return tanh(x)."""
        return ops.tanh(x)


def check_sizes(where: str, **sizes: int) -> tuple[int, ...]:
    """Return the sizes, which must be whole numbers of at least one, as Python's."""
    return tuple(checks.whole(where, name, value, 1) for name, value in sizes.items())


def drawn(
    who: str, init_weight: Any, bound: float, shape: tuple[int, ...], bias: tuple[int] | None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the initial numbers of a weight and of a bias, if there is one.

    Without an initialiser both are uniform within the bound; with one the bias is zero.
    """
    default = init.uniform(-bound, bound)
    weight = initial(who, default if init_weight is None else init_weight, shape)
    if bias is None:
        return weight, None
    return weight, (default if init_weight is None else init.constant(0.0))(bias)


def initial(who: str, init_weight: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return the numbers of an initialiser, which must be of the shape that it is given."""
    fill = checks.function(who, "init_weight", init_weight, "shape -> array")
    found = checks.array(who, "the result of init_weight", fill(shape))
    if found.shape != shape:
        raise ShapeError(
            f"{who}: the result of init_weight must have shape {shape}; got {found.shape}"
        )
    return found


def check_eps(where: str, eps: float) -> float:
    """Return `eps`, which must be positive and finite in f32."""
    return checks.f32(where, "eps", eps, above=0.0)


class Dropout(Module):
    """Set elements to 0 at random while training, and divide the others by 1 - p.

    Compiled functions and training steps draw a new mask at each run; see `ops.dropout`. The mode
    is `Module.training`: that of `train` and `eval`, or the one that a computation such as
    `evaluate` sets for its thread (`nn/mode.py`).

    Args:
        p: probability that an element is dropped.
        inplace: taken as PyTorch takes it; the result is a new tensor.

    Shape:
        x any -> as x

    Raises:
        TypeError: p is not a number.
        ValueError: p is not from 0 to below 1.

    Source: ggml_dropout; Srivastava et al. 2014.

    Example:
        >>> Dropout(0.1).eval()(ones((2,))).tolist()
        [1.0, 1.0]
    """

    RECORDS_LITTLE = True

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        checks.flag("Dropout", "inplace", inplace)
        # Above, p is 1 in f32, and 1 / (1 - p) infinite.
        self.p = checks.number("Dropout", "p", p, 0.0, below=1 - 2**-24)

    def forward(self, x: Tensor) -> Tensor:
        """Return x; while training, with elements dropped."""
        need_tensor("Dropout", "x", x)
        # A property of Module, which asks nn/mode.py before the module's own flag.
        return ops.dropout(x, self.p) if self.p > 0 and self.training else x
