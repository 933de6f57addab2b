# SPDX-License-Identifier: MIT
"""MaskedLM: what models that predict hidden tokens share."""

from __future__ import annotations

from .per_token import PerToken

__all__ = ["MaskedLM"]


class MaskedLM(PerToken):
    """A model from token ids, some of them hidden, to the logits of each.

    `loss` takes the batches of `data.AugmentedDataset` with `data.MaskTokens`: its targets are the
    hidden tokens, and -100 where nothing is hidden.
    """

    @property
    def target_classes(self) -> int:
        """The vocabulary's tokens."""
        return int(self.config.vocab_size)
