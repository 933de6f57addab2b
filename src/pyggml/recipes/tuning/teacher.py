# SPDX-License-Identifier: MIT
"""The teacher of a fine-tuning: what a larger model says of each token, kept on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...data import Loader, Tokenizer
from ...errors import ConfigError, FormatError, reason
from ...io import make_dirs
from ...models import LanguageModel, load
from ...nn.raw_bytes import checksum
from ...train.distillation import DistillationDataset, cache_teacher, distillation_loss
from ..corpus import default_cache
from .config import FinetuneConfig

__all__ = ["taught"]


def taught(
    config: FinetuneConfig, loader: Any, tokenizer: Tokenizer, student: Any, crc32: int
) -> tuple[Any, Any, int | None]:
    """Return batches with what the teacher says, the loss that learns from it, and its checksum.

    Args:
        config: of the run.
        loader: batches of packed rows.
        tokenizer: of the student.
        student: the model that learns.
        crc32: checksum of the data, which names the folder of the cache.

    Returns:
        The loader as it is, None and None without a teacher.

    Raises:
        ConfigError: the teacher reads other tokens.
        FormatError: the teacher cannot be read, or the cache is damaged.
    """
    options = config.teacher
    if options.teacher is None:
        return loader, None, None
    try:
        teacher, own = load(options.teacher, keep_types=True, mapped=True)
    except (FileNotFoundError, FormatError) as error:
        raise FormatError(f"`teacher`={options.teacher}: {reason(error)}") from error
    if not isinstance(teacher, LanguageModel):
        raise FormatError(f"`teacher`={options.teacher}: must be a model that continues text")
    # The models of a family have the same tokens, and fill their vocabularies up to other sizes.
    different = 0 if own is None else _first_different(own, tokenizer)
    if own is not None and different is not None:
        raise ConfigError(
            f"`teacher`={options.teacher}: must have the tokens of the base; token {different} is "
            f"{own.token(different)!r}, the base's is {tokenizer.token(different)!r}: take a "
            "teacher of the base's family"
        )
    classes = min(int(student.target_classes), int(teacher.target_classes))
    top_k = min(options.teacher_top_k, classes)
    weights = checksum(teacher)
    name = f"teacher-{weights:08x}-{crc32:08x}-{top_k}-{classes}"
    cache = Path(options.teacher_cache) if options.teacher_cache else default_cache()
    try:
        make_dirs(cache)
        said = cache_teacher(
            teacher, loader.dataset, cache / name, top_k, loader.batch_size, vocab_size=classes
        )
    except OSError as error:
        raise ConfigError(
            f"`teacher_cache`={cache} cannot be written to ({error.strerror or error}): give "
            "another folder"
        ) from error
    except ValueError as error:
        if isinstance(error, FormatError):
            raise FormatError(
                f"`teacher_cache`={cache}: {reason(error)}: remove the folder {name}, which is "
                "made again"
            ) from error
        raise ConfigError(f"`teacher`={options.teacher}: {reason(error)}") from error
    dataset = DistillationDataset(loader.dataset, said)
    loss = distillation_loss(options.teacher_temperature, options.teacher_alpha)
    return Loader(dataset, loader.batch_size, seed=config.trainer.seed), loss, weights


def _first_different(a: Tokenizer, b: Tokenizer) -> int | None:
    """Return the first token that two vocabularies spell differently, of those that both have."""
    both = range(min(a.vocab_size, b.vocab_size))
    return next((number for number in both if a.token(number) != b.token(number)), None)
