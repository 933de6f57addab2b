# SPDX-License-Identifier: MIT
"""Train neural networks on ggml.

Tensors, ops and graphs are here; layers in `pyggml.nn`, optimizers in `pyggml.optim`, text in
`pyggml.data`, files in `pyggml.io`, models in `pyggml.models`, the trainer in `pyggml.train`.
"""

from . import _early, ops  # noqa: F401 (the first of all: Ctrl-C while the rest is imported)
from ._lib import ffi, ggml_version, lib, patch_count
from .anomaly import detect_anomaly
from .compiled import Compiled, compile
from .custom import custom_function
from .device import (
    Device,
    default_device,
    device,
    devices,
    get_threads,
    set_default_device,
    set_threads,
)
from .dtypes import DType, as_dtype
from .errors import (
    AnomalyError,
    BackendError,
    DTypeError,
    FormatError,
    GradientError,
    RecordingError,
    ShapeError,
)
from .gradients import check_grads, value_and_grad
from .graph import Graph
from .ops.dropout import DropoutStream
from .precision import autocast, bf16_products
from .profiler import profile
from .random import random_generator, seed
from .recompute import checkpoint, postpone, recompute
from .roofline import measure_peaks
from .tensor import Tensor, empty, full, ones, tensor, zeros, zeros_group

__version__ = "0.1.0"

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
    "RecordingError",
    "Graph",
    "ShapeError",
    "Tensor",
    "as_dtype",
    "autocast",
    "bf16_products",
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
