# SPDX-License-Identifier: MIT
"""EncoderConfig: checks that the configurations of BERT and ModernBERT share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ... import checks, nn
from ...nn.attention import check_attention, check_heads
from ...nn.layers import check_eps, check_sizes
from ..config import ModelConfig, check_labels
from ..pooling import POOLINGS

__all__ = ["EncoderConfig"]


@dataclass(frozen=True)
class EncoderConfig(ModelConfig):
    """Sizes of a text encoder; a subclass has the fields.

    Attributes:
        FFN: width inside the feed-forward part, as a multiple of the stream's, where none is given.
        ROTARY: whether positions are rotary.
        COUNTS: fields of its own that are positive integers.
    """

    FFN: ClassVar[float] = 4
    ROTARY: ClassVar[bool] = False
    COUNTS: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        who, given = type(self).__name__, self._given()
        self.check_kinds()
        check_heads(who, given.n_embd, given.n_head, given.n_head, rope=self.ROTARY)
        if given.n_ffn is None:
            object.__setattr__(self, "n_ffn", self.ffn)
        counts = ("vocab_size", "context", "n_layer", "n_ffn", *self.COUNTS, "classes")
        check_sizes(who, **{name: getattr(self, name) for name in counts})
        check_eps(who, given.eps)
        check_attention(who, given.attention)
        nn.Dropout(given.dropout)
        checks.choice(who, "pooling", given.pooling, POOLINGS)
        object.__setattr__(self, "labels", check_labels(who, given.labels, given.classes))

    def _given(self) -> Any:
        """The fields, which are the subclass's."""
        return self

    @property
    def ffn(self) -> int:
        """Width inside the feed-forward part."""
        given = self._given()
        return int(self.FFN * given.n_embd) if given.n_ffn is None else given.n_ffn
