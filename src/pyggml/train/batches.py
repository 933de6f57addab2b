# SPDX-License-Identifier: MIT
"""Batches of a step: inputs, targets and further inputs, and their checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..data import IGNORE_INDEX
from ..data import Batch as NamedBatch
from ..models import LanguageModel

__all__ = [
    "Batch",
    "Spec",
    "arrays_of",
    "check_alone",
    "check_batch",
    "check_closure",
    "check_fused",
    "check_targets",
    "extra_inputs",
    "check_batches",
    "check_pair",
    "pair_spec",
    "spec_of",
    "without_padding",
]

Batch = tuple[np.ndarray, np.ndarray]
# Name, shape and dtype of every array.
Spec = tuple[tuple[str, tuple[int, ...], str], ...]


def extra_inputs(batch: Any) -> Mapping[str, np.ndarray]:
    """Return the further inputs of a batch by name; see `pyggml.data.Batch`."""
    found: Mapping[str, np.ndarray] = getattr(batch, "inputs", {})
    return found


def arrays_of(batch: Any) -> list[np.ndarray]:
    """Return all arrays of a batch in the order of its `spec_of`."""
    extra = extra_inputs(batch)
    return [batch[0], batch[1], *(extra[name] for name in sorted(extra))]


def without_padding(batch: Any) -> Batch:
    """Return a batch of decimal targets without the rows that fill it up.

    Whole-number targets of such rows are `IGNORE_INDEX`, which losses leave out; decimal targets
    have no such number.

    Args:
        batch: inputs and targets.
    """
    rows = getattr(batch, "rows", None)
    if rows is None or rows >= len(batch[0]) or batch[1].dtype.kind != "f":
        return batch  # type: ignore[no-any-return]
    more = {name: array[:rows] for name, array in extra_inputs(batch).items()}
    return NamedBatch(batch[0][:rows], batch[1][:rows], **more)


def spec_of(batch: Any) -> Spec:
    """Return names, shapes and dtypes of a batch's arrays, the key of its graph.

    Raises:
        ValueError: an array is neither of whole numbers nor of decimal ones.
    """
    names = ["x", "y", *sorted(extra_inputs(batch))]
    found = []
    for name, array in zip(names, arrays_of(batch), strict=True):
        if array.dtype.kind not in "iuf":
            raise ValueError(
                f"TrainStep: {name} must hold numbers; got {array.dtype}: give "
                f"{name}.astype(np.int32), or np.float32"
            )
        found.append((name, array.shape, "f32" if array.dtype.kind == "f" else "i32"))
    return tuple(found)


def pair_spec(shape: tuple[int, ...]) -> Spec:
    """Return the spec of tokens and the tokens that follow, both of one shape."""
    return ("x", shape, "i32"), ("y", shape, "i32")


def check_closure(optimizer: Any, *given: Any) -> None:
    """Raise for clipping or a scaled loss together with an optimizer that has a line search.

    Raises:
        ValueError: one of them is given.
    """
    if any(given):
        raise ValueError(
            f"TrainStep: clip, clip_value and loss scaling must be None or 0 with "
            f"{type(optimizer).__name__}, whose line search needs the gradients as they are"
        )


def check_fused(clip: float | None, clip_value: float | None, scaler: Any, ranks: int) -> None:
    """Raise for options that need all gradients before the first update.

    Raises:
        ValueError: one of them is given.
    """
    if ranks > 1:
        raise ValueError(
            "TrainStep: an optimizer that has fused_update=True keeps no gradients to sum over "
            f"ranks; got {ranks} ranks: make it without, or start one rank"
        )
    for name, given in (("clip", clip), ("clip_value", clip_value), ("scaler", scaler)):
        if given:
            cause = "the norm" if name == "clip" else "it"
            what = "loss scaling, as of precision f16" if name == "scaler" else name
            raise ValueError(
                f"TrainStep: {what} must be None or 0 with an optimizer that has "
                f"fused_update=True, as {cause} needs all gradients before the first update; "
                f"got {given}"
            )


def check_alone(batches: Any) -> None:
    """Raise if a fused update would get several batches.

    Args:
        batches: batches of a step.

    Raises:
        ValueError: there are several.
    """
    if len(batches) != 1:
        raise ValueError(
            "TrainStep: an optimizer that has fused_update=True updates after every batch; "
            f"got {len(batches)} batches: give one, or make the optimizer without it"
        )


def check_batches(batches: Any) -> Any:
    """Return the batches of a step.

    Args:
        batches: what a step was given.

    Raises:
        TypeError: it is something else, such as a batch alone.
        ValueError: there is none.
    """
    is_one = isinstance(batches, tuple) and any(isinstance(each, np.ndarray) for each in batches)
    if is_one or not isinstance(batches, (list, tuple)):
        what = "one batch" if is_one else type(batches).__name__
        raise TypeError(f"TrainStep: give a list of batches, each (x, y); got {what}: give [batch]")
    if not batches:
        raise ValueError("TrainStep: a step needs at least one batch; got none")
    return batches


def check_pair(batch: Any) -> Any:
    """Return a pair of arrays.

    Args:
        batch: what a step was given.

    Raises:
        TypeError: it is something else.
    """
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        raise TypeError(f"TrainStep: a batch must be a pair (x, y); got {type(batch).__name__}")
    arrays = {"x": batch[0], "y": batch[1], **extra_inputs(batch)}
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise TypeError(
                f"TrainStep: {name} must be a NumPy array; got {type(array).__name__}: give "
                "np.asarray(values), or tensor.numpy()"
            )
    return batch


def check_batch(batch: Any, model: Any) -> None:
    """Raise for a batch that does not suit the model, before ggml reads it.

    Raises:
        TypeError: it is no pair of arrays.
        ValueError: shapes do not fit, or a token is not in the vocabulary.
    """
    x, y = check_pair(batch)
    if isinstance(model, LanguageModel) and (x.shape != y.shape or x.ndim != 2):
        raise ValueError(
            f"TrainStep: inputs and targets must have one shape (B, T); got {x.shape} and {y.shape}"
        )
    sizes = {name: shape[:1] for name, shape, _ in spec_of(batch)}
    if x.ndim < 1 or len({sizes["x"], sizes["y"]}) > 1:
        raise ValueError(
            f"TrainStep: inputs and targets must be as many; got {x.shape} and {y.shape}"
        )
    vocab_size = getattr(getattr(model, "config", None), "vocab_size", None)
    if vocab_size is None or not isinstance(model, LanguageModel):
        return
    for what, ids in (("input", x), ("target", y[y != IGNORE_INDEX])):
        if ids.dtype.kind not in "iu":
            raise TypeError(
                f"TrainStep: every {what} must be a token, a whole number; got {ids.dtype}: "
                "convert it with astype(np.int32)"
            )
        if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < vocab_size:
            raise ValueError(
                f"TrainStep: every {what} must be a token from 0 to {vocab_size - 1}; got "
                f"{int(ids.min())} to {int(ids.max())}: use the model's own tokenizer"
            )


def check_targets(batch: Any, model: Any) -> None:
    """Raise for targets of a model's own loss that are no classes of it.

    Args:
        batch: inputs and targets.
        model: may tell its `target_classes`.

    Raises:
        ValueError: the loss of a target would be NaN.
    """
    y, classes = batch[1], getattr(model, "target_classes", None)
    if classes is None or y.dtype.kind not in "iu":
        return
    counted = y[y != IGNORE_INDEX]
    if counted.size and not 0 <= int(counted.min()) <= int(counted.max()) < classes:
        raise ValueError(
            f"TrainStep: every target must be from 0 to {classes - 1}, or {IGNORE_INDEX} where "
            f"none counts; got {int(counted.min())} to {int(counted.max())}: number them so, or "
            f"build the {type(model).__name__} with as many as there are"
        )
