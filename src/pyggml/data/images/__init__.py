# SPDX-License-Identifier: MIT
"""Images: folders, transforms, splits."""

from .crops import CenterCrop, RandomCrop, RandomResizedCrop, Resize, ResizedCenterCrop
from .files import ImageFolder, read_image
from .idx import digits_images, idx_images, read_idx
from .images import ArrayImages, ImageDataset, ImageSource, class_weights
from .pipeline import ImageTransform
from .splits import ImageSubset, cache_images, split_images
from .transforms import ColorJitter, HorizontalFlip, Normalize

__all__ = [
    "ArrayImages",
    "CenterCrop",
    "ColorJitter",
    "HorizontalFlip",
    "ImageDataset",
    "ImageFolder",
    "ImageSource",
    "ImageSubset",
    "ImageTransform",
    "Normalize",
    "RandomCrop",
    "RandomResizedCrop",
    "Resize",
    "ResizedCenterCrop",
    "cache_images",
    "class_weights",
    "digits_images",
    "idx_images",
    "read_idx",
    "read_image",
    "split_images",
]
