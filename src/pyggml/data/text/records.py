# SPDX-License-Identifier: MIT
"""Rows of JSONL, CSV and Parquet files and of Hugging Face datasets: text, pairs, documents."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ... import checks
from ...errors import FormatError, reason
from .documents import Documents
from .record_files import Record, read_file
from .tokenizer import Tokenizer

__all__ = ["bad_row", "encode_pairs", "no_rows", "read_pairs", "read_records", "read_texts"]

_PAIRS = ", or read pairs with `read_pairs`"


class Pair(tuple[str, str]):
    """A prompt and its completion, with the place of their row."""

    where = ""

    @classmethod
    def at(cls, where: str, prompt: str, completion: str) -> Pair:
        """Return a pair that comes from a row."""
        pair = cls((prompt, completion))
        pair.where = where
        return pair


def read_records(
    source: Any, on_bad: Callable[[FormatError], None] | None = None
) -> Iterator[dict[str, Any]]:
    """Go through the rows of files or of a dataset, one after another.

    Args:
        source: a path or several (`RECORD_SUFFIXES`, or `.json` with a list of rows), a Hugging
            Face `Dataset` or `IterableDataset`, or anything that gives mappings from names to
            values.
        on_bad: called with the error of each line of a file that is no row; None raises it.

    Yields:
        Rows. Of a file no more than a few are in memory.

    Raises:
        FormatError: a file is missing, of another kind, or has a line that is no row; the message
            names the file, the line and the cause.
        TypeError: the source gives no rows.
        ImportError: a Parquet file without pyarrow.

    Example:
        >>> [row["text"] for row in read_records([{"text": "one"}, {"text": "two"}])]
        ['one', 'two']
    """
    if isinstance(source, (str, os.PathLike)):
        source = [source]
    elif isinstance(source, Mapping):
        # A DatasetDict is one.
        raise TypeError(
            "read_records: source must be rows, not a mapping; choose one of its parts:"
            f" source[{next(iter(source), 'train')!r}]"
        )
    elif hasattr(source, "column_names"):
        yield from _dataset(source)
        return
    if not checks.is_iterable(source):
        raise TypeError(
            f"read_records: source must be a path, a dataset, or rows; got {type(source).__name__}"
        )
    for number, item in enumerate(source):
        if isinstance(item, (str, os.PathLike)):
            yield from read_file(Path(item), on_bad)
        elif isinstance(item, Mapping):
            yield Record(getattr(item, "where", f"row {number}"), item)
        else:
            raise TypeError(
                f"read_records: row {number} must be a mapping from names to values; got"
                f" {type(item).__name__}"
            )


def bad_row(who: str, where: str, error: Exception, skipped: bool) -> FormatError:
    """Return the error of a row with its place and, where it is not skipped, the cure.

    Args:
        who: the function that reads.
        where: the row's place.
        error: of its content.
        skipped: the row is left out.
    """
    cure = "" if skipped else ": mend the row, or leave it out with `skip_bad`"
    return FormatError(f"{who}: {where}: {reason(error)}{cure}")


def no_rows(who: str, source: Any, what: str, bad: Sequence[str] = ()) -> FormatError:
    """Return the error of a source that holds nothing to use; of files it names the first.

    Args:
        who: the function that reads.
        source: what it reads, as `read_records` takes it.
        what: that it wants, such as "one conversation".
        bad: the errors of rows that were left out.
    """
    first = source[0] if isinstance(source, (list, tuple)) and source else source
    where = f"{os.fspath(first)}: " if isinstance(first, (str, os.PathLike)) else ""
    more = f" and {len(bad)} bad rows, of which the first is: {bad[0]}" if bad else ""
    return FormatError(f"{who}: {where}needs at least {what}; got none{more}")


def read_texts(source: Any, field: str = "text") -> Iterator[str]:
    """Go through the texts of a field; rows whose text is blank are left out.

    Args:
        source: what `read_records` takes.
        field: name of the column.

    Raises:
        FormatError: a row has no such field, or it is not text; the message names the row.

    Example:
        >>> list(read_texts([{"body": "one", "id": 1}], field="body"))
        ['one']
    """
    return (text for text, _ in read_located_texts(source, field))


def read_located_texts(source: Any, field: str) -> Iterator[tuple[str, str]]:
    """Go through the texts of a field as `read_texts`, each with the place of its row."""
    for record in read_records(source):
        text = _text(record, field, "read_texts", "field")
        if text.strip():
            yield text, _where(record)


def read_pairs(
    source: Any, prompt: str = "prompt", completion: str = "completion"
) -> Iterator[tuple[str, str]]:
    """Go through pairs of a prompt and its completion.

    Args:
        source: what `read_records` takes.
        prompt: name of the column of prompts.
        completion: name of the column of completions.

    Raises:
        FormatError: a row lacks a field, it is not text, or a completion is empty; the message
            names the row.

    Example:
        >>> list(read_pairs([{"q": "2 + 2 =", "a": " 4"}], "q", "a"))
        [('2 + 2 =', ' 4')]
    """
    for record in read_records(source):
        first = _text(record, prompt, "read_pairs", "prompt")
        second = _text(record, completion, "read_pairs", "completion")
        if not second:
            raise FormatError(f"read_pairs: {_where(record)}: {completion} must not be empty")
        yield Pair.at(_where(record), first, second)


def encode_pairs(
    pairs: Iterable[tuple[str, str]], tokenizer: Tokenizer, train_on_prompt: bool = False
) -> Documents:
    """Turn prompts and completions into documents whose loss counts completions only.

    Prompt and completion are tokenized apart, so that the prompt's tokens are those that it has
    when a completion is asked for. The end of text follows, and is a target.

    Args:
        pairs: what `read_pairs` gives.
        tokenizer: text to ids.
        train_on_prompt: whether the prompts count, too.

    Raises:
        ValueError: there is no pair.
        FormatError: the vocabulary has no tokens for a character of a row; names the row. Of pairs
            from elsewhere this is a ValueError.

    Example:
        >>> tokenizer = Tokenizer.chars(["2+=4"])
        >>> encode_pairs([("2+2=", "4")], tokenizer).targets(0).tolist()
        [False, False, False, False, True, True]
    """
    checks.instance("encode_pairs", "tokenizer", tokenizer, Tokenizer)
    sequences: list[np.ndarray] = []
    counted: list[np.ndarray] = []
    head = [tokenizer.bos_id] if tokenizer.add_bos and tokenizer.bos_id is not None else []
    tail = [] if tokenizer.eos_id is None else [tokenizer.eos_id]
    for number, pair in enumerate(checks.items("encode_pairs", "pairs", pairs)):
        good = isinstance(pair, (tuple, list)) and len(pair) == 2
        if not good or not all(isinstance(part, str) for part in pair):
            raise TypeError(f"encode_pairs: a pair must be (prompt, completion); got {pair!r}")
        prompt, completion = pair
        try:
            first = np.array([*head, *tokenizer.encode(prompt)], np.int32)
            second = np.array([*tokenizer.encode(completion), *tail], np.int32)
        except ValueError as error:
            where = getattr(pair, "where", "")
            kind = FormatError if where else ValueError
            where = where or f"pair {number}"
            raise kind(f"encode_pairs: {where}: {reason(error)}") from error
        sequences.append(np.concatenate([first, second]))
        counted.append(np.arange(sequences[-1].size) >= (0 if train_on_prompt else first.size))
    if not sequences:
        raise ValueError("encode_pairs: needs at least one pair; got none")
    return Documents.of(sequences, counted)


def _where(record: Any) -> str:
    return str(getattr(record, "where", "a row"))


def _text(record: dict[str, Any], field: str, who: str, argument: str) -> str:
    """Return a field, which must be text; `argument` is that of `who` which names the field."""
    if field not in record:
        raise FormatError(
            f"{who}: {_where(record)}: must have the field {field!r}; got"
            f" {', '.join(map(repr, record)) or 'none'}; name another"
            f" with `{argument}`"
            + (_PAIRS if who == "read_texts" and {"prompt", "completion"} <= set(record) else "")
        )
    value = record[field]
    if not isinstance(value, str):
        raise FormatError(
            f"{who}: {_where(record)}: {field} must be text; got {type(value).__name__};"
            " leave such rows out, or make them text"
        )
    return value


def _dataset(source: Any) -> Iterator[Record]:
    """Rows of what behaves as a dataset of the `datasets` library."""
    for number, row in enumerate(source):
        if not isinstance(row, Mapping):
            raise TypeError(
                f"read_records: a dataset must give rows that are mappings; row {number} is a"
                f" {type(row).__name__}: was its format changed? Use dataset.with_format(None)"
            )
        yield Record(f"row {number}", row)
