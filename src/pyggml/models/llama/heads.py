# SPDX-License-Identifier: MIT
"""A Llama that tells the class of a text, or how well a text answers a question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from ... import checks, nn
from ...backend.device import alone
from ...errors import FormatError
from ...io import GGUFFile, u32
from ...nn import init
from ...nn.layers import check_sizes
from ...tensors import Tensor
from ..config import check_labels, label_names
from ..files import read_classes, read_scalar
from ..pooling import RANK, TextClassifier, pool
from ..pretrained.fields import HFConfig
from ..pretrained.labels import read_labels, write_labels
from ..pretrained.tokens import padding_id
from .config import LlamaConfig
from .families import FAMILIES
from .hf_config import read_hf_config, write_hf_config
from .hf_types import TYPES
from .model import Llama, LlamaModel

__all__ = ["LlamaClassifierConfig", "LlamaForSequenceClassification"]

# The members whose head llama.cpp has, and one of which transformers has none.
_LLAMA_CPP = ("qwen3",)
_FAMILIES = tuple(name for name in FAMILIES if name != "granite")
_HF_CLASS = "ForSequenceClassification"
# transformers' classes that are not named like those of the language models.
_HF_CLASSES = {"Gemma3ForCausalLM": "Gemma3TextForSequenceClassification"}


@dataclass(frozen=True)
class LlamaClassifierConfig(LlamaConfig):
    """Sizes of a `LlamaForSequenceClassification`: those of `LlamaConfig`, and classes.

    Args:
        family: a member that has this head in transformers; llama.cpp has that of "qwen3".
        classes: of a text; 1 is a reranker's score.
        labels: their names; None leaves them numbers.

    Raises:
        ValueError: as `LlamaConfig`; another family, or labels that are not as many as classes.

    Example:
        >>> LlamaClassifierConfig(vocab_size=65, labels=("yes", "no")).classes
        2
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": LlamaConfig.PRESETS["tiny"],
        **{
            f"qwen3-reranker-{size}": LlamaConfig.PRESETS[f"qwen3-{size}"]
            for size in ("0.6b", "4b", "8b")
        },
    }

    family: str = "qwen3"
    classes: int = 2
    labels: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        who = type(self).__name__
        checks.choice(who, "family", self.family, _FAMILIES)
        check_sizes(who, classes=self.classes)
        object.__setattr__(self, "labels", check_labels(who, self.labels, self.classes))

    def count_parameters(self) -> int:
        """Count a model's parameters without building it."""
        head = 0 if self.tie else self.vocab_size * self.n_embd
        head += self.vocab_size if self.traits.head_bias else 0
        return super().count_parameters() - head + self.classes * self.n_embd


