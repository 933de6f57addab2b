# SPDX-License-Identifier: MIT
"""Texts with a target each: a class, or another text."""

from .datasets import Seq2SeqDataset, TextClassificationDataset
from .texts import LabelledDataset, LabelledTexts, read_labelled, side_by_side

__all__ = [
    "LabelledDataset",
    "LabelledTexts",
    "Seq2SeqDataset",
    "TextClassificationDataset",
    "read_labelled",
    "side_by_side",
]
