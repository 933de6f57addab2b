# SPDX-License-Identifier: MIT
"""Activations made of pieces as modules, under PyTorch's names."""

from __future__ import annotations

from ... import checks, ops
from ...tensors import Tensor
from .. import functional
from ..init import constant
from ..layers import Elementwise, check_sizes
from ..module import Module, Parameter
from .smooth import Softmax

__all__ = [
    "CELU",
    "GLU",
    "Hardshrink",
    "Hardtanh",
    "LogSigmoid",
    "PReLU",
    "SELU",
    "Softmin",
    "Softshrink",
    "Softsign",
    "Tanhshrink",
    "Threshold",
]


class Hardtanh(Elementwise):
    """x held between two numbers.

    Args:
        min_val: the least.
        max_val: the most.
        inplace: taken as PyTorch takes it; the result is a new tensor.

    Raises:
        TypeError: an end is not a number.
        ValueError: min_val is not below max_val.
    """

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.min_val = checks.number("Hardtanh", "min_val", min_val)
        self.max_val = checks.number("Hardtanh", "max_val", max_val, above=self.min_val)

    def forward(self, x: Tensor) -> Tensor:
        """Return hardtanh(x)."""
        return functional.hardtanh(x, self.min_val, self.max_val)


class Hardshrink(Module):
    """x where |x| is above lambd, and 0 elsewhere.

    Args:
        lambd: the end of what becomes 0.

    Raises:
        TypeError: lambd is not a number.
    """

    RECORDS_LITTLE = True

    def __init__(self, lambd: float = 0.5) -> None:
        self.lambd = checks.number("Hardshrink", "lambd", lambd)

    def forward(self, x: Tensor) -> Tensor:
        """Return hardshrink(x)."""
        return functional.hardshrink(x, self.lambd)


class Softshrink(Module):
    """x moved towards 0 by lambd, and 0 where |x| is at most lambd.

    Args:
        lambd: how far, >= 0.

    Raises:
        ValueError: lambd is below 0.
    """

    RECORDS_LITTLE = True

    def __init__(self, lambd: float = 0.5) -> None:
        self.lambd = checks.number("Softshrink", "lambd", lambd, 0)

    def forward(self, x: Tensor) -> Tensor:
        """Return softshrink(x)."""
        return functional.softshrink(x, self.lambd)


class Threshold(Elementwise):
    """x where it is above a threshold, and a value elsewhere.

    Args:
        threshold: what x must exceed.
        value: what is there otherwise.
        inplace: taken as PyTorch takes it; the result is a new tensor.

    Raises:
        TypeError: an argument is not a number.
    """

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.threshold = checks.number("Threshold", "threshold", threshold)
        self.value = checks.number("Threshold", "value", value)

    def forward(self, x: Tensor) -> Tensor:
        """Return threshold(x)."""
        return functional.threshold(x, self.threshold, self.value)


class PReLU(Module):
    """x above 0, a trained factor times x below.

    Args:
        num_parameters: 1, or the number of channels, each with a factor of its own.
        init: the first factor.

    Shape:
        x (N, C, ...) -> as x

    Raises:
        ValueError: num_parameters is below 1.

    Source: He et al. 2015, arXiv:1502.01852.

    Example:
        >>> PReLU()(tensor([-2.0, 2.0])).tolist()
        [-0.5, 2.0]
    """

    RECORDS_LITTLE = True

    def __init__(self, num_parameters: int = 1, init: float = 0.25) -> None:
        (count,) = check_sizes("PReLU", num_parameters=num_parameters)
        self.weight = Parameter(constant(checks.f32("PReLU", "init", init))((count,)))

    def forward(self, x: Tensor) -> Tensor:
        """Return prelu(x)."""
        return functional.prelu(x, self.weight)


class SELU(Elementwise):
    """ELU times a number, with which mean and variance keep 0 and 1.

    Source: Klambauer et al. 2017, arXiv:1706.02515.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return selu(x)."""
        return functional.selu(x)


class CELU(Elementwise):
    """x above 0, alpha · (exp(x / alpha) - 1) below.

    Args:
        alpha: above 0.
        inplace: taken as PyTorch takes it; the result is a new tensor.

    Raises:
        ValueError: alpha is not above 0.

    Source: Barron 2017, arXiv:1704.07483.
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.alpha = checks.number("CELU", "alpha", alpha, above=0)

    def forward(self, x: Tensor) -> Tensor:
        """Return celu(x)."""
        return functional.celu(x, self.alpha)


class GLU(Module):
    """The first half of an axis times the sigmoid of the second.

    Args:
        dim: the axis.

    Raises:
        TypeError: dim is not a whole number.

    Source: Dauphin et al. 2016, arXiv:1612.08083.
    """

    RECORDS_LITTLE = True

    def __init__(self, dim: int = -1) -> None:
        self.dim = checks.whole("GLU", "dim", dim)

    def forward(self, x: Tensor) -> Tensor:
        """Return glu(x)."""
        return functional.glu(x, self.dim)


class LogSigmoid(Module):
    """Logarithm of the sigmoid, without overflow."""

    RECORDS_LITTLE = True

    def forward(self, x: Tensor) -> Tensor:
        """Return logsigmoid(x)."""
        return ops.logsigmoid(x)


class Softsign(Module):
    """x / (1 + |x|)."""

    RECORDS_LITTLE = True

    def forward(self, x: Tensor) -> Tensor:
        """Return softsign(x)."""
        return functional.softsign(x)


class Tanhshrink(Module):
    """x - tanh(x)."""

    RECORDS_LITTLE = True

    def forward(self, x: Tensor) -> Tensor:
        """Return tanhshrink(x)."""
        return functional.tanhshrink(x)


class Softmin(Softmax):
    """Softmax of -x along an axis.

    Args:
        dim: the axis; None is the last one.

    Raises:
        TypeError: dim is not a whole number.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return softmin(x)."""
        return functional.softmin(x, self.dim)
