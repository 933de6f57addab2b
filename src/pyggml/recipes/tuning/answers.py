# SPDX-License-Identifier: MIT
"""The loss and the answers of a model, before and after its fine-tuning."""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ...data import Documents, Tokenizer
from ...models import generate
from ...train.evaluation import evaluate
from .data import turns

__all__ = ["Answer", "Comparison", "Measurement", "answers_of", "measure"]

_PROMPT_SHOWN = 400


@dataclass(frozen=True)
class Measurement:
    """The validation loss of a model.

    Args:
        loss: mean over the trained tokens; of preferences and classes, over the rows.
        metrics: further numbers by name, such as `margin` and `accuracy` of preferences.
        is_text: the loss is that of text, which has a perplexity.
    """

    loss: float
    metrics: dict[str, float] = field(default_factory=dict)
    is_text: bool = True

    @property
    def perplexity(self) -> float:
        """The exponential of the loss."""
        return math.exp(min(self.loss, 700.0))

    def __str__(self) -> str:
        told = [f"validation loss {self.loss:.4f}"]
        told += [f"perplexity {self.perplexity:.2f}"] if self.is_text else []
        return ", ".join([*told, *(f"{name} {value:.4f}" for name, value in self.metrics.items())])


@dataclass(frozen=True)
class Answer:
    """A validation prompt, the answer of the data, and that of a model.

    Args:
        prompt: its text, of which the end is kept.
        expected: the answer of the data.
        given: that of the model.
        exact: whether the two are the same tokens.
    """

    prompt: str
    expected: str
    given: str
    exact: bool


@dataclass
class Comparison:
    """The measurements and answers of a fine-tuning, before and after.

    Args:
        before: loss of the base; None without validation data.
        after: loss of the trained weights that were exported.
        merged: loss of the merged model's file.
        base_answers: of the base.
        answers: of the trained model.
        first: the name of what was measured before: the base, or "before" where adapters that
            change it were there from the start.
    """

    before: Measurement | None = None
    after: Measurement | None = None
    merged: Measurement | None = None
    base_answers: list[Answer] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    first: str = "base"

    def rows(self) -> list[tuple[str, str]]:
        """Return the measurements as (name, text)."""
        named = ((self.first, self.before), ("trained", self.after), ("merged", self.merged))
        return [(name, str(found)) for name, found in named if found is not None]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Comparison:
        """Return what `to_dict` wrote.

        Args:
            values: JSON-ready values.
        """
        made = cls()
        for name in ("before", "after", "merged"):
            if values[name] is not None:
                setattr(made, name, Measurement(**values[name]))
        for name in ("base_answers", "answers"):
            setattr(made, name, [Answer(**each) for each in values[name]])
        made.first = values["first"]
        return made


def measure(
    model: Any, batches: Any, step: Any = None, metrics: Sequence[str] = (), is_text: bool = True
) -> Measurement | None:
    """Return the mean loss of a model over batches.

    Args:
        model: the model.
        batches: inputs and targets.
        step: a step whose recorded graphs are used; None makes one.
        metrics: computed of the logits.
        is_text: a cross-entropy is that of text.
    """
    found = evaluate(model, batches, step, metrics=metrics)
    if found is None:
        return None
    return Measurement(found.loss, found.metrics, is_text and found.perplexity is not None)


def answers_of(
    model: Any,
    documents: Documents,
    tokenizer: Tokenizer,
    count: int,
    max_tokens: int,
) -> list[Answer]:
    """Return a model's likeliest answers to the first validation prompts.

    Args:
        model: the model.
        documents: validation examples.
        tokenizer: tokens to text.
        count: most prompts.
        max_tokens: most tokens of an answer.
    """
    found = []
    for number in range(min(count, len(documents))):
        prompt, expected = turns(documents, number)
        # The mark that ends an answer is its last token, or the end of the text.
        stop_ids = {int(expected[-1])} & tokenizer.special_ids
        stop_ids |= set() if tokenizer.eos_id is None else {tokenizer.eos_id}
        most = min(max_tokens, max(1, model.config.context - 1))
        added = generate(model, prompt, most, temperature=0, stop_ids=stop_ids)
        wanted = _until(expected, stop_ids)
        wanted_text, text = (tokenizer.decode(ids, skip_special=True) for ids in (wanted, added))
        shown = tokenizer.decode(prompt)
        shown = "…" + shown[-_PROMPT_SHOWN:] if len(shown) > _PROMPT_SHOWN else shown
        found.append(Answer(shown, wanted_text, text, wanted.tolist() == list(added)))
    return found


def _until(ids: np.ndarray, stop_ids: Set[int]) -> np.ndarray:
    """Return the tokens before the first one that ends an answer."""
    ends = np.flatnonzero(np.isin(ids, list(stop_ids)))
    return ids[: ends[0]] if ends.size else ids
