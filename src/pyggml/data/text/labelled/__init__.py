# SPDX-License-Identifier: MIT
"""Texts with a target each: a class, a class for each word, or another text."""

from .datasets import Seq2SeqDataset, TextClassificationDataset
from .texts import LabelledDataset, LabelledTexts, read_labelled, side_by_side
from .words import TokenClassificationDataset

__all__ = [
    "LabelledDataset",
    "LabelledTexts",
    "Seq2SeqDataset",
    "TextClassificationDataset",
    "TokenClassificationDataset",
    "read_labelled",
    "side_by_side",
]
