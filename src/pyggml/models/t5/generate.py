# SPDX-License-Identifier: MIT
"""Writing with an encoder–decoder: read once, then token by token with a cache."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from ...backend.device import alone
from ...graph import Graph
from ...nn.mode import in_mode
from ...nn.weight_check import WeightCheck
from ...tensors import Tensor, tensor, zeros
from ..base import Model
from ..generate import check_settings, make_sampling
from ..generator import check_tokens

__all__ = ["generate_from"]

# Graphs are recorded for this many cached tokens, doubled as often as needed.
_SMALLEST_BUCKET = 32


class _Writer:
    """The decoder's graphs for one encoded sequence."""

    def __init__(self, model: Any, ids: np.ndarray, capacity: int) -> None:
        self.model = model
        self.capacity = capacity
        encoded = model.encode(tensor(ids[None], device=model.device)).detach()
        self.cache = model.new_cache(encoded, capacity)
        self.length = 0
        self._plans: dict[int, tuple[Graph, dict[str, Tensor], Tensor]] = {}

    def feed(self, token: int) -> np.ndarray:
        """Read the next token; return the logits of the one that follows it."""
        seen = _SMALLEST_BUCKET
        while seen <= self.length:
            seen *= 2
        graph, inputs, logits = self._plan(min(seen, self.capacity))
        keys = np.arange(inputs["mask"].shape[1])
        inputs["ids"].copy_(np.array([[token]], np.int32))
        inputs["positions"].copy_(np.array([self.length], np.int32))
        hidden = np.where(keys <= self.length, 0.0, -np.inf).astype(np.float32)
        inputs["mask"].copy_(hidden[None])
        inputs["buckets"].copy_(self._relative().between([self.length], keys))
        graph.run()
        self.length += 1
        return np.asarray(graph.read(logits)).reshape(-1)

    def _relative(self) -> Any:
        first: Any = self.model.decoder.block[0].layer[0]
        return first.SelfAttention.relative_attention_bias

    def _plan(self, seen: int) -> tuple[Graph, dict[str, Tensor], Tensor]:
        if seen not in self._plans:
            device = self.model.device
            inputs = {
                "ids": zeros((1, 1), dtype="i32", device=device),
                "positions": zeros((1,), dtype="i32", device=device),
                "mask": zeros((1, seen), dtype="f32", device=device),
                "buckets": zeros((1, seen), dtype="i32", device=device),
            }
            logits = self.model.decode_next(self.cache, **inputs)
            self._plans[seen] = Graph([logits], device=device), inputs, logits
        return self._plans[seen]


def generate_from(
    model: Model,
    ids: Sequence[int] | np.ndarray,
    max_tokens: int | None = None,
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    stop_ids: Collection[int] | None = None,
    callback: Callable[[int], Any] | None = None,
    **sampling: Any,
) -> list[int]:
    """Read tokens with the encoder and write others with the decoder.

    Args:
        model: the model.
        ids: tokens to read; at least one, at most the context.
        max_tokens: most tokens to write; None is the context.
        temperature: 0 takes the likeliest token; see `generate`.
        top_k: choose among the k likeliest.
        top_p: choose among the likeliest that together have this probability.
        seed: of the choices; None differs from call to call.
        stop_ids: tokens after which to stop, which are not returned; None is the
            configuration's eos_id alone.
        callback: called with every new token; returning False stops.
        sampling: further fields of `Sampling`.

    Returns:
        The new tokens, without the start token.

    Raises:
        TypeError: the model is not an encoder–decoder, or an argument is of another kind.
        ValueError: a token is outside the vocabulary, there are too many, or a setting is out of
            range.
        FormatError: the model's logits are NaN: its weights are damaged.

    Example:
        >>> model = T5(T5Config.preset("tiny", vocab_size=65))
        >>> len(generate_from(model, [5, 6, 7], 4, stop_ids=()))
        4
    """
    if not isinstance(model, Model) or not hasattr(model, "decode_next"):
        raise TypeError(
            f"generate_from: model must be a T5; got {type(model).__name__}; generate(model, ids, "
            "count) continues text"
        )
    config = model.config
    max_tokens = config.context if max_tokens is None else max_tokens
    stops = check_settings(
        "generate_from",
        max_tokens=max_tokens,
        seed=seed,
        stop_ids=(config.eos_id,) if stop_ids is None else stop_ids,
        callback=callback,
    )
    chosen = make_sampling(
        "generate_from", temperature=temperature, top_k=top_k, top_p=top_p, **sampling
    )
    max_tokens = int(max_tokens)
    tokens = check_tokens("generate_from", ids, config.vocab_size)
    if len(tokens) > config.context or max_tokens > config.context:
        raise ValueError(
            f"generate_from: ids and max_tokens must be at most the context, {config.context}; "
            f"got {len(tokens)} and {max_tokens}"
        )
    if not max_tokens:
        return []
    rng = np.random.default_rng(seed)
    written: list[int] = []
    weights = WeightCheck("generate_from", model)
    with in_mode(model, training=False):
        writer, token = _Writer(model, tokens, max_tokens), config.start_id
        while len(written) < max_tokens:
            with alone(), weights.unchanged():
                logits = writer.feed(token)
            token = chosen.choose(logits, rng, (), written)
            if token in stops:
                break
            written.append(token)
            if callback is not None and callback(token) is False:
                break
    return written
