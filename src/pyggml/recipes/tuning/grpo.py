# SPDX-License-Identifier: MIT
"""Training by rewards: groups of completions, scored by Python functions."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from ... import checks
from ...data import ChatTemplate, Tokenizer, encode_prompt, read_records
from ...data.fingerprint import fingerprint
from ...errors import ConfigError, FormatError, reason, shown
from ...io import atomic_write, read_regular
from ...io.names import portable
from ...models import save_lora
from ...nn.raw_bytes import checksum
from ...optim import AdamW
from ...options.agreement import check_known
from ...tensors.random import seed as set_seed
from ...train.arguments import check_callbacks, read_options
from ...train.callbacks import Callback, MetricsWriter
from ...train.checkpoints.folders import list_checkpoints, put_aside
from ...train.metrics.records import append_line
from ...train.preferences import GRPOLoss, RolloutMetrics, Rollouts
from ...train.trainer import FitResult, Trainer
from ..artifact import ArtifactDir, check_outputs
from ..run import Note, silent
from .base import prepare_model, read_base
from .model_options import TunedModelOptions

__all__ = ["GRPORun", "grpo"]

_LR, _LR_FULL = 1e-5, 1e-6
# What a reward function is told beside the columns of the data.
_TAKEN = frozenset(("prompts", "completions"))


@dataclass
class GRPORun:
    """A finished training by rewards.

    Attributes:
        model: the model.
        tokenizer: text to tokens and back.
        adapted: paths of the layers with adapters; none where all weights are trained.
        trainer: trained the model.
        path: the folder of results.
        rollouts: metrics of each rollout of this process.
        result: how the training ended.
        training_s: seconds of the optimizer's steps; `rollouts` has those of generation.
    """

    model: Any
    tokenizer: Tokenizer
    adapted: list[str]
    trainer: Trainer
    path: Path
    rollouts: list[RolloutMetrics] = field(default_factory=list)
    result: FitResult | None = None

    @property
    def generation_s(self) -> float:
        """Seconds of sampling completions."""
        return sum(each.generation_s for each in self.rollouts)

    @property
    def scoring_s(self) -> float:
        """Seconds of the reward functions and of log-probabilities under other weights."""
        return sum(each.scoring_s for each in self.rollouts)

    @property
    def training_s(self) -> float:
        """Seconds of the steps, without generation and scoring."""
        return max(0.0, self.trainer.elapsed_s - self.generation_s - self.scoring_s)

    def summary(self) -> str:
        """Return rewards and times as a line."""
        if not self.rollouts:
            return "no rollout"
        first, last = self.rollouts[0], self.rollouts[-1]
        kl = "" if last.kl is None else f", KL {last.kl:.4f}"
        return (
            f"reward {first.reward:.3f} to {last.reward:.3f}{kl}; generation "
            f"{self.generation_s:.1f} s, scoring {self.scoring_s:.1f} s, training "
            f"{self.training_s:.1f} s"
        )

    def save(self, path: str | Path | None = None) -> Path:
        """Write the adapter for llama.cpp, or the model where all weights are trained.

        Args:
            path: the file; None is `adapter.gguf` or `model.gguf` in the folder.

        Raises:
            OSError: it cannot be written.
        """
        file = _adapter(self.path) if self.adapted else self.path / "model.gguf"
        if path is not None:
            file = checks.path("GRPORun.save", "path", path)
        if self.adapted:
            save_lora(self.model, file)
        else:
            self.model.save(file, self.tokenizer)
        return file


class _Report(Callback):
    """Keeps the metrics of rollouts: in a list, in a file, and as lines of progress."""

    def __init__(self, path: Path, found: list[RolloutMetrics], note: Note) -> None:
        self._path, self._found, self._note = path, found, note

    def on_rollout(self, metrics: RolloutMetrics) -> None:
        """Keep the metrics of a rollout."""
        self._found.append(metrics)
        record = {**asdict(metrics), "tokens_per_s": metrics.tokens_per_s}
        append_line(self._path, (json.dumps(portable(record)) + "\n").encode())
        kl = "" if metrics.kl is None else f", KL {metrics.kl:.4f}"
        self._note(
            f"rollout {metrics.rollout}: reward {metrics.reward:.3f} ± {metrics.reward_std:.3f}"
            f"{kl}, {metrics.length:.1f} tokens, {metrics.ended:.0%} ended; "
            f"{metrics.tokens_per_s:,.0f} tokens/s"
        )

    def begin(self, step: int, rollout: int) -> None:
        """Put another run's lines aside, and drop those of rollouts that will be done again."""
        if step == 0:
            put_aside(self._path)
        if not self._path.exists():
            return
        lines = read_regular(self._path).decode("utf-8", "replace").splitlines(keepends=True)
        with atomic_write(self._path, "w") as file:
            file.writelines(line for line in lines if _number(line) < rollout)


