# SPDX-License-Identifier: MIT
"""Text, tokens and batches."""

from .augment import (
    AugmentedDataset,
    CorruptSpans,
    FillInTheMiddle,
    MaskTokens,
    TextTransform,
)
from .batch import Batch
from .buckets import BucketLoader
from .documents import Documents
from .loader import Loader
from .packing import PackedDataset, best_fit
from .prefetch import Prefetch
from .records import RECORD_SUFFIXES, encode_pairs, read_pairs, read_records, read_texts
from .store import TokenStore
from .stream import StreamDecoder
from .text import TEXT_SUFFIXES, embedded_text, read_text
from .tokenizer import END_OF_TEXT, Tokenizer
from .tokens import IGNORE_INDEX, Dataset, RandomWindows, TokenDataset, split_tokens

__all__ = [
    "END_OF_TEXT",
    "IGNORE_INDEX",
    "RECORD_SUFFIXES",
    "TEXT_SUFFIXES",
    "AugmentedDataset",
    "Batch",
    "BucketLoader",
    "CorruptSpans",
    "Dataset",
    "Documents",
    "FillInTheMiddle",
    "Loader",
    "MaskTokens",
    "PackedDataset",
    "Prefetch",
    "RandomWindows",
    "StreamDecoder",
    "TextTransform",
    "TokenDataset",
    "TokenStore",
    "Tokenizer",
    "best_fit",
    "embedded_text",
    "encode_pairs",
    "read_pairs",
    "read_records",
    "read_text",
    "read_texts",
    "split_tokens",
]
