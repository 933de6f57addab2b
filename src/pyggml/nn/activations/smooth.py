# SPDX-License-Identifier: MIT
"""Activations as modules, under PyTorch's names."""

from __future__ import annotations

from typing import Any

from ... import checks, ops
from ...ops.operands import need_tensor
from ...tensors import Tensor
from .. import functional
from ..layers import Elementwise
from ..module import Module

__all__ = [
    "ELU",
    "Hardsigmoid",
    "Hardswish",
    "Identity",
    "LeakyReLU",
    "LogSoftmax",
    "Mish",
    "ReLU6",
    "Sigmoid",
    "Softmax",
    "Softplus",
]


class Identity(Module):
    """Return what it is given; arguments are taken and not used.

    Example:
        >>> Identity()(ones((2,))).tolist()
        [1.0, 1.0]
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def forward(self, x: Any) -> Any:
        """Return x."""
        return x


class Sigmoid(Module):
    """1 / (1 + exp(-x))."""

    def forward(self, x: Tensor) -> Tensor:
        """Return sigmoid(x)."""
        return ops.sigmoid(x)


class Softmax(Module):
    """exp(x) divided by its sum along an axis.

    Args:
        dim: the axis; None is the last one.

    Raises:
        TypeError: dim is not a whole number.

    Example:
        >>> Softmax(dim=1)(zeros((1, 2))).tolist()
        [[0.5, 0.5]]
    """

    def __init__(self, dim: int | None = None) -> None:
        self.dim = -1 if dim is None else checks.whole(type(self).__name__, "dim", dim)

    def forward(self, x: Tensor) -> Tensor:
        """Return softmax(x)."""
        return ops.softmax(x, self.dim)


class LogSoftmax(Softmax):
    """Logarithm of the softmax along an axis.

    Args:
        dim: the axis; None is the last one.

    Raises:
        TypeError: dim is not a whole number.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return log_softmax(x)."""
        return ops.log_softmax(need_tensor("LogSoftmax", "x", x), self.dim)


class LeakyReLU(Elementwise):
    """x above 0, negative_slope · x below.

    Args:
        negative_slope: factor of what is below 0.
        inplace: taken as PyTorch takes it; the result is a new tensor.

    Raises:
        TypeError: negative_slope is not a number.

    Source: Maas et al. 2013.
    """

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.negative_slope = checks.number("LeakyReLU", "negative_slope", negative_slope)

    def forward(self, x: Tensor) -> Tensor:
        """Return leaky_relu(x)."""
        return functional.leaky_relu(x, self.negative_slope)


class ELU(Elementwise):
    """x above 0, alpha · (exp(x) - 1) below.

    Args:
        alpha: factor of what is below 0.
        inplace: taken as PyTorch takes it; the result is a new tensor.

    Raises:
        TypeError: alpha is not a number.

    Source: Clevert et al. 2015, arXiv:1511.07289.
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.alpha = checks.number("ELU", "alpha", alpha)

    def forward(self, x: Tensor) -> Tensor:
        """Return elu(x)."""
        return functional.elu(x, self.alpha)


class Softplus(Module):
    """log(1 + exp(beta · x)) / beta.

    Args:
        beta: above 0.

    Raises:
        ValueError: beta is not above 0.
    """

    def __init__(self, beta: float = 1.0) -> None:
        self.beta = checks.number("Softplus", "beta", beta, above=0)

    def forward(self, x: Tensor) -> Tensor:
        """Return softplus(x)."""
        return functional.softplus(x, self.beta)


class Hardsigmoid(Elementwise):
    """min(max(x + 3, 0), 6) / 6.

    Source: ggml_hardsigmoid.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return hardsigmoid(x)."""
        return ops.hardsigmoid(x)


class Hardswish(Elementwise):
    """x · min(max(x + 3, 0), 6) / 6.

    Source: Howard et al. 2019, arXiv:1905.02244.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return hardswish(x)."""
        return ops.hardswish(x)


class Mish(Elementwise):
    """x · tanh(log(1 + exp(x))).

    Source: Misra 2019, arXiv:1908.08681.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return mish(x)."""
        return functional.mish(x)


class ReLU6(Elementwise):
    """min(max(x, 0), 6).

    Source: torch.nn.ReLU6.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return relu6(x)."""
        return functional.relu6(x)
