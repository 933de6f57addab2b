# SPDX-License-Identifier: MIT
"""Text, tokens, images and batches."""

from typing import TYPE_CHECKING

from ..absent import absent_in
from .arrays import ArrayDataset
from .batch import Batch
from .dataset import IGNORE_INDEX, Dataset
from .images.crops import CenterCrop, RandomCrop, RandomResizedCrop, Resize, ResizedCenterCrop
from .images.files import ImageFolder, read_image
from .images.idx import digits_images, idx_images, read_idx
from .images.images import ArrayImages, ImageDataset, ImageSource, class_weights
from .images.pipeline import ImageTransform
from .images.splits import ImageSubset, cache_images, split_images
from .images.transforms import ColorJitter, HorizontalFlip, Normalize
from .loader import Loader
from .prefetch import Prefetch
from .tables import read_table
from .text.augment import AugmentedDataset
from .text.buckets import BucketLoader
from .text.chat import (
    BUILTIN_TEMPLATES,
    CHAT_FORMATS,
    Chat,
    ChatCounts,
    Chats,
    ChatTemplate,
    EncodedChats,
    encode_chats,
    encode_prompt,
    end_ids,
    read_chats,
    show_sample,
)
from .text.choices import Question, encode_choices, read_choices
from .text.corpus import Corpus
from .text.documents import Documents
from .text.files import TEXT_SUFFIXES, embedded_text, read_text
from .text.labelled import (
    LabelledDataset,
    LabelledTexts,
    Seq2SeqDataset,
    TextClassificationDataset,
    TokenClassificationDataset,
    read_labelled,
    side_by_side,
)
from .text.packing import PackedDataset, best_fit
from .text.record_files import RECORD_SUFFIXES
from .text.records import encode_pairs, read_pairs, read_records, read_texts
from .text.store import TokenStore
from .text.stream import StreamDecoder
from .text.tokenizer import END_OF_TEXT, Tokenizer
from .text.tokens import RandomWindows, TokenDataset, split_tokens
from .text.transforms import CorruptSpans, FillInTheMiddle, MaskTokens, TextTransform

__all__ = [
    "Question",
    "LabelledDataset",
    "LabelledTexts",
    "read_labelled",
    "side_by_side",
    "encode_choices",
    "read_choices",
    "show_sample",
    "read_chats",
    "encode_prompt",
    "end_ids",
    "encode_chats",
    "EncodedChats",
    "Chats",
    "ChatTemplate",
    "ChatCounts",
    "Chat",
    "CHAT_FORMATS",
    "BUILTIN_TEMPLATES",
    "END_OF_TEXT",
    "IGNORE_INDEX",
    "RECORD_SUFFIXES",
    "TEXT_SUFFIXES",
    "ArrayDataset",
    "Seq2SeqDataset",
    "TextClassificationDataset",
    "TokenClassificationDataset",
    "read_table",
    "ArrayImages",
    "AugmentedDataset",
    "Batch",
    "BucketLoader",
    "CenterCrop",
    "ColorJitter",
    "Corpus",
    "CorruptSpans",
    "Dataset",
    "Documents",
    "FillInTheMiddle",
    "HorizontalFlip",
    "ImageDataset",
    "ImageFolder",
    "ImageSource",
    "ImageSubset",
    "ImageTransform",
    "Loader",
    "MaskTokens",
    "Normalize",
    "PackedDataset",
    "Prefetch",
    "RandomCrop",
    "RandomResizedCrop",
    "RandomWindows",
    "Resize",
    "ResizedCenterCrop",
    "StreamDecoder",
    "TextTransform",
    "TokenDataset",
    "TokenStore",
    "Tokenizer",
    "best_fit",
    "cache_images",
    "class_weights",
    "digits_images",
    "embedded_text",
    "encode_pairs",
    "idx_images",
    "read_idx",
    "read_image",
    "read_pairs",
    "read_records",
    "read_text",
    "read_texts",
    "split_images",
    "split_tokens",
]

if not TYPE_CHECKING:  # type checkers go on reporting absent names
    __getattr__ = absent_in("data", __name__)
