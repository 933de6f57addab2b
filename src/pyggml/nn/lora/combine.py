# SPDX-License-Identifier: MIT
"""Several adapters as one, with weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ... import checks
from .kinds import lora_class

__all__ = ["Factors", "combine_lora"]

_WAYS = ("cat", "linear", "svd")


@dataclass(frozen=True)
class Factors:
    """The numbers of an adapter of one layer.

    Attributes:
        a: as the layer's `lora_A.weight`.
        b: as the layer's `lora_B.weight`.
        scale: factor of their product.
        magnitude: of DoRA, or None.
    """

    a: np.ndarray
    b: np.ndarray
    scale: float
    magnitude: np.ndarray | None = None


def combine_lora(
    layers: Mapping[str, Any],
    adapters: Sequence[Mapping[str, Factors]],
    weights: Sequence[float],
    combination_type: str = "cat",
) -> dict[str, Factors]:
    """Return one adapter that stands for several, each times its weight.

    Args:
        layers: the plain layers by path.
        adapters: the numbers of each adapter, by the path of the layer; not all need every layer.
        weights: of the adapters.
        combination_type: "cat" adds their products, exactly, at the sum of their ranks; "svd"
            takes the nearest of the largest rank among them; "linear" sums A and B, each times the
            root of weight and scale, which needs equal ranks and is another thing than the sum.

    Raises:
        ValueError: the numbers of adapters and weights differ, one is not finite, ranks differ
            with "linear", or an adapter is of DoRA.

    Source: add_weighted_adapter of PEFT, with its names; its "svd" and "linear" are these.
    """
    who = "combine_lora"
    checks.choice(who, "combination_type", combination_type, _WAYS)
    shares = [checks.f32(who, "weights", weight) for weight in weights]
    if len(shares) != len(adapters) or not adapters:
        raise ValueError(
            f"{who}: weights must be one for each adapter; got {len(shares)} of {len(adapters)}"
        )
    found: dict[str, Factors] = {}
    for path, layer in layers.items():
        parts = [(each[path], w) for each, w in zip(adapters, shares, strict=True) if path in each]
        if not parts:
            continue
        if any(part.magnitude is not None for part, _ in parts):
            raise ValueError(
                f"{who}: adapters of DoRA do not add up; got one for {path}: merge each into the "
                "model by itself"
            )
        found[path] = _combined(who, path, layer, parts, combination_type)
    return found


def _combined(
    who: str, path: str, layer: Any, parts: Sequence[tuple[Factors, float]], way: str
) -> Factors:
    """Combine the adapters of a layer."""
    kind = lora_class(layer)
    assert kind is not None
    halves = [kind.split(part.a, part.b) for part, _ in parts]
    factors = [np.float32(part.scale * weight) for part, weight in parts]
    ranks = [left.shape[-1] for left, _ in halves]
    if way == "linear":
        if len(set(ranks)) > 1:
            raise ValueError(
                f'{who}: combination_type="linear" needs adapters of one rank; got {ranks} for '
                f'{path}: choose "cat" or "svd"'
            )
        a = sum(
            np.sign(f) * np.sqrt(abs(f)) * p.a for f, (p, _) in zip(factors, parts, strict=True)
        )
        b = sum(np.sqrt(abs(f)) * p.b for f, (p, _) in zip(factors, parts, strict=True))
        return Factors(np.asarray(a, np.float32), np.asarray(b, np.float32), 1.0)
    left = np.concatenate([h[0] * f for f, h in zip(factors, halves, strict=True)], axis=-1)
    right = np.concatenate([h[1] for h in halves], axis=-2)
    rank = max(ranks)
    if way == "svd" or left.shape[-1] > max(left.shape[-2], right.shape[-1]):
        # Beyond both widths a rank says no more.
        rank = rank if way == "svd" else max(left.shape[-2], right.shape[-1])
        u, s, v = np.linalg.svd(left @ right, full_matrices=False)
        rank = min(rank, s.shape[-1])
        left, right = u[..., :rank] * s[..., None, :rank], v[..., :rank, :]
    a, b = kind.join(left, right, layer.weight.shape)
    return Factors(np.ascontiguousarray(a), np.ascontiguousarray(b), 1.0)
