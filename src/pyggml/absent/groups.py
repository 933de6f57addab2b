# SPDX-License-Identifier: MIT
"""Cures of whole groups of PyTorch's names, by how they are written."""

from __future__ import annotations

import re

from .layers import RECURRENT

__all__ = ["of_group"]

# Functions that NumPy has under the same name, or another one, and that compute the same.
_NUMPY = {
    name: name
    for name in (
        "arccos arccosh arcsin arcsinh arctan arctan2 arctanh argwhere atleast_1d atleast_2d"
        " atleast_3d bincount bitwise_and bitwise_not bitwise_or bitwise_xor copysign corrcoef cov"
        " cumprod diff fmax fmin fmod frexp gcd heaviside histogram histogramdd hypot isin kron lcm"
        " ldexp nanquantile nextafter quantile rot90 searchsorted signbit sinc trapezoid"
        " tril_indices triu_indices unique vander"
    ).split()
} | {
    "acos": "arccos",
    "acosh": "arccosh",
    "asin": "arcsin",
    "asinh": "arcsinh",
    "atan": "arctan",
    "atan2": "arctan2",
    "atanh": "arctanh",
    "bitwise_left_shift": "left_shift",
    "bitwise_right_shift": "right_shift",
    "gradient": "gradient",
    "trapz": "trapezoid",
    **{
        name: f"linalg.{name}"
        for name in "cholesky det eig lstsq matrix_power matrix_rank qr slogdet solve".split()
    },
}
_NO_ARRAYS = {"tril_indices", "triu_indices"}
_PAIRS = set(
    "arctan2 bitwise_and bitwise_or bitwise_xor copysign fmax fmin fmod gcd heaviside hypot kron"
    " lcm nextafter left_shift right_shift linalg.solve linalg.lstsq isin searchsorted".split()
)

# Where a group is found, how its names are written, and what serves instead.
_GROUPS = [
    (
        "pg x",
        r"lgamma|mvlgamma|digamma|polygamma|igammac?|i0|erfinv",
        "scipy.special, without a gradient",
    ),
    (
        "pg x",
        r"lu|lu_.*|lobpcg|geqrf|ormqr|orgqr|cholesky_.*|triangular_solve|matrix_exp|(svd|pca)_lowrank",
        "scipy.linalg, without a gradient, or ops.solve_tri",
    ),
    ("pg x", r"i?stft|.*_window", "scipy.signal, or np.fft"),
    ("pg x", r"(arg)?angle|complex|polar|imag|real|conj.*|resolve_.*|view_as_(real|complex)|isreal"
     r"|is_(complex|conj|neg|signed)|cdouble|cfloat|chalf", "NumPy: tensors here are real"),
    ("pg F", r"(lstm|gru|rnn).*", RECURRENT),
    ("pg", r"(get|set|is|clear)_autocast.*|autocast_.*", "pg.autocast"),
    ("pg", r"(get|set|are)_determin.*|is_deterministic.*",
     "nothing: one seed, machine and thread count give one result"),
    ("pg", r"is_(grad|inference).*", "x.requires_grad"),
    ("pg", r"(is|set)_anomaly.*", "pg.detect_anomaly()"),
    ("pg", r".*rng_state|initial_seed|default_generator|thread_safe_generator",
     "pg.random_generator(), NumPy's, or pg.seed(0)"),
    ("pg", r"(get|set)_default_(dtype|tensor_type)", "nothing: ggml computes in f32"),
    ("pg", r"(get|set)_num_interop_threads|init_num_threads", "pg.set_threads(n)"),
    ("pg", r"get_float32_matmul_precision", "pg.autocast"),
    ("pg", r"set_flush_denormal|(is|set)_warn_always\w*", "nothing: it is not needed here"),
    ("pg", r"set_printoptions", "np.set_printoptions, which print(x) follows"),
    ("pg", r"\w+Tensor", "pg.tensor(values)"),
    ("pg", r"promote_types|result_type|can_cast", "np.result_type(a, b), or x.astype('f32')"),
    ("pg", r"(preserve|contiguous|channels_last|legacy)\w*|strided|memory_format|layout",
     "nothing: elements are in order, images (N, C, H, W)"),
    ("pg", r"while_loop|cond", "Python's while and if: each branch is a graph of its own"),
    ("pg", r"empty_(strided|permuted)", "pg.empty(shape)"),
    ("pg", r"segment_reduce", "np.add.reduceat(x.numpy(), starts)"),
    ("pg", r"(dropout|alpha_dropout|feature_.*dropout)_?", "F.dropout(x, p)"),
    ("pg", r"(fork|wait)", "Python's threading"),
    ("x", r"is_(cuda|cpu|mps|xla|xpu|meta|ipu|maia|mtia|vulkan|mkldnn)", "x.device.name"),
    ("x", r"is_(sparse|quantized|nested|inference|distributed).*|is_set_to", "x.describe()"),
    ("x", r"to_.*|ipu|xpu|mtia", "x.to('cuda'), or x.numpy(): tensors are dense"),
    ("x", r"output_nr|volatile|grad_dtype|reinforce|is_coalesced|coalesce", "x.describe()"),
    ("module", r"ipu|xpu|mtia", "module.to('cuda')"),
    ("module", r"call_super_init|dump_patches|T_destination", "nothing: PyTorch's own"),
    ("nn", r"Lazy\w+", "the layer with its widths: nn.Linear(in_features, out_features)"),
    ("nn F pg", r"conv3d|Conv3d", "ops.conv_3d"),
    ("nn F pg", r"conv_transpose3d|ConvTranspose3d",
     "F.conv_transpose2d: ggml has no such op of three axes"),
    ("nn", r"(Batch|Instance)Norm3d|Dropout3d",
     "the layer of two axes, of x.reshape(N, C, D, H * W)"),
    ("F pg", r"dropout3d", "F.dropout2d(x.reshape(N, C, D, H * W))"),
    ("nn", r"\w+3d", "the layer of two axes, over two of them and then over the third"),
    ("F pg", r"\w+3d\w*", "the function of two axes, over two of them and then over the third"),
    ("pg", r"(adaptive_)?(max|avg)_pool\w+|grid_sampler\w*|affine_grid_generator",
     "F.max_pool2d, F.avg_pool2d, F.interpolate"),
]  # fmt: skip
_COMPILED = [(frozenset(where.split()), re.compile(text), cure) for where, text, cure in _GROUPS]


def of_group(place: str, name: str) -> str | None:
    """Return the cure of a group of names, or None.

    Args:
        place: where the name is asked for.
        name: the name.

    Example:
        >>> of_group("nn", "LazyLinear")
        'the layer with its widths: nn.Linear(in_features, out_features)'
    """
    if place in ("pg", "x") and name in _NUMPY:
        function = _NUMPY[name]
        given = "a.numpy(), b.numpy()" if function in _PAIRS else "x.numpy()"
        return f"np.{function}({'n' if name in _NO_ARRAYS else given}), without a gradient"
    for places, pattern, cure in _COMPILED:
        if place in places and pattern.fullmatch(name):
            return cure
    return None
