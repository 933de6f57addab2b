# SPDX-License-Identifier: MIT
"""Train neural networks on ggml.

Tensors, ops and graphs are here; layers in `pyggml.nn`, optimizers in `pyggml.optim`, text in
`pyggml.data`, files in `pyggml.io`, models in `pyggml.models`, the trainer in `pyggml.train`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import ops
from .backend.device import (
    Device,
    alone,
    default_device,
    device,
    devices,
    get_threads,
    set_default_device,
    set_threads,
)
from .backend.dtypes import DType, as_dtype
from .backend.library import ffi, ggml_version, lib, patch_count
from .debug import detect_anomaly, measure_peaks, profile
from .errors import (
    AnomalyError,
    BackendError,
    DTypeError,
    FormatError,
    GradientError,
    OutOfMemoryError,
    RecordingError,
    ShapeError,
)
from .graph import (
    Compiled,
    Graph,
    check_grads,
    checkpoint,
    compile,
    custom_function,
    postpone,
    recompute,
    value_and_grad,
)
from .ops.dropout import DropoutStream
from .tensors.autocast import autocast, bf16_matmuls
from .tensors.create import empty, full, ones, tensor, zeros, zeros_group
from .tensors.random import random_generator, seed
from .tensors.tensor import Tensor

if TYPE_CHECKING:
    from .models import load

__version__ = "0.1.0"

# Imported when they are first asked for: `import pyggml` stays fast.
_PACKAGES = ("data", "io", "models", "nn", "optim", "recipes", "train")
_FROM_PACKAGES = {"load": "models"}

__all__ = [
    "AnomalyError",
    "BackendError",
    "Compiled",
    "DType",
    "DTypeError",
    "Device",
    "DropoutStream",
    "FormatError",
    "GradientError",
    "Graph",
    "OutOfMemoryError",
    "RecordingError",
    "ShapeError",
    "Tensor",
    "alone",
    "as_dtype",
    "autocast",
    "bf16_matmuls",
    "check_grads",
    "checkpoint",
    "compile",
    "custom_function",
    "default_device",
    "detect_anomaly",
    "device",
    "devices",
    "empty",
    "ffi",
    "full",
    "get_threads",
    "ggml_version",
    "lib",
    "load",
    "measure_peaks",
    "ones",
    "ops",
    "patch_count",
    "profile",
    "random_generator",
    "postpone",
    "recompute",
    "seed",
    "set_default_device",
    "set_threads",
    "tensor",
    "value_and_grad",
    "zeros",
    "zeros_group",
]


def __getattr__(name: str) -> Any:
    """Import a package such as `pyggml.nn`, or a function of one, at its first use."""
    if name in _PACKAGES:
        return import_module(f"{__name__}.{name}")
    if name in _FROM_PACKAGES:
        return getattr(import_module(f"{__name__}.{_FROM_PACKAGES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
