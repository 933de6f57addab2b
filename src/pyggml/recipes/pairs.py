# SPDX-License-Identifier: MIT
"""A corpus of prompts and completions."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import chain

from ..data import Corpus, Documents, Tokenizer, encode_pairs, read_pairs
from ..errors import ConfigError, FormatError

__all__ = ["PairCorpus"]


class PairCorpus(Corpus):
    """Pairs in files of records, each a document of which only the completion is learned.

    Args:
        paths: files, and folders of them; see `Corpus`.
        prompt: the column of prompts.
        completion: the column of completions.

    Raises:
        FormatError: a path is missing, or a file is empty.
        ConfigError: there are text files.
    """

    def __init__(
        self, paths: Iterable[str | os.PathLike[str]], prompt: str, completion: str
    ) -> None:
        super().__init__(paths)
        self.prompt, self.completion = prompt, completion
        if self.has_text:
            raise ConfigError(
                "`prompt_field` and `completion_field` are for records (JSONL, CSV, Parquet); "
                "`text` names text files, too: name the records alone"
            )

    def _pairs(self) -> Iterator[tuple[str, str]]:
        return read_pairs(self.files, self.prompt, self.completion)

    def pieces(self, most_bytes: int | None = None) -> Iterator[str]:
        """Yield prompts and completions, to make a tokenizer of them.

        Args:
            most_bytes: about how much to give, taken evenly from all of it; None gives all.

        Raises:
            FormatError: a row has no such pair, or there is none; names it.
        """
        number = -1
        every = 1 if most_bytes is None else max(1, -(-self.size_bytes // max(1, most_bytes)))
        for number, text in enumerate(chain.from_iterable(self._pairs())):
            # By pairs: an even stride of texts would leave out all completions.
            if number // 2 % every == 0 and text:
                yield text
        if number < 0:
            raise FormatError(f"`text`={self.names}: must hold pairs; got none")

    def tokens(self, tokenizer: Tokenizer, eos: bool = True) -> Documents:
        """Return the pairs in memory; their prompts do not count as targets.

        Args:
            tokenizer: text to ids.
            eos: the end-of-text token follows wherever the tokenizer has one.

        Raises:
            FormatError: a row has no such pair; names it.
            ValueError: there is none, or the vocabulary has no tokens for a character.
        """
        return encode_pairs(self._pairs(), tokenizer)
