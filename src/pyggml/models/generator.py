# SPDX-License-Identifier: MIT
"""Generator: a language model that reads tokens one after another, with a key-value cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import checks
from ..backend.device import alone
from ..backend.not_copied import NotCopied
from ..graph import Graph
from ..nn.mode import in_mode
from ..nn.weight_check import WeightCheck
from ..tensors import Tensor, zeros
from ..tensors.storage import write
from .language import LanguageModel
from .vision.image import ImageModel

__all__ = ["Generator", "check_tokens", "need_language_model"]

# Graphs are recorded per (tokens read, rows of the cache seen), both rounded up, so that a long
# generation records a handful of graphs: the rows to powers of two from here on, and the tokens,
# whose padding is computed too, to four sizes between two powers of two.
_SMALLEST_BUCKET = 32
# Most tokens that a graph reads at a time; more take more memory, and hardly less time each.
_MOST_WIDTH = 512
# What is added to the scores of seen and of hidden tokens.
_SEEN = {"f32": (np.float32(0), np.float32(-np.inf)), "f16": (np.float16(0), np.float16(-np.inf))}


@dataclass
class _Plan:
    """A recorded graph and its inputs."""

    graph: Graph
    ids: Tensor
    positions: Tensor
    masks: dict[int | None, Tensor]
    rows: Tensor
    logits: Tensor


class Generator(NotCopied):
    """A model that reads tokens one after another and remembers them.

    With a dynamic `nn.RopeScaling`, tokens beyond the original context make it read all again: the
    logits are those of one pass over all tokens, at its price.

    Args:
        model: the model; its weights are read when they are used.
        capacity: most tokens remembered of a sequence; None is the model's context.
        batch: sequences that are read side by side.

    Attributes:
        lengths: how many tokens of each sequence it remembers.

    Raises:
        TypeError: the model continues no text.
        ValueError: capacity exceeds the context, or there are several sequences and a dynamic
            `nn.RopeScaling`.

    Example:
        >>> Generator(model).feed([1, 2, 3]).shape
        (65,)
    """

    instead = "make another one, and let it read the same tokens"

    def __init__(self, model: LanguageModel, capacity: int | None = None, batch: int = 1) -> None:
        context = need_language_model("Generator", model).config.context
        self.capacity = context if capacity is None else capacity
        if not 1 <= self.capacity <= context:
            raise ValueError(
                f"Generator: capacity must be from 1 to the context {context}; got {capacity}"
            )
        self.model = model
        self.batch = checks.whole("Generator", "batch", batch, 1)
        self.lengths = [0] * self.batch
        self._tokens = np.zeros(self.capacity, np.int32)
        self._cache = model.new_cache(self.capacity, batch=self.batch)
        self._weights = WeightCheck("Generator.feed", model)
        self._plans: dict[tuple[int, int], _Plan] = {}

    @property
    def length(self) -> int:
        """The number of tokens of the longest sequence that it holds."""
        return max(self.lengths)

    def reset(self, sequence: int | None = None) -> None:
        """Forget all tokens of a sequence; None is of all."""
        if sequence is not None:
            checks.whole("Generator.reset", "sequence", sequence, 0, self.batch - 1)
        self.lengths = [
            0 if sequence in (None, i) else length for i, length in enumerate(self.lengths)
        ]

    def feed(self, ids: Sequence[int] | np.ndarray) -> np.ndarray:
        """Read tokens; return the logits of the one that follows them.

        Args:
            ids: at least one, at most what the capacity still holds.

        Shape:
            ids (T,) -> (V,)

        Raises:
            ValueError: no token, too many, or one outside the vocabulary; or there are several
                sequences.
            RuntimeError: the weights have changed since the tokens before were read.
        """
        if self.batch != 1:
            raise ValueError(
                f"Generator.feed: there are {self.batch} sequences; feed_batch reads them"
            )
        return np.asarray(self.feed_batch([ids])[0])

    def feed_batch(self, ids: Sequence[Sequence[int] | np.ndarray]) -> np.ndarray:
        """Read tokens of each sequence; return the logits of those that follow.

        Args:
            ids: for each sequence at least one, at most what the capacity still holds.

        Shape:
            ids B times (T,) -> (B, V)

        Raises:
            ValueError: no token, too many, or one outside the vocabulary; or tokens of another
                number of sequences.
            RuntimeError: the weights have changed since the tokens before were read.
        """
        who = "Generator.feed"
        each = [
            check_tokens(who, one, self.model.config.vocab_size)
            for one in checks.items(who, "ids", ids, self.batch)
        ]
        for tokens, length in zip(each, self.lengths, strict=True):
            if length + len(tokens) > self.capacity:
                raise ValueError(
                    f"{who}: at most {self.capacity} tokens are remembered; got {len(tokens)} "
                    f"after {length}; reset() and feed the last ones"
                )
        if self.batch == 1:
            each[0] = self._again(each[0])
        if max(map(len, each)) > self.capacity - self.length:
            # One sequence reads much, and another has no room for as much padding: all but the last
            # tokens are read first.
            self._read([tokens[:-1] for tokens in each])
            each = [tokens[-1:] for tokens in each]
        while max(map(len, each)) > _MOST_WIDTH:
            # Each sequence keeps a token for the last graph, which gives its logits.
            first = [tokens[: min(_MOST_WIDTH, len(tokens) - 1)] for tokens in each]
            self._read(first)
            each = [tokens[len(head) :] for tokens, head in zip(each, first, strict=True)]
        return self._read(each)

    def _read(self, each: list[np.ndarray]) -> np.ndarray:
        """Read tokens, of a sequence perhaps none; return the logits after the last ones."""
        width, longest = max(map(len, each)), self.length
        if width > 1:
            width = max(width, min(_width_bucket(width), self.capacity - longest))
        seen = min(_bucket(longest + width), self.capacity)
        plan = self._plan(width, seen)
        self._fill(plan, each, width, seen)
        if not longest:
            self._weights.reset()
        with alone(), self._weights.unchanged():
            plan.graph.run()
        self.lengths = [n + len(tokens) for n, tokens in zip(self.lengths, each, strict=True)]
        return np.asarray(plan.graph.read(plan.logits)).reshape(self.batch, -1)

    def _again(self, tokens: np.ndarray) -> np.ndarray:
        """Return what is to be read: all tokens where a dynamic RoPE turns the keys otherwise."""
        end = self.lengths[0] + len(tokens)
        self._tokens[self.lengths[0] : end] = tokens
        if not self._cache.set_length(end):
            return tokens
        self.lengths[0] = 0
        return self._tokens[:end]

    def _fill(self, plan: _Plan, each: list[np.ndarray], width: int, seen: int) -> None:
        """Write the inputs of a graph."""
        # Tokens beyond a sequence's own are padding: written after them, and hidden until they are
        # overwritten. Those beyond the cache lie on its last row, which is no token's yet.
        ids = np.zeros((self.batch, width), np.int32)
        for row, tokens in zip(ids, each, strict=True):
            row[: len(tokens)] = tokens
        at = np.asarray(self.lengths)[:, None] + np.arange(width)
        at = np.minimum(at, self.capacity - 1).astype(np.int32)
        last = [i * width + max(len(tokens), 1) - 1 for i, tokens in enumerate(each)]
        # Without the checks of `copy_`: the tokens were checked, and the rest is made here.
        write(plan.ids.node, ids)
        write(plan.positions.node, at)
        write(plan.rows.node, np.asarray(last, np.int32))
        rows = np.arange(seen)
        for window, mask in plan.masks.items():
            visible = rows <= at[..., None]
            if window is not None:
                visible &= rows > at[..., None] - window
            write(mask.node, np.where(visible, *_SEEN[mask.dtype.name]))

    def _plan(self, width: int, seen: int) -> _Plan:
        """Return the graph that reads `width` tokens and sees `seen` rows of the cache."""
        if (width, seen) not in self._plans:
            device, batch = self.model.device, self.batch
            ids = zeros((batch, width), dtype="i32", device=device)
            many = batch > 1
            positions = zeros((batch, width) if many else (width,), dtype="i32", device=device)
            shape = (batch, 1, width, seen) if many else (width, seen)
            kind = self.model.cached_mask_dtype
            masks = {
                window: zeros(shape, dtype=kind, device=device) for window in self.model.windows
            }
            rows = zeros((batch,), dtype="i32", device=device)
            given: dict[str, Any] = {"positions": positions, "mask": masks, "rows": rows}
            with alone():  # a training in another thread writes nothing in between
                logits = self._record(ids, cache=self._cache, **given)
                graph = Graph([logits], device=device)
            self._plans[width, seen] = _Plan(graph, ids, positions, masks, rows, logits)
        return self._plans[width, seen]

    def _record(self, ids: Tensor, **inputs: Any) -> Tensor:
        """The logits with nothing dropped, whatever mode the model is in."""
        with in_mode(self.model, training=False):
            logits: Tensor = self.model(ids, **inputs)
        return logits


def _width_bucket(count: int) -> int:
    """Round up by at most a quarter, or to a multiple of eight."""
    step = max(8, (1 << (count - 1).bit_length()) // 8)
    return -(-count // step) * step


def _bucket(count: int) -> int:
    """Round up to a power of two, at least the smallest bucket."""
    return max(_SMALLEST_BUCKET, 1 << (count - 1).bit_length())


def check_tokens(where: str, ids: Sequence[int] | np.ndarray, vocab_size: int) -> np.ndarray:
    """Return the tokens as a (T,) i32 array."""
    tokens = np.asarray(ids)
    if tokens.ndim != 1 or tokens.size == 0 or tokens.dtype.kind not in "iu":
        raise ValueError(
            f"{where}: the tokens must be a list of at least one integer; got shape "
            f"{tokens.shape} of {tokens.dtype}; begin an empty prompt with the end-of-text token"
        )
    if tokens.min() < 0 or tokens.max() >= vocab_size:
        raise ValueError(
            f"{where}: the tokens must be from 0 to {vocab_size - 1}; got {tokens.min()} to "
            f"{tokens.max()}: the tokenizer is another model's"
        )
    return tokens.astype(np.int32)


def need_language_model(who: str, model: Any) -> LanguageModel:
    """Return a language model; raise for any other model.

    Raises:
        TypeError: it is something else; says what does that one's work.
    """
    if isinstance(model, LanguageModel):
        return model
    others = {"t5": "T5.generate(ids) writes with it", "bert-mlm": "it names hidden tokens"}
    if isinstance(model, ImageModel):
        cure = "predict_proba(x) tells its classes"
    else:
        cure = others.get(getattr(model, "arch", ""), "build or load one that continues text")
    raise TypeError(
        f"{who}: model must be a language model, such as a GPT2, Llama or LLM; got"
        f" {type(model).__name__}: {cure}"
    )
