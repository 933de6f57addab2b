# SPDX-License-Identifier: MIT
"""Text: documents, tokenizers, token stores, packing."""

from .augment import AugmentedDataset
from .buckets import BucketLoader
from .choices import Question, encode_choices, read_choices
from .corpus import Corpus
from .documents import Documents
from .files import TEXT_SUFFIXES, embedded_text, read_text
from .packing import PackedDataset, best_fit
from .record_files import RECORD_SUFFIXES
from .records import encode_pairs, read_pairs, read_records, read_texts
from .store import TokenStore
from .stream import StreamDecoder
from .tokenizer import END_OF_TEXT, Tokenizer
from .tokens import RandomWindows, TokenDataset, split_tokens
from .transforms import CorruptSpans, FillInTheMiddle, MaskTokens, TextTransform

__all__ = [
    "Question",
    "encode_choices",
    "read_choices",
    "AugmentedDataset",
    "BucketLoader",
    "Corpus",
    "CorruptSpans",
    "Documents",
    "END_OF_TEXT",
    "FillInTheMiddle",
    "MaskTokens",
    "PackedDataset",
    "RECORD_SUFFIXES",
    "RandomWindows",
    "StreamDecoder",
    "TEXT_SUFFIXES",
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
