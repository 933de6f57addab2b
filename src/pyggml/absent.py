# SPDX-License-Identifier: MIT
"""Names that people who come from PyTorch look for, and what to use instead."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable
from typing import Any, NoReturn

__all__ = ["INSTEAD", "absent", "absent_in"]

_RECURRENT = (
    "nn.MultiheadAttention or nn.Conv1d: ggml has no such op, and a graph with nodes for each time"
    " step is slow"
)
_NOT_NEEDED = "nothing: without backward() no gradient is kept; x.detach() cuts one off"
_F32 = "'f32', the text: x.astype('f32'), dtype='f32'"
_I32 = "'i32', the text: x.astype('i32'), dtype='i32'"
_DTYPES = {
    **dict.fromkeys(("float", "float32", "double", "float64"), _F32),
    **dict.fromkeys(("long", "int", "int64", "int32", "short", "uint8"), _I32),
    **{"half": "'f16', the text", "float16": "'f16', the text", "bfloat16": "'bf16', the text"},
    "bool": "x > 0: a mask is f32, ones and zeros",
}
_MODES = dict.fromkeys(
    ("no_grad", "inference_mode", "enable_grad", "set_grad_enabled"), _NOT_NEEDED
)

# For each place what PyTorch has there and pyggml has not, and what serves instead.
INSTEAD: dict[str, dict[str, str]] = {
    "x": {
        "argsort": "x.topk(n).indices, all of them in order",
        "bool": "x > 0: a mask is f32, ones and zeros",
        "cuda": "x.to('cuda')",
        "data": "x.copy_(values), which writes; x.detach() reads",
        "device_type": "x.device.name",
        "double": "x.numpy().astype('f8'): ggml computes in f32",
        "expand_as": "x.expand(y.shape)",
        "grad_fn": "pg.Graph, which lists its ops",
        "is_cuda": "x.device.name",
        "is_leaf": "x.is_stored",
        "long": "x.astype('i32')",
        "masked_select": "x[mask.numpy() > 0]",
        "median": "np.median(x.numpy())",
        "new_tensor": "pg.tensor(values)",
        "new_zeros": "pg.zeros(shape)",
        "nonzero": "np.nonzero(x.numpy())",
        "requires_grad_": "x.requires_grad = True",
        "scatter": "ops.set_rows(x, src, rows)",
        "scatter_": "ops.set_rows(x, src, rows)",
        "scatter_add_": "ops.get_rows, whose gradient adds rows up, or NumPy's np.add.at",
        "sort": "x.topk(n), all of them in order",
        "stride": "x.contiguous(), whose elements are in order",
        "unfold": "ops.im2col",
        "unique": "np.unique(x.numpy())",
        "view_as": "x.reshape(y.shape)",
    },
    "pg": {
        **_DTYPES,
        **_MODES,
        "Generator": "NumPy's, np.random.default_rng(0)",
        "LongTensor": "pg.tensor(values)",
        "FloatTensor": "pg.tensor(values)",
        "addmm": "c + a @ b",
        "allclose": "np.allclose(a.numpy(), b.numpy())",
        "autograd": "loss.backward(), pg.value_and_grad, pg.custom_function",
        "baddbmm": "c + a @ b",
        "bernoulli": "(pg.rand(shape) < p).float()",
        "bincount": "np.bincount(x.numpy())",
        "concat": "pg.cat",
        "cosh": "(pg.exp(x) + pg.exp(-x)) / 2",
        "cross": "np.cross(a.numpy(), b.numpy())",
        "cuda": "pg.devices(), x.to('cuda'), model.to('cuda')",
        "diag": "x[range(n), range(n)], or pg.eye(n) * x",
        "diagonal": "x[range(n), range(n)]",
        "equal": "np.array_equal(a.numpy(), b.numpy())",
        "hstack": "pg.cat(tensors, dim=1)",
        "is_tensor": "isinstance(x, pg.Tensor)",
        "linalg": "x.norm(), a @ b, or NumPy's np.linalg",
        "log1p": "pg.log(1 + x), or np.log1p(x.numpy()), which is exact near 0",
        "logspace": "pg.tensor(np.logspace(a, b, n))",
        "manual_seed": "pg.seed(0)",
        "meshgrid": "pg.tensor of each of np.meshgrid(a, b, indexing='ij')",
        "movedim": "x.permute(axes)",
        "multinomial": "pg.random_generator().choice(n, p=p.numpy())",
        "nan_to_num": "np.nan_to_num(x.numpy())",
        "normal": "mean + std * pg.randn(shape)",
        "randperm": "pg.random_generator().permutation(n)",
        "save": "model.save('model.gguf'), or np.savez('w.npz', **model.state_dict())",
        "sinh": "(pg.exp(x) - pg.exp(-x)) / 2",
        "take": "x.flatten()[ids]",
        "tensor_split": "pg.split, with the size of each part",
        "trace": "pg.einsum('ij,ij->', x, pg.eye(n))",
        "utils": "pg.checkpoint, pg.data.Loader, pg.optim.GradNorm",
        "vstack": "pg.cat(tensors, dim=0)",
    },
    "nn": {
        **dict.fromkeys(("LSTM", "GRU", "RNN", "LSTMCell", "GRUCell"), _RECURRENT),
        "AdaptiveMaxPool2d": "nn.MaxPool2d, with windows that divide the image",
        "BatchNorm3d": "nn.BatchNorm2d",
        "Conv3d": "ops.conv_3d",
        "Dropout1d": "nn.Dropout",
        "Dropout2d": "nn.Dropout",
        "InstanceNorm2d": "nn.GroupNorm(channels, channels)",
        "ParameterDict": "attributes: each Parameter of a module is found by itself",
        "ParameterList": "attributes: each Parameter of a module is found by itself",
        "PixelShuffle": "x.reshape and x.permute",
        "TransformerEncoder": "nn.ModuleList of nn.TransformerEncoderLayer",
        "TransformerDecoder": "nn.ModuleList of nn.TransformerDecoderLayer",
        "parallel": "pg.distributed",
        "utils": "optim.GradNorm, the clip of optimizer.step, or optim.clip_factor",
    },
    "F": {
        "adaptive_max_pool2d": "F.max_pool2d, with windows that divide the image",
        "avg_pool1d": "ops.pool_1d",
        "conv_transpose1d": "ops.conv_transpose_1d",
        "dropout1d": "F.dropout",
        "dropout2d": "F.dropout",
        "hardtanh": "x.clamp(-1, 1)",
        "instance_norm": "nn.GroupNorm(channels, channels)",
        "margin_ranking_loss": "F.relu(margin - y * (a - b)).mean()",
        "max_pool1d": "ops.pool_1d",
        "pairwise_distance": "(a - b).norm(dim=-1)",
        "pixel_shuffle": "x.reshape and x.permute",
        "prelu": "F.relu(x) - weight * F.relu(-x)",
        "selu": "1.0507009873554805 * F.elu(x, 1.6732632423543772)",
        "softmin": "F.softmax(-x, dim)",
        "softsign": "x / (1 + x.abs())",
        "triplet_margin_loss": "F.relu(positive - negative + margin).mean() of two distances",
        "unfold": "ops.im2col",
    },
    "optim": {
        "Adadelta": "optim.AdamW",
        "Adamax": "optim.AdamW",
        "NAdam": "optim.AdamW",
        "RAdam": "optim.AdamW with optim.schedules.warmup",
        "lr_scheduler": "optim.schedules: optimizer.lr = schedule(step) before each step",
        "swa_utils": "optim.EMA",
    },
    "init": {
        **{
            f"{name}_": f"weight.copy_(init.{name}(...)(weight.shape))"
            for name in (
                "constant",
                "kaiming_normal",
                "kaiming_uniform",
                "normal",
                "uniform",
                "xavier_normal",
                "xavier_uniform",
            )
        },
        "ones_": "weight.copy_(np.ones(weight.shape))",
        "zeros_": "weight.zero_()",
    },
    "data": {
        "DataLoader": "data.Loader",
        "TensorDataset": "data.ArrayDataset",
        "random_split": "data.split_images, or two data.ArrayDataset",
    },
    "optimizer": {
        "add_param_group": "another optimizer, of both groups of parameters",
        "defaults": "optimizer.groups",
        "param_groups": "optimizer.groups; optimizer.lr = value sets the learning rate of all",
    },
    "module": {
        "add_module": "setattr(module, name, child)",
        "bfloat16": "pg.autocast",
        "cpu": "module.to('cpu')",
        "cuda": "module.to('cuda')",
        "double": "nothing: ggml computes in f32",
        "float": "nothing: parameters are f32",
        "get_parameter": "dict(module.named_parameters())[name]",
        "get_submodule": "dict(module.named_modules())[name]",
        "half": "pg.autocast, or models.load(path, keep_types=True)",
        "register_backward_hook": "parameter.register_hook",
        "register_full_backward_hook": "parameter.register_hook",
        "register_module": "setattr(module, name, child)",
        "register_parameter": "setattr(module, name, nn.Parameter(values))",
    },
}
INSTEAD["pg"] = {**INSTEAD["x"], **INSTEAD["pg"]}
del INSTEAD["pg"]["data"]  # a package

_OTHERWISE = "the functions of pg.ops, or x.numpy() and NumPy"

# Where else a name is looked for, in this order; only what has been imported already.
_PLACES = {
    "pg": "pyggml",
    "F": "pyggml.nn.functional",
    "ops": "pyggml.ops",
    "nn": "pyggml.nn",
    "optim": "pyggml.optim",
    "data": "pyggml.data",
}


def absent(place: str, name: str, names: Collection[str]) -> NoReturn:
    """Raise for a name that is not there, and say what to use.

    Args:
        place: what it was asked of, as users write it: "pg", "nn", "F", "x".
        name: the name.
        names: those that are there.

    Raises:
        AttributeError: always.

    Example:
        >>> absent("nn", "Liner", ["Linear", "ReLU"])
        Traceback (most recent call last):
            ...
        AttributeError: nn: there is no nn.Liner; use nn.Linear
    """
    if name.startswith("_"):  # Python's own questions, which nobody reads
        raise AttributeError(f"{place}: there is no {place}.{name}")
    cure = INSTEAD.get(place, {}).get(name) or _elsewhere(place, name)
    if place in ("x", "F"):
        cure = cure or INSTEAD["pg"].get(name)
    if cure is None and place == "x" and name.endswith("_"):
        known = name[:-1] in names
        cure = f"y = x.{name[:-1]}(…): ops make new tensors; " if known else ""
        cure += "x.copy_(values) writes" if known else "x.copy_(values), which writes"
    nearest = None if cure else _nearest(name, names)
    if nearest:
        cure = f"{place}.{nearest}"
    elif cure is None:
        cure = _OTHERWISE if place == "x" else f"the names of dir({place})"
    raise AttributeError(f"{place}: there is no {place}.{name}; use {cure}")


def absent_in(place: str, module: str) -> Callable[[str], Any]:
    """Return a module's `__getattr__`, which raises as `absent` does.

    Args:
        place: the module as users write it.
        module: its full name.
    """

    def __getattr__(name: str) -> NoReturn:
        absent(place, name, getattr(sys.modules[module], "__all__", ()))

    return __getattr__


def _elsewhere(place: str, name: str) -> str | None:
    """Return the name in another module, or as a tensor's method."""
    for prefix, path in _PLACES.items():
        if prefix != place and name in getattr(sys.modules.get(path), "__all__", ()):
            return f"{prefix}.{name}"
    if place in ("pg", "F"):
        tensor = getattr(sys.modules.get("pyggml"), "Tensor", None)
        if callable(getattr(tensor, name, None)):
            return f"x.{name}(...)"
    return None


# Names of PyTorch's for other functions than those that are written most alike here.
_NO_TYPOS = frozenset(
    "asin acos atan arcsin arccos arctan atan2 logcumsumexp cummax fmax fmin complex conv3d"
    " bilinear rrelu prelu selu celu glu batchnorm3d maxpool1d maxpool3d avgpool1d avgpool3d"
    " embeddingbag rprop hinge_embedding_loss multi_margin_loss isclose".split()
)


def _nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the name that is written most alike, if any is."""
    from difflib import get_close_matches

    if name.lower() in _NO_TYPOS:
        return None
    small = {each.lower(): each for each in names if not each.startswith("_")}
    found = get_close_matches(name.lower(), small, 1, 0.82)
    return small[found[0]] if found else None
