# SPDX-License-Identifier: MIT
"""Choosing the next token by its logits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .. import checks
from ..errors import FormatError, tell_signature

__all__ = ["Sampling", "sample"]


@dataclass(frozen=True)
class Sampling:
    """The rule that chooses the next token.

    The steps follow each other as in transformers: penalties and biases, temperature, `top_k`,
    `top_p`, `min_p`, `typical_p`; each of them looks at what the ones before have left.

    Args:
        temperature: 0 takes the likeliest token, and of equals the first; below 1 sharpens the
            choice, above 1 evens it.
        top_k: choose among the k likeliest.
        top_p: choose among the likeliest that together have this probability.
        min_p: choose among those at least this share as likely as the likeliest.
        typical_p: choose among those whose surprise is nearest to the expected one, that together
            have this probability.
        repetition_penalty: divides the positive logits of tokens that were there, in the prompt or
            after it, and multiplies the negative ones; 1 changes nothing.
        presence_penalty: subtracted from the logits of tokens that were added.
        frequency_penalty: subtracted from them as often as they were added.
        logit_bias: added to the logits of tokens, by their numbers.

    Raises:
        TypeError: a field is of another kind.
        ValueError: a number is out of range.

    Source: top-p: Holtzman et al. 2019, arXiv:1904.09751; min-p: Nguyen et al. 2024,
        arXiv:2407.01082; typical-p: Meister et al. 2022, arXiv:2202.00666; repetition penalty:
        Keskar et al. 2019, arXiv:1909.05858.

    Example:
        >>> Sampling(temperature=0).choose([0.0, 3.0, 1.0], np.random.default_rng(0))
        1
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical_p: float | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] | None = None

    def check(self, who: str) -> Sampling:
        """Check the fields; return them.

        Raises:
            TypeError: a field is of another kind.
            ValueError: a number is out of range.
        """
        checks.number(who, "temperature", self.temperature, 0.0)
        if self.top_k is not None:
            checks.whole(who, "top_k", self.top_k, 1)
        for name in ("top_p", "min_p", "typical_p"):
            if getattr(self, name) is not None:
                checks.number(who, name, getattr(self, name), most=1.0, above=0.0)
        checks.number(who, "repetition_penalty", self.repetition_penalty, above=0.0)
        checks.number(who, "presence_penalty", self.presence_penalty)
        checks.number(who, "frequency_penalty", self.frequency_penalty)
        if self.logit_bias is not None:
            if not isinstance(self.logit_bias, Mapping):
                raise TypeError(
                    f"{who}: logit_bias must be a dict of numbers by token; "
                    f"got {type(self.logit_bias).__name__}"
                )
            for token, bias in self.logit_bias.items():
                checks.whole(who, "each token of logit_bias", token, 0)
                checks.number(who, f"logit_bias[{token}]", bias)
        return self

    def choose(
        self,
        logits: ArrayLike,
        rng: np.random.Generator,
        prompt: Sequence[int] = (),
        added: Sequence[int] = (),
    ) -> int:
        """Choose a token.

        Args:
            logits: one number per token.
            rng: source of chance.
            prompt: the tokens before the first one that was chosen.
            added: the tokens that were chosen.

        Shape:
            logits (V,) -> a token

        Raises:
            FormatError: the logits are NaN or infinite: the weights are damaged.
            ShapeError: the logits have more than one axis.
            TypeError: an argument is of another kind.
            ValueError: there are no logits, or a token is not in the vocabulary.
        """
        values = np.asarray(checks.array("sample", "logits", logits, 1), np.float64)
        if not values.size:
            raise ValueError("sample: logits must have a number for each token; got none")
        checks.instance("sample", "rng", rng, np.random.Generator, "use np.random.default_rng(0)")
        if np.isnan(values).any() or np.isposinf(values).any():
            raise FormatError(
                "sample: the logits must be finite; got NaN or inf: the weights are damaged;"
                " load(path, check=True), or `pyggml check` with `weights`, names them"
            )
        values = self._penalized(values, prompt, added)
        if self.temperature == 0:
            return int(values.argmax())
        order = np.argsort(-values, kind="stable")[: self.top_k or values.size]
        # Shifted by the largest first: a tiny temperature then gives -inf at worst, never NaN.
        with np.errstate(over="ignore"):
            scores = np.exp((values[order] - values[order[0]]) / self.temperature)
        weights = scores / scores.sum()
        if self.top_p is not None:
            kept = int(np.searchsorted(np.cumsum(weights), self.top_p)) + 1
            order, weights = order[:kept], weights[:kept] / weights[:kept].sum()
        if self.min_p is not None:
            likely = weights >= self.min_p * weights[0]
            order, weights = order[likely], weights[likely] / weights[likely].sum()
        if self.typical_p is not None:
            typical = _typical(weights, self.typical_p)
            order, weights = order[typical], weights[typical] / weights[typical].sum()
        return int(order[rng.choice(len(order), p=weights)])

    def _penalized(
        self, values: np.ndarray, prompt: Sequence[int], added: Sequence[int]
    ) -> np.ndarray:
        """Return the logits after penalties and biases."""
        changed: np.ndarray = values.copy()
        if self.repetition_penalty != 1.0 and (len(prompt) or len(added)):
            seen = np.union1d(
                _tokens("prompt", prompt, changed.size)[0], _tokens("added", added, changed.size)[0]
            )
            old = changed[seen]
            factor = self.repetition_penalty
            changed[seen] = np.where(old > 0, old / factor, old * factor)
        if (self.presence_penalty or self.frequency_penalty) and len(added):
            tokens, counts = _tokens("added", added, changed.size)
            changed[tokens] -= self.presence_penalty + counts * self.frequency_penalty
        for token, bias in (self.logit_bias or {}).items():
            if token >= changed.size:
                raise ValueError(
                    f"sample: the tokens of logit_bias must be below the vocabulary's "
                    f"{changed.size}; got {token}"
                )
            changed[token] += bias
        return changed


