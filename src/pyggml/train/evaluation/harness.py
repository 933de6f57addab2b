# SPDX-License-Identifier: MIT
"""Language models as lm-evaluation-harness takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import checks
from ...backend.device import alone
from ...data import ChatTemplate, Tokenizer, end_ids
from ...graph import compile
from ...models import LanguageModel, generate
from ...models.generator import check_tokens, need_language_model
from ...nn.mode import in_mode
from ...nn.weight_check import WeightCheck

__all__ = ["harness_model", "token_scores"]

_MULTIPLE = 32


def harness_model(
    model: LanguageModel,
    tokenizer: Tokenizer,
    template: ChatTemplate | None = None,
    batch_size: int = 8,
    max_tokens: int = 256,
) -> Any:
    """Return a model for `lm_eval.simple_evaluate(model=...)`.

    Args:
        model: a language model.
        tokenizer: of the model.
        template: writes conversations, for `apply_chat_template=True`.
        batch_size: texts that are read or written side by side.
        max_tokens: most tokens of an answer to a task that sets no limit.

    Returns:
        An `lm_eval.api.model.TemplateLM`. Of a longer text than the context the end counts.

    Raises:
        ImportError: the package lm_eval is missing.
        ValueError: the tokenizer has no token that begins or ends a text.

    Source: lm-evaluation-harness 0.4, lm_eval/api/model.py.
    """
    who = "harness_model"
    need_language_model(who, model)
    checks.instance(who, "tokenizer", tokenizer, Tokenizer)
    size = checks.whole(who, "batch_size", batch_size, 1)
    most = checks.whole(who, "max_tokens", max_tokens, 1)
    try:
        from lm_eval.api.model import TemplateLM
        from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
    except ModuleNotFoundError as error:
        raise ImportError(f"{who}: needs the package lm_eval; pip install lm_eval") from error
    ends = end_ids(tokenizer)
    token = tokenizer.bos_id if tokenizer.bos_id is not None else tokenizer.eos_id
    if token is None:
        raise ValueError(f"{who}: tokenizer must have a token that begins or ends a text")
    first: int = token
    context = model.config.context

    class Harness(TemplateLM):  # type: ignore[misc, unused-ignore]
        """The model."""

        tokenizer_name = type(model).__name__

        @property
        def eot_token_id(self) -> int | None:
            """The token that ends a text."""
            return tokenizer.eos_id

        @property
        def prefix_token_id(self) -> int:
            """The token that an empty text begins with."""
            return first

        def tok_encode(
            self, string: str, add_special_tokens: bool | None = None, **more: Any
        ) -> list[int]:
            """Return the tokens of a text."""
            add = tokenizer.add_bos if add_special_tokens is None else add_special_tokens
            ids = [int(n) for n in tokenizer.encode(string, parse_special=True)]
            begins = add and tokenizer.add_bos and ids[:1] != [first]
            return [first, *ids] if begins else ids

        def _loglikelihood_tokens(
            self, requests: Sequence[Any], **more: Any
        ) -> list[tuple[float, bool]]:
            pairs = [(before, after) for _, before, after in requests]
            return token_scores(model, pairs, size)

        def loglikelihood_rolling(self, requests: Sequence[Any], **more: Any) -> list[float]:
            """Return the log-probabilities of whole texts."""
            pairs, ends = [], []
            for request in requests:
                windows = get_rolling_token_windows(
                    self.tok_encode(request.args[0], add_special_tokens=False), first, context, 1
                )
                pairs += [make_disjoint_window(window) for window in windows]
                ends.append(len(pairs))
            logps = [logp for logp, _ in token_scores(model, pairs, size)]
            return [sum(logps[a:b]) for a, b in zip([0, *ends], ends, strict=False)]

        def generate_until(self, requests: Sequence[Any], **more: Any) -> list[str]:
            """Return what the model writes after texts, up to marks that end it."""
            weights, found = WeightCheck(who, model), []
            weights.check()
            for request in requests:
                found.append(_until(*request.args))
                weights.check()
            return found

        def apply_chat_template(
            self, chat_history: list[dict[str, Any]], add_generation_prompt: bool = True
        ) -> str:
            """Return a conversation as the model reads it."""
            if template is None:
                raise ValueError(f"{who}: apply_chat_template needs a template; give one")
            return template.render(chat_history, add_generation_prompt=add_generation_prompt)

    def _until(text: str, settings: dict[str, Any]) -> str:
        stops = settings.get("until") or []
        stops = [stop for stop in ([stops] if isinstance(stops, str) else stops) if stop]
        sampled = settings.get("do_sample", False)
        count = min(settings.get("max_gen_toks") or most, context - 1)
        ids = harness.tok_encode(text)[-(context - count) :] or [first]
        added = generate(
            model, ids, count, stop_ids=ends, stop_strings=stops, tokenizer=tokenizer,
            temperature=float(settings.get("temperature") or 1.0) if sampled else 0.0,
        )  # fmt: skip
        written = tokenizer.decode(added, skip_special=True)
        return written[: min((written.find(s) for s in stops if s in written), default=None)]

    harness = Harness()
    return harness


def token_scores(
    model: Any, pairs: Sequence[tuple[Sequence[int], Sequence[int]]], batch_size: int = 8
) -> list[tuple[float, bool]]:
    """Return the log-probability of each continuation, and whether it is the likeliest one.

    Args:
        model: a language model; nothing is dropped.
        pairs: tokens before and tokens after; of more than the context holds, the last count.
        batch_size: pairs that are read side by side.

    Returns:
        For each pair the log-probability, and True if each token is the likeliest of its place.

    Raises:
        RuntimeError: another thread changed the model's weights meanwhile.

    Example:
        >>> [(logp, likeliest)] = token_scores(model, [([1, 2], [3])])
        >>> logp < 0
        True
    """
    who = "token_scores"
    most = need_language_model(who, model).config.context + 1
    batch_size = checks.whole(who, "batch_size", batch_size, 1)
    pairs = [
        checks.items(who, "a pair (before, after)", pair, 2)
        for pair in checks.items(who, "pairs", pairs)
    ]
    texts = [
        check_tokens(who, [*before, *after], model.config.vocab_size)[-most:]
        for before, after in pairs
    ]
    counts = [min(len(after), len(text) - 1)
              for (_, after), text in zip(pairs, texts, strict=True)]  # fmt: skip
    found: list[tuple[float, bool]] = [(0.0, True)] * len(pairs)
    order = np.argsort([-len(text) for text in texts], kind="stable")
    weights = WeightCheck(who, model)
    with in_mode(model, training=False):
        compute = compile(lambda x, rows: model(x, rows=rows))
        for start in range(0, len(order), batch_size):
            part = order[start : start + batch_size].tolist()
            width = max(len(texts[i]) for i in part) - 1
            width = min(-(-width // _MULTIPLE) * _MULTIPLE, most - 1)
            x = np.zeros((len(part), width), np.int32)
            rows: list[int] = []
            for row, i in enumerate(part):
                size = len(texts[i]) - 1
                x[row, :size] = texts[i][:-1]
                rows += range(row * width + size - counts[i], row * width + size)
            padded = np.zeros(1 << max(0, len(rows) - 1).bit_length(), np.int32)
            padded[: len(rows)] = rows
            with alone(), weights.unchanged():
                logits = compute(x, padded).numpy()[: len(rows)].astype(np.float64)
            peak = logits.max(axis=-1)
            total = peak + np.log(np.exp(logits - peak[:, None]).sum(axis=-1))
            place = 0
            for i in part:
                span = slice(place, place + counts[i])
                chosen = logits[span][np.arange(counts[i]), texts[i][len(texts[i]) - counts[i] :]]
                found[i] = (float((chosen - total[span]).sum()), bool((chosen == peak[span]).all()))
                place += counts[i]
    return found
