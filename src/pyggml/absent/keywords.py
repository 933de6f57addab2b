# SPDX-License-Identifier: MIT
"""Keywords of PyTorch's and NumPy's functions: their names here, or what to use instead."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

__all__ = ["by_place", "given_twice", "instead_of", "renamed"]

# What stands for a keyword: the first of these names that a function has.
_NAMES = {
    "axis": ("dim", "dims"),
    "axes": ("dims", "dim"),
    "dims": ("axes", "repeats"),
    "size": ("shape",),
    "arrays": ("tensors",),
    "ord": ("p",),
    "ddof": ("correction",),
    "a_min": ("min",),
    "a_max": ("max",),
    "keepdims": ("keepdim",),
    "condition": ("mask",),
    "fill_value": ("value",),
    "target": ("targets",),
    **dict.fromkeys(("mat1", "batch1", "tensor1"), ("a",)),
    **dict.fromkeys(("mat2", "batch2", "tensor2", "input2", "x2", "vec", "vec2"), ("b",)),
    **dict.fromkeys(("other", "end"), ("b",)),
    "split_size_or_sections": ("sizes",),
    "split_size": ("sizes",),
}
# The first argument of a function, and no method; of `where` the one after the mask.
_FIRST = ("input", "input1", "tensor", "x1")

_INSTEAD = {
    "inplace": "y = {}(…): ops make new tensors",
    "out": "y = {}(…): ops make new tensors",
    "dtype": "x.astype(dtype) before it, or y.astype(dtype) of the result",
    "device": "x.to(device)",
    "memory_format": "nothing: it is not needed here",
    "layout": "nothing: it is not needed here",
    "pin_memory": "nothing: it is not needed here",
    "generator": "pg.seed(0) before it",
    "alpha": "alpha * b for b",
    "force": "nothing: the numbers are always copied out",
    "non_blocking": "nothing: it is complete when the call returns",
    "decimals": "x.mul(10**decimals).round() / 10**decimals",
    **dict.fromkeys(("fused", "foreach"), "nothing: all parameters are updated together"),
    "size_average": "reduction",
    "reduce": "reduction",
    "stable": "np.argsort(x.numpy(), dim, kind='stable'): equal elements come in any order",
    "return_indices": "the values alone: ggml keeps no places of a maximum",
    "padding_mode": "F.pad(x, widths, mode) before it",
    "max_norm": "weight.copy_(rows), which you scale, after optimizer.step()",
    "norm_type": "weight.copy_(rows), which you scale, after optimizer.step()",
    "scale_grad_by_freq": "parameter.register_hook(hook), which may overwrite a gradient",
    "sparse": "nothing: gradients are dense",
    "recompute_scale_factor": "size",
    "_stacklevel": "nothing: it is not needed here",
    "_freeze": "layer.freeze()",
    "enable_nested_tensor": "nothing: it is not needed here",
    "mask_check": "nothing: it is not needed here",
}
# Of functions whose cure is their own.
_OF_FUNCTIONS: dict[str, dict[str, str]] = {}
for _name in ("max_pool1d", "max_pool2d", "MaxPool1d", "MaxPool2d"):
    _OF_FUNCTIONS[_name] = {
        "dilation": "the largest of ops.im2col(x, kernel, dilation=…): ggml's windows have no gaps"
    }
for _name in ("conv_transpose1d", "conv_transpose2d", "ConvTranspose1d", "ConvTranspose2d"):
    _OF_FUNCTIONS[_name] = {
        "groups": "pg.cat of the results for x.chunk(groups, 1) and their kernels: ggml's op has no"
        " groups",
        "dilation": "a weight with zeros between its elements: ggml's op has no dilation",
    }
for _name in ("InstanceNorm1d", "InstanceNorm2d"):
    _OF_FUNCTIONS[_name] = {"track_running_stats": "nn.BatchNorm2d, which has running statistics"}
_FIT = "Trainer(…, {0}=…).fit()"
_DATA = "Trainer(model, train, val, …), which takes the data, and then fit()"
_OF_FUNCTIONS["Trainer.fit"] = {
    **{name: _FIT.format(name) for name in ("epochs", "steps", "batch_size", "callbacks", "lr")},
    **dict.fromkeys(("x", "y", "train", "dataset", "loader", "data", "generator"), _DATA),
    **dict.fromkeys(("validation_data", "val", "val_data"), "Trainer(…, val=dataset).fit()"),
    "verbose": "progress=False, which shows nothing, or progress=True",
    "validation_split": "train, val = dataset.split(0.2) and Trainer(model, train, val, …).fit()",
    "class_weight": "loss=lambda model, x, y: F.cross_entropy(model(x), y, weight) of the Trainer",
    "sample_weight": "loss=…, a function of your own, of the Trainer",
    "shuffle": "data.Loader(dataset, batch_size, shuffle=False) as train of the Trainer",
    "initial_epoch": "trainer.resume(), which goes on from a checkpoint",
    "resume": "trainer.resume() before it",
    "ckpt_path": "trainer.resume(path) before it",
    "steps_per_epoch": "Trainer(…, steps=…).fit()",
    "validation_freq": "Trainer(…, eval_every=…).fit(), in steps",
}
_OF_FUNCTIONS["Trainer.evaluate"] = {
    **dict.fromkeys(
        ("x", "y", "dataset", "data", "val", "validation_data", "loader", "dataloaders"),
        "Trainer(…, val=dataset).evaluate()",
    ),
    "batch_size": "Trainer(…, batch_size=…).evaluate()",
    "verbose": "nothing: evaluate() shows nothing",
}
# What a call that gives too much by place most often means.
_BY_PLACE = {
    "Trainer.fit": "Trainer(model, train, val, epochs=…).fit()",
    "Trainer.evaluate": "Trainer(…, val=data.ArrayDataset(x, y)).evaluate()",
}
# Values of PyTorch's that are what happens here in any case.
_OF_NO_EFFECT: dict[str, Any] = {
    "inplace": False,
    "stable": False,
    "return_indices": False,
    "padding_mode": "zeros",
    "track_running_stats": True,
    "scale_grad_by_freq": False,
    "sparse": False,
    "norm_type": 2.0,
    "groups": 1,
    "dilation": 1,
    **dict.fromkeys(
        "max_norm device dtype out generator size_average reduce recompute_scale_factor".split()
    ),
}
# Of layers, which are classes.
_OF_LAYERS = {
    "device": "module.to(device)",
    "dtype": "nothing: parameters are f32; pg.autocast lets matmuls multiply bf16",
}


def renamed(parameters: Sequence[str], given: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return keyword arguments under the names that a function has; None if none has another.

    Args:
        parameters: the names of the function's.
        given: the keyword arguments of a call.

    Example:
        >>> renamed(["x", "dim", "keepdim"], {"axis": 1, "keepdims": True})
        {'dim': 1, 'keepdim': True}
        >>> renamed(["x", "dim"], {"dim": 1}) is None
        True
    """
    found: dict[str, Any] = {}
    for name, value in given.items():
        own = name if name in parameters else _own(parameters, name)
        if own is None and name in _OF_NO_EFFECT and _is_same(value, _OF_NO_EFFECT[name]):
            continue
        found[own or name] = value  # an unknown one is left for the error of the call
    return None if found.keys() == given.keys() else found