def _tokens(name: str, given: Sequence[int], vocabulary: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the tokens that occur, sorted, and how often each does."""
    array = checks.array("sample", name, given, 1, "iu" if len(given) else None)
    tokens, counts = np.unique(array.astype(np.int64), return_counts=True)
    if tokens.size and not 0 <= tokens[0] <= tokens[-1] < vocabulary:
        raise ValueError(
            f"sample: the tokens of {name} must be from 0 to {vocabulary - 1}; got {tokens[0]} to "
            f"{tokens[-1]}"
        )
    return tokens, counts


def _typical(weights: np.ndarray, share: float) -> np.ndarray:
    """Return the places of the tokens nearest to the expected surprise, in the order given."""
    with np.errstate(divide="ignore"):
        surprise = -np.log(weights)
    expected = float(np.sum(np.where(weights > 0, weights * surprise, 0.0)))
    order = np.argsort(np.abs(surprise - expected), kind="stable")
    kept = int(np.searchsorted(np.cumsum(weights[order]), share)) + 1
    found: np.ndarray = np.sort(order[:kept])
    return found


def sample(logits: ArrayLike, rng: np.random.Generator, *args: Any, **sampling: Any) -> int:
    """Choose a token by its logits.

    Args:
        logits: one number per token.
        rng: source of chance.
        args: the first fields of `Sampling`: temperature, top_k, top_p.
        sampling: fields of `Sampling`.

    Shape:
        logits (V,) -> a token

    Raises:
        FormatError: the logits are NaN or infinite: the weights are damaged.
        ShapeError: the logits have more than one axis.
        TypeError: an argument is of another kind, or no field.

    Example:
        >>> sample([0.0, 3.0, 1.0], np.random.default_rng(0), temperature=0)
        1
    """
    try:
        rule = Sampling(*args, **sampling)
    except TypeError as error:
        tell_signature("sample", Sampling.__init__, error)
        raise
    return rule.check("sample").choose(logits, rng)