class LlamaForSequenceClassification(LlamaModel, TextClassifier):
    """A Llama that classifies a text by its last token.

    Qwen3's rerankers are such: their classes are "yes" and "no", the rows of these tokens in the
    head of a language model; see `from_language_model`. llama.cpp runs the GGUF file of a Qwen3;
    the other members have a folder of Hugging Face.

    Args:
        config: sizes.
        body: that of a language model of these sizes, whose weights are shared, in their types;
            None makes one.

    Shape:
        ids (B, T) i32 -> (B, classes)

    Source: Zhang et al. 2025, arXiv:2506.05176.

    Example:
        >>> model = LlamaForSequenceClassification(
        ...     LlamaClassifierConfig.preset("tiny", vocab_size=65)
        ... )
        >>> model(tensor([[1, 2, 3]])).shape
        (1, 2)
    """

    arch = "llama-classifier"
    gguf_archs: ClassVar[tuple[str, ...] | None] = _LLAMA_CPP
    config_class = LlamaClassifierConfig
    HF_TYPES = tuple(name for name, kind in TYPES.items() if kind.family in _FAMILIES)
    OWN_FIELDS = ("window",)
    GGUF_NAMES: ClassVar[dict[str, str]] = {**LlamaModel.GGUF_NAMES, "score": "cls.output"}

    saved_whole: ClassVar[tuple[str, ...]] = ("score",)

    def __init__(self, config: LlamaClassifierConfig, body: nn.Module | None = None) -> None:
        super().__init__(config, body)
        self.score = nn.Linear(config.n_embd, config.classes, False, init.normal(0.02))

    @property
    def head_weight(self) -> Tensor:
        """The matrix of the logits, (classes, C)."""
        weight: Tensor = self.score.weight
        return weight

    @property
    def runs_in_llama_cpp(self) -> bool:
        """True if llama.cpp has the head: it normalises the classes, and one alone is always 1."""
        return self.config.family in _LLAMA_CPP and self.config.classes > 1

    @classmethod
    def from_body(
        cls, model: Llama, classes: int = 2, labels: Sequence[str] | None = None
    ) -> LlamaForSequenceClassification:
        """Build a classifier over a language model's body, with a head of random numbers.

        The two share the weights of the body, whatever their types.

        Args:
            model: the language model.
            classes: of a text; 1 is a score.
            labels: names of the classes.

        Raises:
            ValueError: transformers has no such head of the family.

        Example:
            >>> model = Llama(LlamaConfig.preset("tiny", vocab_size=65))
            >>> classifier = LlamaForSequenceClassification.from_body(model, 3)
            >>> classifier(tensor([[1, 2, 3]])).shape
            (1, 3)
        """
        checks.instance(f"{cls.__name__}.from_body", "model", model, Llama, "give a Llama")
        made = cls(_config(model, classes, labels), model.model)
        made.metadata = model.metadata
        return made

    @classmethod
    def from_language_model(
        cls, model: Llama, tokens: Sequence[int], labels: Sequence[str] | None = None
    ) -> LlamaForSequenceClassification:
        """Build a classifier whose logits are those of some tokens.

        Args:
            model: the language model, whose weights are copied.
            tokens: one for each class, such as those of "yes" and "no".
            labels: names of the classes.

        Raises:
            ValueError: transformers has no such head of the family, or a token is out of range.

        Example:
            >>> model = Llama(LlamaConfig.preset("tiny", vocab_size=65, family="qwen3"))
            >>> reranker = LlamaForSequenceClassification.from_language_model(model, [5, 7])
            >>> reranker(tensor([[1, 2, 3]])).shape
            (1, 2)
        """
        who = f"{cls.__name__}.from_language_model"
        checks.instance(who, "model", model, Llama, "give a Llama")
        last = model.config.vocab_size - 1
        rows = [checks.whole(who, "each of tokens", t, 0, last) for t in tokens]
        made = cls(_config(model, len(rows), labels))
        with alone():  # between two steps of a training
            state, head = model.state_dict(), model.head_weight.numpy()[rows]
        state = {n: a for n, a in state.items() if not n.startswith("lm_head.")}
        made.load_state_dict({**state, "score.weight": head})
        return made

    @classmethod
    def reads_hf(cls, model_type: str, architectures: list[str]) -> bool:
        """Return True for a folder of a classifier; see `Model.reads_hf`."""
        return any(name.endswith(_HF_CLASS) for name in architectures)

    @classmethod
    def config_from_hf(cls, given: HFConfig) -> LlamaClassifierConfig:
        """Read the configuration from the fields of a `config.json`."""
        return LlamaClassifierConfig(**read_hf_config(given), **read_labels(given))

    def hf_config(self) -> dict[str, Any]:
        """Return the fields of a `config.json`."""
        values = write_hf_config(self.config)
        (name,) = values["architectures"]
        named = _HF_CLASSES.get(name, name.replace("ForCausalLM", _HF_CLASS))
        # A token that ends no text: transformers pools the last one that is another.
        labels, pad = write_labels(self.config), padding_id(self) or 0
        return {**values, "architectures": [named], **labels, "pad_token_id": pad}

    def _own_names(self, state: Any) -> dict[str, Any]:
        """Return a state under the own names, without a language model's head."""
        return {n: a for n, a in super()._own_names(state).items() if n != "lm_head.weight"}

    @classmethod
    def reads(cls, file: GGUFFile) -> bool:
        """Return True for a file that has the head, or says so."""
        arch = file.metadata["general.architecture"]
        return read_scalar(file, f"{arch}.pooling_type") == RANK or (
            "cls.output.weight" in file.tensors
        )

    def gguf_config(self) -> dict[str, Any]:
        """Return the hyper-parameters under llama.cpp's keys."""
        config, arch = self.config, self.gguf_arch
        # llama.cpp knows the number of classes from their names.
        return {
            **super().gguf_config(),
            f"{arch}.pooling_type": u32(RANK),
            f"{arch}.classifier.output_labels": label_names(config),
        }

    @classmethod
    def config_from_gguf(cls, file: GGUFFile) -> LlamaClassifierConfig:
        """Read the configuration from a GGUF file's metadata."""
        base = super().config_from_gguf(file)
        if "cls.output.weight" not in file.tensors:
            raise FormatError(f"{file.path}: the tensor cls.output.weight must be there")
        return LlamaClassifierConfig(**{**vars(base), **read_classes(file, base.family)})

    def forward(  # type: ignore[override]
        self, ids: Tensor, *, attention_mask: Tensor | None = None
    ) -> Tensor:
        """Return a logit for each class.

        Args:
            ids: tokens.
            attention_mask: 1 where a token counts, 0 where it fills up behind the others; None
                counts all.

        Shape:
            ids, attention_mask (B, T) i32 -> (B, classes)

        Raises:
            ShapeError: a shape does not fit, or T exceeds the context.
        """
        y: Tensor = self.score(pool(self.hidden(ids), attention_mask, "last"))
        return y


def _config(model: Llama, classes: int, labels: Sequence[str] | None) -> LlamaClassifierConfig:
    """Return the configuration of a classifier with a language model's sizes."""
    sizes = {f.name: getattr(model.config, f.name) for f in fields(LlamaConfig)}
    return LlamaClassifierConfig(**sizes, classes=classes, labels=labels)  # type: ignore[arg-type]