def given_twice(
    parameters: Sequence[str], given: Mapping[str, Any], placed: Collection[str] = ()
) -> tuple[str, str, str] | None:
    """Return an argument that a call gives under two names: its own name, and the two; or None.

    Args:
        parameters: the names of the function's.
        given: the keyword arguments of a call.
        placed: the names of the arguments that the call gives by their place.

    Example:
        >>> given_twice(["x", "dim"], {"axis": 1, "dim": 1})
        ('dim', 'dim', 'axis')
        >>> given_twice(["x", "dim"], {"axis": 1}, ["x", "dim"])
        ('dim', 'dim by place', 'axis')
    """
    seen = {name: f"{name} by place" for name in placed}
    for name in sorted(given, key=lambda name: name not in parameters):  # own names first
        own = name if name in parameters else _own(parameters, name)
        if own is not None and own in seen and own != name:
            return own, seen[own], name
        if own is not None:
            seen[own] = name
    return None


def _own(parameters: Sequence[str], name: str) -> str | None:
    """Return a function's own name of an argument, if it has one."""
    if name in _FIRST and parameters and parameters[0] != "self":
        return "a" if parameters[0] == "mask" and "a" in parameters else parameters[0]
    return next((each for each in _NAMES.get(name, ()) if each in parameters), None)


def _is_same(value: Any, other: Any) -> bool:
    """Return True for the same constant; arrays are none."""
    return value is other or (isinstance(value, (str, int, float)) and value == other)


def by_place(who: str) -> str | None:
    """Return what to use instead of a call with too many arguments by place, if it is known.

    Args:
        who: the function.

    Example:
        >>> by_place("Trainer.fit")
        'Trainer(model, train, val, epochs=…).fit()'
    """
    return _BY_PLACE.get(who)


def instead_of(who: str, name: str) -> str | None:
    """Return what to use instead of a keyword that a function does not have, if it is known.

    Args:
        who: the function.
        name: the keyword.

    Example:
        >>> instead_of("relu", "inplace")
        'y = relu(…): ops make new tensors'
        >>> instead_of("Linear", "device")
        'module.to(device)'
    """
    own = _OF_FUNCTIONS.get(who, {}).get(name)
    if own is not None:
        return own
    known = (_OF_LAYERS if who[:1].isupper() else {}).get(name, _INSTEAD.get(name))
    return None if known is None else known.format(who)
