# SPDX-License-Identifier: MIT
"""The options of a fine-tuning's base: what is trained of it, and the teacher."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from typing import Any

from ...errors import shown
from ...models.quantization import MIXES
from ...options import Options, option

__all__ = ["ROWS", "TeacherOptions", "TunedModelOptions", "read_mix"]

# What the options of adapters need.
_ADAPTERS = "adapters"
_NEW_ADAPTERS = "new adapters"
# What a teacher needs.
ROWS = "packed rows"


def read_mix(name: str) -> str:
    """Return the key of a mix of llama.cpp in any case of letters.

    Args:
        name: the mix.

    Raises:
        ValueError: there is none of this name.

    Example:
        >>> read_mix("q8_0")
        'Q8_0'
    """
    known = {mix.lower(): mix for mix in MIXES}
    if name.lower() not in known:
        raise ValueError(
            f"must be a mix such as Q8_0; got {shown(name)}: choose one of {', '.join(MIXES)}"
        )
    return known[name.lower()]


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
        read=read_mix,
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
class TeacherOptions(Options):
    """A larger model whose probabilities are learnt besides the answers.

    Example:
        >>> TeacherOptions(teacher="large.gguf", teacher_alpha=0.9).teacher_top_k
        64
    """

    teacher: str | None = option(
        None,
        "A model with the same tokens, whose probabilities of each token are learnt, too.",
        is_path=True,
        metavar="MODEL",
        needs=(ROWS,),
        on_resume="free",
    )
    teacher_alpha: float = option(
        0.5, "Weight of the teacher in the loss.", above=0, most=1, needs=("teacher",),
        on_resume="same",
    )  # fmt: skip
    teacher_temperature: float = option(
        1.0, "Divisor of the logits of both.", above=0, needs=("teacher",), on_resume="same"
    )
    teacher_top_k: int = option(
        64, "Most probable tokens that are kept of each.", least=1, needs=("teacher",),
        on_resume="same",
    )  # fmt: skip
    teacher_cache: str | None = option(
        None,
        "Folder for what the teacher says, which later runs reuse.",
        is_path=True,
        metavar="DIR",
        chosen="the user's folder for caches",
        needs=("teacher",),
        on_resume="free",
    )
