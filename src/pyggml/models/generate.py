# SPDX-License-Identifier: MIT
"""Sampling text from a language model with a key-value cache."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .. import checks
from ..backend.device import alone
from ..errors import FormatError
from ..graph import Graph
from ..nn.mode import in_mode
from ..nn.weight_check import WeightCheck
from ..tensors import Tensor, zeros
from .language import LanguageModel
from .vision.image import ImageModel

__all__ = ["Generator", "check_settings", "check_tokens", "generate", "sample"]

# Graphs are recorded per (tokens read, rows of the cache seen), both rounded up to powers of
# two from here on, so that a long generation records a handful of graphs.
_SMALLEST_BUCKET = 32


@dataclass
class _Plan:
    """A recorded graph and its inputs."""

    graph: Graph
    ids: Tensor
    positions: Tensor
    masks: dict[int | None, Tensor]
    row: Tensor
    logits: Tensor


class Generator:
    """A model that reads tokens one after another and remembers them.

    With a dynamic `nn.RopeScaling`, tokens beyond the original context make it read all again: the
    logits are those of one pass over all tokens, at its price.

    Args:
        model: the model; its weights are read when they are used.
        capacity: most tokens remembered; None is the model's context.

    Raises:
        TypeError: the model continues no text.
        ValueError: capacity exceeds the context.

    Example:
        >>> Generator(model).feed([1, 2, 3]).shape
        (65,)
    """

    def __init__(self, model: LanguageModel, capacity: int | None = None) -> None:
        context = need_language_model("Generator", model).config.context
        self.capacity = context if capacity is None else capacity
        if not 1 <= self.capacity <= context:
            raise ValueError(
                f"Generator: capacity must be from 1 to the context {context}; got {capacity}"
            )
        self.model = model
        self.length = 0
        self._tokens = np.zeros(self.capacity, np.int32)
        self._cache = model.new_cache(self.capacity)
        self._weights = WeightCheck("Generator.feed", model)
        self._plans: dict[tuple[int, int], _Plan] = {}

    def reset(self) -> None:
        """Forget all tokens."""
        self.length = 0

    def feed(self, ids: Sequence[int] | np.ndarray) -> np.ndarray:
        """Read tokens; return the logits of the one that follows them.

        Args:
            ids: at least one, at most what the capacity still holds.

        Shape:
            ids (T,) -> (V,)

        Raises:
            ValueError: no token, too many, or one outside the vocabulary.
            RuntimeError: the weights have changed since the tokens before were read.
        """
        tokens = check_tokens("Generator.feed", ids, self.model.config.vocab_size)
        count, end = len(tokens), self.length + len(tokens)
        if end > self.capacity:
            raise ValueError(
                f"Generator.feed: at most {self.capacity} tokens are remembered; got {count} "
                f"after {self.length}; reset() and feed the last ones"
            )
        self._tokens[self.length : end] = tokens
        if self._cache.set_length(end):
            # A dynamic RoPE turns the keys of a longer sequence otherwise: read all again.
            tokens, count, self.length = self._tokens[:end], end, 0
        width = 1 if count == 1 else min(_bucket(count), self.capacity - self.length)
        seen = min(_bucket(self.length + width), self.capacity)
        plan = self._plan(width, seen)
        # Rows beyond the tokens are padding: written after them, and hidden until overwritten.
        at = self.length + np.arange(width)
        plan.ids.copy_(np.pad(tokens, (0, width - count))[None])
        plan.positions.copy_(at.astype(np.int32))
        rows = np.arange(seen)
        for window, mask in plan.masks.items():
            visible = rows <= at[:, None]
            if window is not None:
                visible &= rows > at[:, None] - window
            mask.copy_(np.where(visible, 0.0, -np.inf).astype(np.float32))
        plan.row.copy_(np.asarray([count - 1], np.int32))
        with alone():
            if self.length:
                self._weights.check()
            else:
                self._weights.begin()
            plan.graph.run()
        self.length = end
        return np.asarray(plan.graph.read(plan.logits)).reshape(-1)

    def _plan(self, width: int, seen: int) -> _Plan:
        """Return the graph that reads `width` tokens and sees `seen` rows of the cache."""
        if (width, seen) not in self._plans:
            device = self.model.device
            ids = zeros((1, width), dtype="i32", device=device)
            positions = zeros((width,), dtype="i32", device=device)
            masks = {
                window: zeros((width, seen), dtype="f32", device=device)
                for window in self.model.windows
            }
            row = zeros((1,), dtype="i32", device=device)
            logits = self._record(ids, positions=positions, mask=masks, cache=self._cache, rows=row)
            graph = Graph([logits], device=device)
            self._plans[width, seen] = _Plan(graph, ids, positions, masks, row, logits)
        return self._plans[width, seen]

    def _record(self, ids: Tensor, **inputs: Any) -> Tensor:
        """The logits with nothing dropped, whatever mode the model is in."""
        with in_mode(self.model, training=False):
            logits: Tensor = self.model(ids, **inputs)
        return logits


def generate(
    model: LanguageModel,
    prompt_ids: Sequence[int] | np.ndarray,
    max_tokens: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    stop_ids: Collection[int] = (),
    callback: Callable[[int], Any] | None = None,
) -> list[int]:
    """Continue a prompt.

    When the context is full, the newest half of it is read again and the rest forgotten:
    generation does not stop there.

    Args:
        model: the model.
        prompt_ids: at least one token; of a longer prompt the last `context` tokens count.
        max_tokens: most tokens to add, >= 0.
        temperature: 0 takes the likeliest token; below 1 sharpens the choice, above 1 evens it.
        top_k: choose among the k likeliest.
        top_p: choose among the likeliest that together have this probability.
        seed: of the choices; None differs from call to call.
        stop_ids: tokens after which to stop; they are not returned.
        callback: called with every new token; returning False stops.

    Returns:
        The new tokens.

    Raises:
        TypeError: the model continues no text, or an argument is of another kind.
        ValueError: the prompt is empty or outside the vocabulary, or a setting is out of range.
        FormatError: the model's logits are NaN: its weights are damaged.
        RuntimeError: another thread changed the model's weights meanwhile; see `pyggml.alone`.

    Example:
        >>> len(generate(model, [1, 2, 3], 5, temperature=0))
        5
    """
    need_language_model("generate", model)
    stops = check_settings(
        "generate",
        max_tokens=max_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        stop_ids=stop_ids,
        callback=callback,
    )
    max_tokens = int(max_tokens)
    tokens = [int(i) for i in check_tokens("generate", prompt_ids, model.config.vocab_size)]
    # No more memory than the tokens need; the context of a large model may be far longer.
    generator = Generator(model, min(model.config.context, len(tokens) + max_tokens))
    rng = np.random.default_rng(seed)
    added: list[int] = []
    pending = tokens[-generator.capacity :]
    while len(added) < max_tokens:
        logits = generator.feed(pending)
        token = sample(logits, rng, temperature, top_k, top_p)
        if token in stops:
            break
        added.append(token)
        tokens.append(token)
        if callback is not None and callback(token) is False:
            break
        pending = [token]
        if generator.length == generator.capacity:
            generator.reset()
            pending = tokens[-max(1, generator.capacity // 2) :]
    return added


def sample(
    logits: ArrayLike,
    rng: np.random.Generator,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> int:
    """Choose a token by its logits.

    Args:
        logits: one number per token.
        rng: source of chance.
        temperature: 0 takes the likeliest, and of equals the first.
        top_k: choose among the k likeliest.
        top_p: choose among the likeliest that together have this probability.

    Shape:
        logits (V,) -> a token

    Raises:
        FormatError: the logits are NaN or infinite: the weights are damaged.

    Source: top-p: Holtzman et al. 2019, arXiv:1904.09751.

    Example:
        >>> sample([0.0, 3.0, 1.0], np.random.default_rng(0), temperature=0)
        1
    """
    values = np.asarray(logits, np.float64)
    if np.isnan(values).any() or np.isposinf(values).any():
        raise FormatError(
            "sample: the logits must be finite; got NaN or inf: the weights are damaged;"
            " load(path, check=True) names them"
        )
    if temperature == 0:
        return int(values.argmax())
    order = np.argsort(-values, kind="stable")[: top_k or values.size]
    # Shifted by the largest first: a tiny temperature then gives -inf at worst, never NaN.
    with np.errstate(over="ignore"):
        scores = np.exp((values[order] - values[order[0]]) / temperature)
    weights = scores / scores.sum()
    if top_p is not None:
        kept = int(np.searchsorted(np.cumsum(weights), top_p)) + 1
        order, weights = order[:kept], weights[:kept] / weights[:kept].sum()
    return int(order[rng.choice(len(order), p=weights)])


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


def check_settings(
    who: str,
    *,
    max_tokens: Any,
    temperature: Any,
    top_k: Any,
    top_p: Any,
    seed: Any,
    stop_ids: Any,
    callback: Any,
) -> frozenset[int]:
    """Check the settings of `generate`; return the tokens that end it.

    Raises:
        ValueError: a number is out of range.
        TypeError: an argument is of another kind.
    """
    checks.whole(who, "max_tokens", max_tokens, 0)
    checks.number(who, "temperature", temperature, 0.0)
    if top_k is not None:
        checks.whole(who, "top_k", top_k, 1)
    if top_p is not None:
        checks.number(who, "top_p", top_p, most=1.0, above=0.0)
    if seed is not None:
        checks.whole(who, "seed", seed, 0)
    if callback is not None:
        checks.function(who, "callback", callback, "token -> None, or False to stop")
    stops = checks.items(who, "stop_ids", stop_ids)
    return frozenset(checks.whole(who, "each of stop_ids", token) for token in stops)
