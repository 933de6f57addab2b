# SPDX-License-Identifier: MIT
"""Names that people who come from PyTorch look for, and what there is instead."""

from __future__ import annotations

from collections.abc import Collection

__all__ = ["INSTEAD", "absent"]

_RECURRENT = "attention or a convolution: ggml has no recurrent op, and a node a step is slow"
_NO_GRAD = "nothing: without backward() nothing is kept for a gradient"

INSTEAD: dict[str, dict[str, str]] = {
    "pyggml": {
        "Generator": "np.random.default_rng(seed)",
        "add": "a + b",
        "allclose": "np.allclose(a.numpy(), b.numpy())",
        "argsort": "x.topk(n), whose second part are the places",
        "autograd": "pg.value_and_grad, and pg.custom_function for a backward of your own",
        "bernoulli": "pg.rand(shape) < p",
        "bincount": "np.bincount(x.numpy())",
        "concat": "pg.cat",
        "cuda": "pg.devices(), and model.to('cuda')",
        "diag": "np.diag(x.numpy())",
        "div": "a / b",
        "equal": "np.array_equal(a.numpy(), b.numpy())",
        "float32": "'f32'",
        "hstack": "pg.cat(parts, dim=1)",
        "inference_mode": _NO_GRAD,
        "int64": "'i32': ggml has no longer whole numbers in its ops",
        "is_tensor": "isinstance(x, pg.Tensor)",
        "log1p": "pg.log(1 + x)",
        "long": "'i32': ggml has no longer whole numbers in its ops",
        "manual_seed": "pg.seed",
        "masked_select": "x[mask.numpy() > 0]",
        "meshgrid": "np.meshgrid",
        "mul": "a * b",
        "multinomial": "np.random.default_rng(seed).choice(n, p=x.numpy())",
        "no_grad": _NO_GRAD,
        "nonzero": "np.nonzero(x.numpy())",
        "norm": "x.norm()",
        "normal": "pg.randn(shape) * std + mean",
        "numel": "x.numel()",
        "randperm": "np.random.default_rng(seed).permutation(n)",
        "save": "model.save('model.gguf'), or np.save for a tensor's numbers",
        "set_grad_enabled": _NO_GRAD,
        "sign": "x.sign()",
        "sort": "x.topk(n), all of them in order",
        "square": "x.square()",
        "sub": "a - b",
        "unique": "np.unique(x.numpy())",
        "utils": "pg.data.Loader for batches, and pg.checkpoint",
        "vstack": "pg.cat(parts, dim=0)",
    },
    "pyggml.nn": {
        "AdaptiveAvgPool2d": "F.adaptive_avg_pool2d",
        "BCELoss": "nn.BCEWithLogitsLoss, of the logits before the sigmoid",
        "Dropout2d": "nn.Dropout",
        "ELU": "F.elu",
        "GLU": "F.glu",
        "GRU": _RECURRENT,
        "Hardswish": "F.hardswish",
        "Identity": "nn.Sequential()",
        "LSTM": _RECURRENT,
        "LeakyReLU": "F.leaky_relu",
        "LogSoftmax": "F.log_softmax",
        "Mish": "F.mish",
        "NLLLoss": "nn.CrossEntropyLoss, of the logits before log_softmax",
        "ParameterList": "nn.ModuleList of modules with a Parameter each",
        "RNN": _RECURRENT,
        "ReLU6": "F.relu6",
        "Sigmoid": "F.sigmoid",
        "Softmax": "F.softmax",
        "Softplus": "F.softplus",
        "TransformerDecoder": "nn.ModuleList of nn.TransformerDecoderLayer",
        "TransformerEncoder": "nn.Sequential of nn.TransformerEncoderLayer",
        "Unflatten": "x.unflatten(dim, sizes)",
        "utils": "optimizer.step(clip=1.0) for clip_grad_norm_",
    },
    "pyggml.nn.functional": {
        "binary_cross_entropy": "F.binary_cross_entropy_with_logits, of the logits",
        "conv_transpose2d": "nn.ConvTranspose2d",
        "batch_norm": "nn.BatchNorm2d",
        "group_norm": "nn.GroupNorm",
        "nll_loss": "F.cross_entropy, of the logits before log_softmax",
        "softmin": "F.softmax(-x, dim)",
    },
    "pyggml.optim": {
        "Adamax": "optim.AdamW",
        "NAdam": "optim.AdamW",
        "RAdam": "optim.AdamW, with warmup",
        "lr_scheduler": "optim.schedules, and the options schedule and warmup of Trainer",
    },
}
"""What serves instead of a name, by module."""


def absent(module: str, name: str, known: Collection[str]) -> AttributeError:
    """Return the error of a name that a module lacks, with what to use instead.

    Args:
        module: its full name.
        name: what was looked for.
        known: the names that it has.

    Example:
        >>> absent("pyggml", "manual_seed", ["seed"])
        AttributeError("module 'pyggml' has no attribute 'manual_seed'; use pg.seed")
    """
    told = f"module {module!r} has no attribute {name!r}"
    cure = INSTEAD.get(module, {}).get(name)
    if cure is not None:
        return AttributeError(f"{told}; use {cure}")
    from difflib import get_close_matches

    near = [] if name.startswith("_") else get_close_matches(name, known, 1, 0.75)
    return AttributeError(f"{told}; did you mean {near[0]}?" if near else told)
