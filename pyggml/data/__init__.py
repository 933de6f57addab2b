# SPDX-License-Identifier: MIT
"""Text, tokens, images and batches."""

from .arrays import ArrayDataset
from .augment import (
    AugmentedDataset,
    CorruptSpans,
    FillInTheMiddle,
    MaskTokens,
    TextTransform,
)
from .batch import Batch
from .buckets import BucketLoader
from .corpus import Corpus
from .crops import CenterCrop, RandomCrop, RandomResizedCrop, Resize, ResizedCenterCrop
from .documents import Documents
from .idx import digits_images, idx_images, read_idx
from .image_files import ImageFolder, read_image
from .image_parts import ImageSubset, cache_images, split_images
from .images import ArrayImages, ImageDataset, ImageSource, class_weights
from .loader import Loader
from .packing import PackedDataset, best_fit
from .prefetch import Prefetch
from .records import RECORD_SUFFIXES, encode_pairs, read_pairs, read_records, read_texts
from .store import TokenStore
from .stream import StreamDecoder
from .text import TEXT_SUFFIXES, embedded_text, read_text
from .tokenizer import END_OF_TEXT, Tokenizer
from .tokens import IGNORE_INDEX, Dataset, RandomWindows, TokenDataset, split_tokens
from .transforms import ColorJitter, HorizontalFlip, ImageTransform, Normalize

__all__ = [
    "END_OF_TEXT",
    "IGNORE_INDEX",
    "RECORD_SUFFIXES",
    "TEXT_SUFFIXES",
    "ArrayDataset",
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
