# SPDX-License-Identifier: MIT
"""The configuration of a fine-tuning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from typing import Any, ClassVar

from ...data.text.chat import BUILTIN_TEMPLATES, CHAT_FORMATS
from ...errors import ConfigError, shown
from ...models.quantization import MIXES
from ...options import Options, option
from ...train.options import VALIDATION, TrainerOptions
from ..configuration import Configuration
from ..options import MachineOptions, OptimizerOptions, OutputOptions, check_agreement

__all__ = [
    "FinetuneConfig",
    "FinetuneDataOptions",
    "FinetuneOutputOptions",
    "TunedModelOptions",
    "read_weight",
]

# Learning rates that suit small matrices that begin at zero, and weights that are good already.
LR_LORA, LR_FULL = 2e-4, 2e-5
TOO_LONG = ("cut", "split", "drop")
TRAIN_ON = ("answers", "last", "all")
# What the options of adapters need.
_ADAPTERS = "adapters"
_NEW_ADAPTERS = "new adapters"
_BASE = "base"
_MOST_TIMES = 1000


def _read_mix(name: str) -> str:
    known = {mix.lower(): mix for mix in MIXES}
    if name.lower() not in known:
        raise ValueError(
            f"must be a mix such as Q8_0; got {shown(name)}: choose one of {', '.join(MIXES)}"
        )
    return known[name.lower()]


def _read_merge(name: str) -> str:
    return _BASE if name.lower() == _BASE else _read_mix(name)


def read_weight(text: str) -> tuple[str, float]:
    """Return the file and the factor of a text FILE=FACTOR.

    Args:
        text: the text.

    Raises:
        ValueError: the text is not of this form, or the factor is not above 0.

    Example:
        >>> read_weight("more.jsonl=0.5")
        ('more.jsonl', 0.5)
    """
    file, _, number = text.rpartition("=")
    try:
        factor = float(number)
    except ValueError:
        factor = 0.0
    if not file or not 0 < factor <= _MOST_TIMES:
        raise ValueError(
            f"must be FILE=FACTOR with a factor above 0 and at most {_MOST_TIMES}; got "
            f"{shown(text)}: try chats.jsonl=0.5"
        )
    return file, factor


def _read_weights(texts: tuple[str, ...]) -> tuple[str, ...]:
    for text in texts:
        read_weight(text)
    return texts


@dataclass(frozen=True, kw_only=True)
class TunedModelOptions(Options):
    """The base model of a fine-tuning, and the part of it that is trained.

    Example:
        >>> TunedModelOptions(model="base.gguf", lora_rank=8).value("lora_rank")
        8
    """

    model: str = option(
        MISSING,
        "The base: a GGUF file of any type, a Hugging Face folder, or the folder of a run.",
        is_path=True,
        metavar="MODEL",
        on_resume="free",
    )
    tokenizer: str | None = option(
        None,
        "A tokenizer JSON file, or a GGUF file, instead of the base's own.",
        is_path=True,
        metavar="FILE",
        chosen="that of the base",
        on_resume="free",
    )
    full: bool = option(
        False, "Train all weights as f32 instead of adapters (LoRA).", on_resume="same"
    )
    qat: str | None = option(
        None,
        "Train with the weights rounded to a mix of llama.cpp, such as q4_0, which model.gguf then "
        "has.",
        metavar="TYPE",
        read=_read_mix,
        needs=("full",),
        on_resume="same",
    )
    qat_every: int = option(
        1, "Steps between roundings.", least=1, needs=("qat",), on_resume="same"
    )
    adapter: str | None = option(
        None,
        "An adapter to go on from: a GGUF file or a PEFT folder; its rank and layers stay.",
        is_path=True,
        metavar="PATH",
        needs=(_ADAPTERS,),
        on_resume="free",
    )
    lora_rank: int | None = option(
        None,
        "Width of the adapters.",
        least=1,
        otherwise=16,
        needs=(_NEW_ADAPTERS,),
        on_resume="same",
    )
    lora_alpha: float | None = option(
        None,
        "Scale of the adapters times the rank.",
        above=0,
        chosen="`lora_rank`, a scale of 1",
        needs=(_NEW_ADAPTERS,),
        on_resume="same",
    )
    lora_dropout: float | None = option(
        None,
        "Probability that an element of an adapter's input is dropped in training.",
        least=0,
        below=1,
        chosen="0",
        needs=(_ADAPTERS,),
        on_resume="same",
    )
    targets: tuple[str, ...] = option(
        (),
        "Layers that get adapters: ends of their names, such as q_proj, or globs of whole names.",
        metavar="NAME",
        needs=(_NEW_ADAPTERS,),
        on_resume="same",
    )
    rslora: bool = option(
        False,
        "Scale by `lora_alpha` / sqrt(rank) instead of `lora_alpha` / rank.",
        needs=(_NEW_ADAPTERS,),
        on_resume="same",
    )
    dora: bool = option(
        False,
        "Train the norms of the rows of the weights, too (DoRA); llama.cpp needs the merged model.",
        needs=(_NEW_ADAPTERS,),
        on_resume="same",
    )
    lora_init: str | None = option(
        None,
        "How adapters begin: gaussian, pissa, pissa_niter_16 or loftq; on a quantised base the "
        "last ones need `originals`.",
        metavar="NAME",
        chosen="with a product of zero",
        needs=(_NEW_ADAPTERS,),
        on_resume="same",
    )
    originals: str | None = option(
        None,
        "The base before it was quantised: a GGUF file or a Hugging Face folder.",
        is_path=True,
        metavar="MODEL",
        needs=("lora_init",),
        on_resume="free",
    )
    rank_pattern: dict[str, Any] = option(
        {},
        "Other ranks of some layers, such as down_proj=32.",
        metavar="NAME=RANK",
        needs=(_NEW_ADAPTERS,),
        on_resume="same",
    )
    freeze: tuple[str, ...] = option(
        (),
        "Parameters that stay as they are, such as '*embed*'; they keep their types and stay "
        "mapped. A layer of these gets no adapter.",
        metavar="PATTERN",
        on_resume="same",
    )

    def missing(self) -> Mapping[str, tuple[str, str]]:
        """Return that there are no adapters, or none that are made anew."""
        if self.full:
            lacks = ("`full`", "leave one of them out")
            return {_ADAPTERS: lacks, _NEW_ADAPTERS: lacks}
        if self.adapter is not None:
            return {_NEW_ADAPTERS: ("`adapter`, which has its own", "leave one of them out")}
        return {}


@dataclass(frozen=True, kw_only=True)
class FinetuneDataOptions(Options):
    """The chats of a fine-tuning, and their rows.

    Example:
        >>> FinetuneDataOptions(data="chats.jsonl", seq_len=512).data
        ('chats.jsonl',)
    """

    data: tuple[str, ...] = option(
        MISSING,
        "Files of chats: JSONL, CSV or Parquet with messages, conversations (ShareGPT), "
        "instruction and output (Alpaca), prompt and completion, or text.",
        is_path=True,
        metavar="FILE",
        on_resume="free",
    )
    data_weight: tuple[str, ...] = option(
        (),
        "Times that the chats of a file of `data` are taken, such as more.jsonl=0.5.",
        metavar="FILE=FACTOR",
        read=_read_weights,
        on_resume="same",
    )
    format: str | None = option(
        None,
        "Format of the rows.",
        choices=CHAT_FORMATS,
        chosen="by the columns of each file",
        on_resume="same",
    )
    chat_template: str | None = option(
        None,
        "Template of the chats: " + ", ".join(BUILTIN_TEMPLATES) + ", or a file with one.",
        metavar="NAME|FILE",
        chosen="that of the base; where it has none, one that suits its special tokens",
        on_resume="same",
    )
    system: str | None = option(
        None,
        "System message of the chats that have none.",
        metavar="TEXT",
        on_resume="same",
    )
    train_on: str = option(
        "answers",
        "Tokens that the loss counts: answers of the assistant, last for the last answer of each "
        "chat, or all.",
        choices=TRAIN_ON,
        on_resume="same",
    )
    skip_bad: bool = option(
        False, "Leave out and count rows that cannot be read or written.", on_resume="same"
    )
    unique: bool = option(False, "Take chats of the same content once.", on_resume="same")
    val_fraction: float = option(
        0.1,
        "Share of the chats for validation, chosen at random; 0 switches it off.",
        least=0,
        below=1,
        on_resume="same",
    )
    seq_len: int | None = option(
        None,
        "Tokens of a row.",
        least=1,
        unit="tokens",
        chosen="the longest chat, at most 1024 and the context of the base",
        on_resume="same",
    )
    too_long: str = option(
        "cut",
        "Treatment of chats that are longer than a row: cut keeps the beginning, split makes parts "
        "that do not see each other, drop leaves the chat out.",
        choices=TOO_LONG,
        on_resume="same",
    )
    packing: bool = option(
        True,
        "Fill rows with several chats that do not attend to each other; otherwise each is a row "
        "by itself, in batches of similar lengths.",
        on_resume="same",
    )

    def check(self) -> None:
        """Raise `ConfigError` if a weight is of no file."""
        for file in (read_weight(text)[0] for text in self.data_weight):
            if file not in self.data:
                raise ConfigError(
                    f"`data_weight` must name files of `data`; got {shown(file)}: give it as "
                    "`data`, too"
                )


@dataclass(frozen=True, kw_only=True)
class FinetuneOutputOptions(OutputOptions):
    """The results of a fine-tuning: adapter, merged model, and answers to compare.

    Example:
        >>> FinetuneOutputOptions(merge="q8_0").merge
        'Q8_0'
    """

    merge: str | None = option(
        None,
        "Write model.gguf with the adapters added to the weights: base keeps the types of the "
        "base; else a mix of llama.cpp, such as Q8_0.",
        metavar="TYPE",
        read=_read_merge,
        on_resume="free",
    )
    imatrix: str | None = option(
        None,
        "Importance matrix of the base, a file of pyggml imatrix, for the rounding of merged "
        "weights.",
        is_path=True,
        metavar="FILE",
        needs=("merge",),
        on_resume="free",
    )
    answers: int = option(
        3,
        "Validation prompts that the model answers before and after the training.",
        least=0,
        needs=(VALIDATION,),
        on_resume="free",
    )
    answer_tokens: int = option(
        64, "Most tokens of an answer.", least=1, unit="tokens", needs=("answers",),
        on_resume="free",
    )  # fmt: skip
    show_sample: bool = option(
        False,
        "Show a row of the training data with its trained tokens marked.",
        on_resume="free",
    )


class FinetuneConfig(Configuration):
    """The options of a fine-tuning: `FinetuneConfig(model="base.gguf", data="chats.jsonl")`.

    Raises:
        ConfigError: an option is unknown or cannot be used, or two do not agree.

    Example:
        >>> FinetuneConfig(model="base.gguf", data="chats.jsonl").trainer.epochs
        3
    """

    data: FinetuneDataOptions
    model: TunedModelOptions
    optimizer: OptimizerOptions
    trainer: TrainerOptions
    output: FinetuneOutputOptions
    machine: MachineOptions

    DEFAULTS: ClassVar = {
        "artifact_dir": "artifacts/finetune",
        "epochs": 3,
        "weight_decay": 0.0,
        "memory_limit": "auto",
    }
    CHOSEN: ClassVar = {
        "lr": f"{LR_LORA:g}; with `full`: {LR_FULL:g}",
        "batch_size": "8, at most the rows that there are",
        "checkpointing": "as few as fit into `memory_limit`",
    }

    @property
    def lr(self) -> float:
        """The highest learning rate: as given, or the one that suits adapters or weights."""
        if self.trainer.lr is not None:
            return self.trainer.lr
        return LR_FULL if self.model.full else LR_LORA

    def missing(self) -> Mapping[str, tuple[str, str]]:
        """Return that there is nothing for validation."""
        if self.data.val_fraction:
            return {}
        return {VALIDATION: ("`val_fraction`=0", "keep some data for validation")}

    def check(self) -> None:
        """Raise `ConfigError` if the parts do not agree."""
        if self.output.merge is not None and self.model.full:
            raise ConfigError(
                "`merge` is for adapters; got `full`, whose model.gguf has the trained weights: "
                "leave `merge` out"
            )
        if self.model.qat is not None:
            self._check_rounding()
        check_agreement(self.optimizer, self.trainer)

    def _check_rounding(self) -> None:
        """Raise on what training with rounded weights excludes."""
        excluded = {
            "fused_update": (self.optimizer.fused_update, "the masters need kept gradients"),
            "ema": (self.trainer.ema, "an average of rounded weights is not rounded"),
            "export": (
                self.output.chosen_export(self.trainer) == "best",
                "the file has the rounded weights of the last step: give `export`=last",
            ),
        }
        for name, (given, why) in excluded.items():
            if given:
                raise ConfigError(f"`qat` excludes `{name}`, as {why}; got both")