def _adapter(folder: Path) -> Path:
    """Return the place of the adapter in the folder of a run."""
    return folder / "adapter.gguf"


def _number(line: str) -> float:
    """Return the number of a line's rollout; infinity for a line that was cut off."""
    try:
        return float(json.loads(line)["rollout"])
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return math.inf


def grpo(
    model: str | Path,
    data: Any,
    rewards: Callable[..., Sequence[float]] | Sequence[Callable[..., Sequence[float]]],
    *,
    num_generations: int = 8,
    prompts_per_step: int = 4,
    max_tokens: int = 64,
    beta: float = 0.0,
    epsilon: float = 0.2,
    epsilon_high: float | None = None,
    loss_type: str = "grpo",
    scale_rewards: bool = True,
    num_iterations: int = 1,
    reward_weights: Sequence[float] | None = None,
    temperature: float = 1.0,
    top_p: float | None = None,
    steps: int = 100,
    lr: float | None = None,
    seed: int = 0,
    chat_template: str | None = None,
    artifact_dir: str | Path = "artifacts/grpo",
    resume: bool = False,
    note: Note = silent,
    callbacks: Iterable[Callback] = (),
    base: Mapping[str, Any] | None = None,
    **options: Any,
) -> GRPORun:
    """Train a model by group relative policy optimization, with rewards as Python functions.

    Each step samples `num_generations` completions of each of `prompts_per_step` prompts with
    pyggml's own batched generation, scores them, and takes a step. One process on one machine does
    both in turn; the result tells the seconds of each. The folder `artifact_dir` gets adapter.gguf
    or model.gguf, metrics.jsonl, rollouts.jsonl and checkpoints.

    Args:
        model: the base: a GGUF file, a Hugging Face folder or the folder of a run.
        data: rows with `prompt`, a text or a list of messages, and further columns for the rewards;
            what `pyggml.data.read_records` takes.
        rewards: a function or several, called with `prompts`, `completions` and the columns of
            `data`, by name and as lists, None where a row has no such column; each returns a number
            for each completion.
        num_generations: completions of a prompt.
        prompts_per_step: prompts of a step.
        max_tokens: most tokens of a completion.
        beta: weight of the divergence from the base; 0 leaves it out.
        epsilon: how far below 1 the ratio of policies counts.
        epsilon_high: how far above 1; None is epsilon.
        loss_type: "grpo", "bnpo" or "dr_grpo".
        scale_rewards: divide advantages by the standard deviation of their group.
        num_iterations: steps that each rollout is used for.
        reward_weights: factors of the functions.
        temperature: of the sampling.
        top_p: sample among the likeliest tokens that together have this probability.
        steps: optimizer steps.
        lr: highest learning rate; None is 1e-5 for adapters and 1e-6 for all weights.
        seed: of prompts, sampling and adapters.
        chat_template: name or file; None takes the base's. Texts of a base without a template are
            continued as they are.
        artifact_dir: folder of the results; a new run renames a rollouts.jsonl and a metrics.jsonl
            that it finds to `NAME.left`.
        resume: go on from the last checkpoint in `artifact_dir`; give the same arguments.
        note: called with lines of progress.
        callbacks: told of the trainer's events.
        base: options of what is trained, such as `{"full": True}` or `{"lora_rank": 8}`; see
            `FinetuneConfig`.
        options: further options of the trainer, such as `clip` and `save_every`.

    Raises:
        ConfigError: an option cannot be used, or the folder holds another run.
        FormatError: base or data cannot be read, or a checkpoint is damaged.
        ValueError: a reward function returns something else than numbers that are finite in f32.
        TrainingInterrupted: a signal asked for the end; a checkpoint is written.

    Source: Shao et al. 2024, arXiv:2402.03300.

    Example:
        >>> def short(completions, **rest):
        ...     return [-len(text) for text in completions]
        >>> run = grpo("base.gguf", "prompts.jsonl", short, steps=50)  # doctest: +SKIP
        >>> run.summary()  # doctest: +SKIP
        'reward -38.100 to -4.200; generation 61.0 s, scoring 0.1 s, training 40.2 s'
    """
    who = "grpo"
    model = checks.path(who, "model", model)
    folder = checks.path(who, "artifact_dir", artifact_dir)
    checks.function(who, "note", note, "line -> None")
    resume = checks.flag(who, "resume", resume)
    callbacks = check_callbacks(who, callbacks)
    prompts_per_step = checks.whole(who, "prompts_per_step", prompts_per_step, 1)
    steps = checks.whole(who, "steps", steps, 1)
    seed = checks.whole(who, "seed", seed, 0)
    named = {n: v for n, v in options.items() if n != "schedule" or not callable(v)}
    read_options(who, None, named)
    artifact = ArtifactDir(folder)
    artifact.check_place()
    checkpoints = artifact.checkpoints
    known = checkpoints.is_dir() and bool(list_checkpoints(checkpoints))
    if known and not resume:
        raise ConfigError(
            f"`artifact_dir`={folder} holds another run: continue it with `resume`, or give "
            "another folder"
        )
    if resume and not folder.is_dir():
        raise ConfigError(
            f"`resume` needs the folder of a run; there is no {folder}: leave it out, or give "
            "another `artifact_dir`"
        )
    base = {} if base is None else base
    check_known(f"{who}: `base`", [each.name for each in fields(TunedModelOptions)], base)
    settings = TunedModelOptions(**{**base, "model": str(model)})
    rollouts_file = folder / "rollouts.jsonl"
    result = artifact.model if settings.full else _adapter(folder)
    check_outputs("`artifact_dir`", [checkpoints, artifact.metrics, rollouts_file, result])
    loss = GRPOLoss(beta, epsilon, epsilon_high, loss_type, max_tokens)
    policy, tokenizer = read_base(settings)
    rows = _rows(data)
    ids, texts = _prompts(rows, policy, tokenizer, chat_template)
    names = dict.fromkeys(name for row in rows for name in row if name != "prompt")
    columns = {name: [row.get(name) for row in rows] for name in names}
    begun = {
        "base": checksum(policy),
        "rows": fingerprint(json.dumps([dict(row) for row in rows], default=str)),
        "loss": [beta, epsilon, epsilon_high, loss_type, max_tokens],
        "sampling": [temperature, top_p, num_generations, prompts_per_step, num_iterations, seed],
    }
    set_seed(seed)
    adapted = prepare_model(policy, settings)
    found: list[RolloutMetrics] = []
    artifact.make()
    report = _Report(rollouts_file, found, note)
    rollouts = Rollouts(
        policy, tokenizer, ids, rewards, min(prompts_per_step, len(ids)), num_generations,
        max_tokens=max_tokens, texts=texts, columns=columns, reward_weights=reward_weights,
        scale_rewards=scale_rewards, num_iterations=num_iterations,
        reference=loss.needs_reference, temperature=temperature, top_p=top_p, seed=seed,
        on_rollout=report.on_rollout,
    )  # fmt: skip
    rate = (_LR_FULL if settings.full else _LR) if lr is None else lr
    trainer = Trainer(
        policy,
        rollouts,
        None,
        AdamW(policy, lr=rate, weight_decay=0.0),
        loss=loss,
        steps=steps,
        checkpoint_dir=checkpoints,
        callbacks=[MetricsWriter(artifact.metrics), *callbacks],
        save_frozen=False,
        data=begun,
        **{"warmup": min(10, steps // 10), "schedule": "constant", "seed": seed, **options},
    )
    if known:
        trainer.resume()
    elif resume:
        note("no checkpoint yet: starting at the first step")
    report.begin(trainer.step, rollouts.rollout)
    run = GRPORun(policy, tokenizer, adapted, trainer, folder, found)
    run.result = trainer.fit()
    run.save()
    note(run.summary())
    return run


def _rows(data: Any) -> list[dict[str, Any]]:
    """Return rows with a prompt each."""
    rows = list(read_records(data))
    if not rows:
        raise FormatError("`data`: needs at least one row with a prompt; got none")
    for row in rows:
        where = getattr(row, "where", "a row")
        if "prompt" not in row:
            raise FormatError(f"`data`: {where}: a row must have prompt; got {', '.join(row)}")
        if others := [name for name in row if not isinstance(name, str)]:
            raise FormatError(
                f"`data`: {where}: names of columns must be text, as the rewards get them by name; "
                f"got {shown(others[0])}"
            )
        if taken := _TAKEN.intersection(row):
            raise FormatError(
                f"`data`: {where}: a column must not have the name {min(taken)}, under which the "
                "rewards get what was sampled: rename it"
            )
    return rows


def _prompts(
    rows: Sequence[Mapping[str, Any]], model: Any, tokenizer: Tokenizer, given: str | None
) -> tuple[list[np.ndarray], list[Any]]:
    """Return the tokens of each prompt, and what the rewards are told of it."""
    template = ChatTemplate.of_model(model.metadata, tokenizer, given)
    ids, texts = [], []
    for row in rows:
        prompt, where = row["prompt"], getattr(row, "where", "a row")
        try:
            if template is not None:
                plain = isinstance(prompt, str)
                messages = [{"role": "user", "content": prompt}] if plain else prompt
                found = encode_prompt(messages, tokenizer, template)
            elif isinstance(prompt, str) and prompt:
                found = tokenizer.encode(prompt)
            else:
                raise FormatError("prompt must be a text, as the base has no chat template")
        except (TypeError, ValueError) as error:
            raise FormatError(f"`data`: {where}: {reason(error)}") from error
        ids.append(found)
        texts.append(prompt)
    return ids, texts
