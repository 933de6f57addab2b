# SPDX-License-Identifier: MIT
"""Batches of completions that the model itself writes, with their advantages."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ... import checks
from ...backend.device import alone
from ...backend.device import device as find_device
from ...backend.not_copied import NotCopied
from ...data import Batch, Documents, Tokenizer
from ...data.fingerprint import fingerprint
from ...errors import OutOfMemoryError
from ...graph import compile
from ...models import generate, generation_settings
from ...nn.mode import in_mode
from ...tensors import Tensor
from .logps import padded, token_logps
from .policy import group_advantages
from .rewards import Reward, check_rewards, score
from .rollout_metrics import RolloutMetrics

__all__ = ["Rollouts"]

# Values of settings of the sampling that leave the model's probabilities as they are.
_NEUTRAL = {
    "top_k": 2**31 - 1, "top_p": 1.0, "min_p": 1e-30, "typical_p": 1.0, "repetition_penalty": 1.0,
}  # fmt: skip
# Of a token of a batch: its number, its target and its place in three lists of Python.
_TOKEN_BYTES = 32
# Log-probabilities of two machines differ by less, in relation.
_SAME_LOGP = 1e-3
# Marks that end an answer in the templates of chats.
_ENDS = ("<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>", "<|eom_id|>")


class Rollouts(NotCopied):
    """Endless batches of completions for `GRPOLoss`; give it to a `Trainer` as its loader.

    Each batch has `num_generations` completions of each of `batch_size` prompts, sampled side by
    side from the model as it is when the batch is asked for. A run that is resumed samples the same
    completions as one that was not interrupted, where `num_iterations` is 1; with a reference, give
    it the model as it was before the training, and call `Trainer.resume` then.

    Args:
        model: the model that is trained.
        tokenizer: ids to text.
        prompts: token ids of each.
        rewards: a function or several, called with `prompts`, `completions` and `columns`, all by
            name and as lists of one value for each completion; each returns a number for each.
        batch_size: prompts of a batch.
        num_generations: completions of a prompt, G >= 2.
        max_tokens: most tokens of a completion.
        texts: what `prompts` stand for, given to the functions; None decodes them.
        columns: further values for each prompt by name, such as the right answers.
        reward_weights: factors of the functions; None is 1 for each.
        scale_rewards: divide advantages by the standard deviation of their group.
        num_iterations: steps that each batch is used for.
        reference: the batches have log-probabilities under the weights that the model has now: a
            copy of the model is kept, which shares the frozen weights.
        temperature: of the sampling. The loss takes probabilities at temperature 1.
        top_p: see `pyggml.models.generate`; None takes all tokens.
        stop_ids: tokens that end a completion; None is the end-of-text token, marks such as
            `<|im_end|>`, and those that the model's makers chose.
        seed: of the order of prompts and of the sampling.
        on_rollout: called with the `RolloutMetrics` of each rollout.

    Attributes:
        last: metrics of the last rollout, or None.

    Shape:
        batch: x, y (B G, T), advantages (B G,), and perhaps old_logps, ref_logps (B G, T)

    Raises:
        TypeError: an argument is of another kind.
        ValueError: a number is out of range, or a prompt with its completion exceeds the context.
        OutOfMemoryError: there is no room for the tokens of a batch.

    Source: Shao et al. 2024, arXiv:2402.03300.

    Example:
        >>> tokenizer = Tokenizer.chars(["abc"])
        >>> def short(completions, **rest):
        ...     return [-len(text) for text in completions]
        >>> rollouts = Rollouts(model, tokenizer, [[1, 2]], short, 1, 2, max_tokens=3, stop_ids=[0])
        >>> batch = next(rollouts)
        >>> batch.inputs["advantages"].shape
        (2,)
    """

    instead = "make another one of the copied model, and give it state_dict()"

    def __init__(
        self,
        model: Any,
        tokenizer: Tokenizer,
        prompts: Sequence[Any],
        rewards: Reward | Sequence[Reward],
        batch_size: int = 4,
        num_generations: int = 8,
        *,
        max_tokens: int = 64,
        texts: Sequence[Any] | None = None,
        columns: Mapping[str, Sequence[Any]] | None = None,
        reward_weights: Sequence[float] | None = None,
        scale_rewards: bool = True,
        num_iterations: int = 1,
        reference: bool = False,
        temperature: float = 1.0,
        top_p: float | None = None,
        stop_ids: Sequence[int] | None = None,
        seed: int = 0,
        on_rollout: Callable[[RolloutMetrics], None] | None = None,
    ) -> None:
        who = "Rollouts"
        self.model = model
        self._tokenizer = checks.instance(who, "tokenizer", tokenizer, Tokenizer)
        self._prompts = Documents.of(checks.items(who, "prompts", prompts))
        ids = list(self._prompts)
        if not ids or any(not each.size for each in ids):
            raise ValueError(f"{who}: prompts must hold tokens; got an empty one, or none")
        self.batch_size = checks.whole(who, "batch_size", batch_size, 1)
        if self.batch_size > len(ids):
            raise ValueError(
                f"{who}: batch_size must be at most the {len(ids)} prompts; got {batch_size}"
            )
        self.num_generations = checks.whole(who, "num_generations", num_generations, 2)
        self.max_tokens = checks.whole(who, "max_tokens", max_tokens, 1)
        longest, context = int(self._prompts.lengths.max()), model.config.context
        if longest + self.max_tokens > context:
            raise ValueError(
                f"{who}: a prompt and max_tokens must fit into the context {context}; got {longest}"
                f" and {max_tokens}: lower max_tokens, or leave out long prompts"
            )
        self.seq_len = longest + self.max_tokens - 1
        rows = self.batch_size * self.num_generations
        if not find_device("cpu").has_memory(_TOKEN_BYTES * rows * (self.seq_len + 1)):
            raise OutOfMemoryError(
                f"{who}: {rows:,} completions of up to {self.seq_len + 1} tokens must fit into the "
                "memory; lower num_generations or batch_size"
            )
        self.rewards = check_rewards(who, rewards)
        weights = [1.0] * len(self.rewards) if reward_weights is None else reward_weights
        weights = checks.items(who, "reward_weights", weights, len(self.rewards))
        self._factors = np.array([checks.f32(who, "each of reward_weights", w) for w in weights])
        given = [self._tokenizer.decode(p) for p in ids] if texts is None else texts
        self._texts = list(checks.items(who, "texts", given))
        more = {} if columns is None else checks.mapping(who, "columns", columns)
        self._columns = {
            checks.text(who, "each name of columns", name): list(checks.items(who, name, values))
            for name, values in more.items()
        }
        for name, values in {"texts": self._texts, **self._columns}.items():
            if len(values) != len(ids):
                raise ValueError(
                    f"{who}: {name} must have a value for each of {len(ids)} prompts; got "
                    f"{len(values)}"
                )
        self._scaled = checks.flag(who, "scale_rewards", scale_rewards)
        self._iterations = checks.whole(who, "num_iterations", num_iterations, 1)
        # What the model's makers chose for its use would be sampled off the policy.
        settings = generation_settings(model)
        self._sampling: dict[str, Any] = {
            **{name: value for name, value in _NEUTRAL.items() if name in settings},
            "temperature": checks.number(who, "temperature", temperature, above=0.0),
        }
        if top_p is not None:
            self._sampling["top_p"] = checks.number(who, "top_p", top_p, most=1.0, above=0.0)
        ends = (tokenizer.eos_id, *map(tokenizer.token_id, _ENDS))
        own = {number for number in ends if number is not None}
        own |= set(settings.get("stop_ids", ()))
        if stop_ids is not None:
            ids_given = checks.items(who, "stop_ids", stop_ids)
            own = {checks.whole(who, "each of stop_ids", number, 0) for number in ids_given}
        self.stop_ids = frozenset(own)
        self.seed = checks.whole(who, "seed", seed, 0)
        if on_rollout is not None:
            checks.function(who, "on_rollout", on_rollout, "RolloutMetrics -> None")
        self._on_rollout = on_rollout
        self._logps_of = [_logps_by(model)]
        self._shared: list[Tensor] = []
        self._first_logp: float | None = None
        if checks.flag(who, "reference", reference):
            self._shared = [p for p in model.parameters() if not p.requires_grad]
            self._logps_of.append(_logps_by(self._copy()))
            # Stands for the reference in states: of the first prompt under it.
            x, y = padded(Documents.of(ids[:1]), [0], context)
            self._first_logp = float(self._logps_of[1](x, y).sum())
        self.last: RolloutMetrics | None = None
        self.rollout = self.position = 0
        self._batch: Batch | None = None

    def _copy(self) -> Any:
        """Return a copy of the model, with the frozen parameters themselves."""
        try:
            return copy.deepcopy(self.model, {id(p): p for p in self._shared})
        except TypeError as error:
            raise TypeError(
                f"Rollouts: reference=True copies the model, which must allow it; got: {error}:"
                " take what cannot be copied out of the model's attributes meanwhile"
            ) from error

    @property
    def dataset(self) -> Rollouts:
        """The object itself, which tells `seq_len`."""
        return self

    def __len__(self) -> int:
        """Batches in which each prompt is used once."""
        return max(1, len(self._prompts) // self.batch_size) * self._iterations

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        if self._batch is None:
            self._batch = self._make()
        batch = self._batch
        self.position += 1
        if self.position >= self._iterations:
            self.rollout, self.position, self._batch = self.rollout + 1, 0, None
        return batch

    def once(self) -> Iterator[Batch]:
        """Yield a batch of the largest shape, for the memory plan; nothing is sampled."""
        count = self.batch_size * self.num_generations
        ids = np.zeros(self.seq_len + 1, np.int32)
        rows = Documents.of([ids] * count)
        x, y = padded(rows, range(count), self.model.config.context)
        inputs = {"advantages": np.zeros(count, np.float32)}
        inputs |= {name: np.zeros(x.shape, np.float32) for name in self._names()}
        yield Batch(x, y, **inputs)

    def state_dict(self) -> dict[str, Any]:
        """Return the place, for `load_state_dict`."""
        place = {"rollout": self.rollout, "position": self.position}
        return {**place, "first_logp": self._first_logp, **self._fixed()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a place.

        Args:
            state: what `state_dict` returned.

        Raises:
            ValueError: the state is of other prompts or options.

        Warns:
            UserWarning: the reference is another model than when the state was saved.
        """
        who = "Rollouts.load_state_dict"
        checks.mapping(who, "state", state)
        for name, value in self._fixed().items():
            if state.get(name) != value:
                raise ValueError(
                    f"{who}: {name} must be as when the state was saved; got {value} here, "
                    f"{state.get(name)} in the state; use the same prompts and options"
                )
        rollout = checks.whole(who, "rollout", state.get("rollout"), 0)
        position = checks.whole(who, "position", state.get("position"), 0)
        now, then = self._first_logp, state.get("first_logp")
        if now is not None:
            then = checks.number(who, "first_logp", then)
            if abs(now - then) > _SAME_LOGP * max(1.0, abs(then)):
                warnings.warn(
                    f"{who}: the reference gives the first prompt the log-probability {now:.6g},"
                    f" and {then:.6g} when the state was saved: give Rollouts the model as it was"
                    " before the training, then resume",
                    stacklevel=2,
                )
        self.rollout, self.position = rollout, position
        self._batch = None

    def _fixed(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "batch_size": self.batch_size,
            "num_generations": self.num_generations,
            "max_tokens": self.max_tokens,
            "num_iterations": self._iterations,
            "scale_rewards": self._scaled,
            "reward_weights": self._factors.tolist(),
            "temperature": self._sampling["temperature"],
            "top_p": self._sampling.get("top_p"),
            "stop_ids": sorted(self.stop_ids),
            "reference": len(self._logps_of) > 1,
            "data": int(fingerprint(self._prompts.fingerprint())),
        }

    def _names(self) -> list[str]:
        """Return the names of the log-probabilities that a batch has."""
        return ["old_logps"] * (self._iterations > 1) + ["ref_logps"] * (len(self._logps_of) > 1)

    def _chosen(self) -> np.ndarray:
        """Return the numbers of a rollout's prompts: each comes once in an epoch."""
        found: list[int] = []
        at = self.rollout * self.batch_size
        while len(found) < self.batch_size:
            epoch, place = divmod(at + len(found), len(self._prompts))
            order = np.random.default_rng([self.seed, epoch]).permutation(len(self._prompts))
            found += order[place : place + self.batch_size - len(found)].tolist()
        return np.repeat(found, self.num_generations)

    def _make(self) -> Batch:
        """Sample completions, and score them."""
        began = time.perf_counter()
        numbers = self._chosen()
        prompts = [self._prompts[int(i)] for i in numbers]
        added = self._write(prompts)
        written = time.perf_counter()
        stops = np.array(sorted(self.stop_ids), np.int32)
        completions = [
            self._tokenizer.decode(ids[:-1] if np.isin(ids[-1:], stops).any() else ids)
            for ids in (np.asarray(each, np.int32) for each in added)
        ]
        columns = {n: [values[i] for i in numbers] for n, values in self._columns.items()}
        texts = [self._texts[i] for i in numbers]
        scores = score(self.rewards, texts, completions, columns)
        totals = self._factors @ scores
        advantages = group_advantages(totals, self.num_generations, self._scaled)
        ids = [np.concatenate([p, a]).astype(np.int32) for p, a in zip(prompts, added, strict=True)]
        flags = [np.arange(i.size) >= p.size for i, p in zip(ids, prompts, strict=True)]
        x, y = padded(Documents.of(ids, flags), range(len(ids)), self.model.config.context)
        logps, kl = self._logps(x, y)
        lengths = np.array([len(each) for each in added])
        ended = np.array([each[-1] in self.stop_ids for each in added])
        groups = totals.reshape(-1, self.num_generations)
        names = [getattr(each, "__name__", type(each).__name__) for each in self.rewards]
        best = int(totals.argmax())
        self.last = RolloutMetrics(
            self.rollout,
            float(totals.mean()),
            float(groups.std(axis=1).mean()),
            {name: float(row.mean()) for name, row in zip(names, scores, strict=True)},
            float(lengths.mean()),
            float(ended.mean()),
            int(lengths.sum()),
            written - began,
            time.perf_counter() - written,
            kl,
            [(str(texts[best]), completions[best], float(totals[best]))],
        )
        if self._on_rollout is not None:
            self._on_rollout(self.last)
        return Batch(x, y, advantages=advantages, **logps)

    def _write(self, prompts: Sequence[np.ndarray]) -> list[list[int]]:
        """Return a completion of each prompt, with the token that ended it."""
        state = np.random.SeedSequence([self.seed, self.rollout]).generate_state(1)
        found: list[list[int]] = generate(
            self.model,
            prompts,
            self.max_tokens,
            seed=int(state[0]),
            stop_ids=(),  # the callback stops after them: they are learned, too
            callback=lambda _, token: token not in self.stop_ids,
            **self._sampling,
        )
        return found

    def _logps(self, x: np.ndarray, y: np.ndarray) -> tuple[dict[str, np.ndarray], float | None]:
        """Return log-probabilities under the sampler and the reference, and their divergence."""
        found: dict[str, np.ndarray] = {}
        kl = None
        if not self._names():
            return found, kl
        if any(p.requires_grad for p in self._shared):
            raise RuntimeError(
                "Rollouts: the parameters that were frozen when it was made must stay frozen, as"
                " its reference shares them; unfreeze them before, or make another one"
            )
        with alone():
            own, *others = (logps(x, y) for logps in self._logps_of)
        if self._iterations > 1:
            found["old_logps"] = own
        for reference in others:
            found["ref_logps"] = reference
            away = (reference - own).astype(np.float64)
            kl = float((np.expm1(away) - away).sum() / max(1, int((y >= 0).sum())))
        return found, kl


def _logps_by(model: Any) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Return a function of log-probabilities under a model, which is not in training mode then."""
    recorded = compile(lambda x, y: token_logps(model, x, y))

    def logps(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        with in_mode(model, training=False):
            found: np.ndarray = recorded(x, y).numpy()
        return found

    return logps
