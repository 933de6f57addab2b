# SPDX-License-Identifier: MIT
"""The configuration of a language-model training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ..errors import ConfigError, shown
from ..models import LANGUAGE_MODELS
from ..options import Options, option
from ..train.options import VALIDATION, TrainerOptions
from .configuration import Configuration
from .options import MachineOptions, OptimizerOptions, OutputOptions, check_agreement

__all__ = ["DataOptions", "LLMConfig", "LLMOutputOptions", "ModelOptions"]

# A byte-level BPE holds the 256 bytes and the end-of-text token before any merge.
_BPE_SIZE_MIN = 257
_BPE_SIZE_MAX = 10**6
# What options of text need to be read: the text that comes with Python is not in files.
_FILES = "files of text"


def _architectures() -> list[str]:
    return list(LANGUAGE_MODELS)


def _read_tokenizer(spec: str) -> str:
    if not spec.startswith("bpe:"):
        return spec
    size = spec[len("bpe:") :]
    digits = size.isascii() and size.isdigit() and len(size) < len(str(_BPE_SIZE_MAX)) + 1
    if not digits or not _BPE_SIZE_MIN <= int(size) <= _BPE_SIZE_MAX:
        raise ValueError(
            f"bpe:SIZE needs a whole number from {_BPE_SIZE_MIN} (the 256 bytes and the "
            f"end-of-text token) to {_BPE_SIZE_MAX}; got {shown(spec)}: try bpe:2048"
        )
    return spec


def _read_eval_text(texts: tuple[str, ...]) -> tuple[str, ...]:
    names = [text.partition("=")[0] for text in texts]
    for text, name in zip(texts, names, strict=True):
        if not text.partition("=")[2]:
            problem = "must be NAME=PATH"
        elif not name.isidentifier():
            problem = "needs a NAME of letters, digits and _ before the ="
        elif name in ("train", "validation") or names.count(name) > 1:
            problem = "needs names that differ from each other, and from train and validation"
        else:
            continue
        raise ValueError(f"{problem}; got {shown(text)}: try books=books.txt")
    return texts


@dataclass(frozen=True, kw_only=True)
class ModelOptions(Options):
    """The architecture and the sizes of a language model.

    Example:
        >>> ModelOptions(preset="tiny", layers=2).layers
        2
    """

    arch: str | None = option(
        None,
        "Architecture: llama, llm or gpt2.",
        choices=_architectures,
        chosen="that of the preset, or llama",
        on_resume="same",
    )
    preset: str | None = option(
        None,
        "Named sizes: tiny, small, gpt2-124m, qwen3-0.6b, …; single sizes override its own.",
        on_resume="same",
    )
    layers: int | None = option(None, "Blocks.", least=1, chosen="4", on_resume="same")
    heads: int | None = option(None, "Query heads.", least=1, chosen="4", on_resume="same")
    kv_heads: int | None = option(
        None,
        "Key and value heads (llama), a divisor of the query heads.",
        least=1,
        chosen="`heads`",
        on_resume="same",
    )
    embd: int | None = option(
        None,
        "Width of the model, a multiple of the heads.",
        least=1,
        chosen="128",
        on_resume="same",
    )
    ffn: int | None = option(
        None,
        "Width of the hidden layer of the MLP.",
        least=1,
        chosen="by the architecture",
        on_resume="same",
    )
    context: int | None = option(
        None,
        "Longest sequence that the model reads.",
        least=1,
        unit="tokens",
        chosen="`seq_len`",
        on_resume="same",
    )

    def check(self) -> None:
        """Raise `ConfigError` if heads and width do not go together."""
        if self.heads is not None and self.embd is not None and self.embd % self.heads:
            raise ConfigError(
                f"`heads` must divide `embd`; got `heads`={self.heads} and `embd`={self.embd}: try "
                f"`embd`={-(-self.embd // self.heads) * self.heads}"
            )
        if self.heads is not None and self.kv_heads is not None and self.heads % self.kv_heads:
            raise ConfigError(
                f"`kv_heads` must divide `heads`; got `kv_heads`={self.kv_heads} and "
                f"`heads`={self.heads}: try `kv_heads`={math.gcd(self.heads, self.kv_heads)}"
            )


@dataclass(frozen=True, kw_only=True)
class DataOptions(Options):
    """The text of a training, its tokens and its sequences.

    Example:
        >>> DataOptions(text="notes/", tokenizer="chars").text
        ('notes/',)
    """

    # The text may move; whether it is the same is seen by its tokens.
    text: tuple[str, ...] = option(
        (),
        "Text files, JSONL, CSV, TSV, Parquet, or folders of them.",
        is_path=True,
        metavar="PATH",
        chosen="the manual that comes with Python",
        on_resume="free",
    )
    field: str | None = option(
        None,
        "Field or column of records that holds the text.",
        otherwise="text",
        needs=(_FILES,),
        on_resume="same",
    )
    prompt_field: str | None = option(
        None,
        "Field or column of prompts, whose tokens the loss ignores; text then consists of pairs in "
        "packed rows.",
        chosen="prompt, where `completion_field` is given",
        needs=("text",),
        on_resume="same",
    )
    completion_field: str | None = option(
        None,
        "Field or column of the completions of the prompts; only they count in the loss.",
        chosen="completion, where `prompt_field` is given",
        needs=("text",),
        on_resume="same",
    )
    separator: str | None = option(
        None,
        "Text between two documents of a text file.",
        chosen="each file is one document",
        needs=(_FILES,),
        on_resume="same",
    )
    packing: bool | None = option(
        None,
        "Fill rows with whole documents that do not attend to each other; otherwise sequences "
        "cross from one document into the next.",
        chosen="on for pairs",
        on_resume="same",
    )
    cache_dir: str | None = option(
        None,
        "Folder for token stores, which later runs reuse; by default only text above 16 MB has a "
        "store.",
        is_path=True,
        metavar="DIR",
        chosen="the user's folder for caches",
        on_resume="free",
    )
    tokenizer: str = option(
        "bpe:2048",
        "Tokenizer: chars, bpe:SIZE, or a JSON file of the library tokenizers.",
        is_path=True,
        read=_read_tokenizer,
        on_resume="same",
    )
    val_fraction: float = option(
        0.1,
        "Share of the tokens for validation (with packing: of the documents); 0 switches it off.",
        least=0,
        below=1,
        on_resume="same",
    )
    seq_len: int | None = option(
        None,
        "Tokens per training sequence.",
        least=1,
        unit="tokens",
        chosen="128; with `preset`: its context",
        on_resume="same",
    )
    stride: int | None = option(
        None,
        "Tokens between the starts of neighbouring sequences.",
        least=1,
        unit="tokens",
        chosen="random starts; with `epochs`: `seq_len`",
        on_resume="same",
    )
    eval_text: tuple[str, ...] = option(
        (),
        "Other texts to evaluate on, as NAME=PATH.",
        is_path=True,
        metavar="NAME=PATH",
        read=_read_eval_text,
        on_resume="free",
    )

    @property
    def pair_fields(self) -> tuple[str, str] | None:
        """The fields of prompts and completions, where the text is pairs of them."""
        if self.prompt_field is None and self.completion_field is None:
            return None
        return self.prompt_field or "prompt", self.completion_field or "completion"

    @property
    def in_rows(self) -> bool:
        """True if rows hold whole documents, as with packing and pairs."""
        return bool(self.packing) or self.pair_fields is not None

    def missing(self) -> Mapping[str, tuple[str, str]]:
        """Return the need of files of text where no option names one."""
        return {} if self.text or self.eval_text else {_FILES: ("no `text`", "give `text`")}

    def check(self) -> None:
        """Raise `ConfigError` if options of text do not go together."""
        if self.packing and self.stride is not None:
            raise ConfigError(
                "`packing` excludes `stride`, as rows hold whole documents; got "
                f"`stride`={self.stride}: give one of them"
            )
        if self.pair_fields is not None:
            self._check_pairs(*self.pair_fields)

    def _check_pairs(self, prompt: str, completion: str) -> None:
        """Raise on options that pairs of prompts and completions exclude."""
        if prompt == completion:
            raise ConfigError(
                "`prompt_field` and `completion_field` must be two columns; got "
                f"{shown(prompt)} for both"
            )
        reasons = {
            "field": (self.field is not None, "each row has two texts"),
            "separator": (self.separator is not None, "each row is a document"),
            "stride": (self.stride is not None, "rows hold whole documents"),
            "cache_dir": (self.cache_dir is not None, "pairs are tokenized into memory"),
            "packing": (self.packing is False, "no pair sees another"),
        }
        for name, (given, why) in reasons.items():
            if given:
                switch = "=False" if name == "packing" else ""
                raise ConfigError(
                    f"`prompt_field` and `completion_field` exclude `{name}`{switch}, as {why}: "
                    "leave one out"
                )


@dataclass(frozen=True, kw_only=True)
class LLMOutputOptions(OutputOptions):
    """The results of a language-model training: those of any run, and samples.

    Example:
        >>> LLMOutputOptions(prompt="Once", sample_every=100).prompt
        'Once'
    """

    prompt: str | None = option(
        None,
        "Start of the samples.",
        may_be_empty=True,
        otherwise="The",
        needs=("sample_tokens",),
        on_resume="free",
    )
    sample_every: int = option(
        0,
        "Steps between samples; 0 writes one at the end only.",
        least=0,
        needs=("sample_tokens",),
        on_resume="free",
    )
    sample_tokens: int = option(
        120, "Tokens of a sample; 0 writes none.", least=0, unit="tokens", on_resume="free"
    )


class LLMConfig(Configuration):
    """The options of a language-model training: `LLMConfig(text="notes/", steps=200)`.

    Raises:
        ConfigError: an option is unknown or cannot be used, or two do not agree.

    Example:
        >>> LLMConfig(steps=200, lr=1e-3, layers=2).trainer.steps
        200
    """

    data: DataOptions
    model: ModelOptions
    optimizer: OptimizerOptions
    trainer: TrainerOptions
    output: LLMOutputOptions
    machine: MachineOptions

    DEFAULTS: ClassVar[Mapping[str, Any]] = {"lr": 2e-3}

    def missing(self) -> Mapping[str, tuple[str, str]]:
        """Return what the data do not have: a part, or a text, for validation."""
        if self.data.val_fraction or self.data.eval_text:
            return {}
        return {VALIDATION: ("`val_fraction`=0", "keep some data for validation")}

    def check(self) -> None:
        """Raise `ConfigError` if the parts do not agree."""
        context, seq_len = self.model.context, self.data.seq_len
        if context is not None and seq_len is not None and seq_len > context:
            raise ConfigError(
                f"`seq_len` must not exceed `context`; got `seq_len`={seq_len} and "
                f"`context`={context}: lower the one or raise the other"
            )
        check_agreement(self.optimizer, self.trainer)
