# SPDX-License-Identifier: MIT
"""The files of records: JSONL, CSV and Parquet, row by row."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any

from ...errors import FormatError, OutOfMemoryError, shown
from ...io.regular import open_regular, open_unpacked

__all__ = ["RECORD_SUFFIXES", "Record", "is_records", "read_file"]

_COMPRESSED = ".gz"
# A line is in memory as a whole, with what is made of it several times.
_LINE_MAX = 1 << 26
# A field of a CSV file; Python's own limit is 128 KiB, less than many a document.
_FIELD_MAX = 1 << 28
_PARQUET_ROWS = 1024


class Record(dict[str, Any]):
    """A row with the place that it comes from."""

    def __init__(self, where: str, fields: Mapping[str, Any]) -> None:
        super().__init__(fields)
        self.where = where


# A row, or the error of one that is none.
_Row = Record | FormatError


def _jsonl(path: Path) -> Iterator[_Row]:
    with _open(path) as file:
        for number, line in enumerate(_lines(path, file), 1):
            if not line.strip():
                continue
            where = f"{path}:{number}"
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                yield _bad(f"read_records: {where}: not JSON: {_json_fault(line, error)}", error)
                continue
            fault = _lone_surrogate(line, value)
            if fault:
                yield FormatError(f"read_records: {where}: {fault}")
            elif isinstance(value, dict):
                yield Record(where, value)
            else:
                yield FormatError(
                    f"read_records: {where}: must be a JSON object; got {type(value).__name__};"
                    " JSONL has one object on each line"
                )


def _json(path: Path) -> Iterator[_Row]:
    """The objects of one list, or of lines as in JSONL."""
    with _open(path) as file:
        first = next((line.strip()[0] for line in _lines(path, file) if line.strip()), "")
    if first != "[":
        yield from _jsonl(path)
        return
    with _open(path) as file:
        text = "".join(_lines(path, file))
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"read_records: {path}: not JSON: {error}") from error
    for number, value in enumerate(values):
        where = f"{path}: item {number}"
        fault = _lone_surrogate(text, value)
        if fault:
            yield FormatError(f"read_records: {where}: {fault}")
        elif isinstance(value, dict):
            yield Record(where, value)
        else:
            yield FormatError(
                f"read_records: {where}: must be a JSON object; got {type(value).__name__}"
            )


def _json_fault(line: str, error: Exception) -> str:
    """Return what is wrong with a line, and where."""
    if not isinstance(error, json.JSONDecodeError):
        return str(error)
    text = line.rstrip()
    if error.pos >= len(text) or error.msg.startswith("Unterminated string"):
        return f"the line ends within its object, after {shown(text[-20:])}: was the file cut off?"
    return f"{error.msg} at character {error.colno}, {shown(text[error.pos :][:20])}"


def _lone_surrogate(text: str, value: Any) -> str:
    """Return what is wrong with a value that JSON's escapes make no text; "" of others."""
    if "\\ud" in text or "\\uD" in text:
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = error.object[error.start]
            return f"must be valid Unicode; got half a pair of surrogates, {shown(half)}"
    return ""


def _bad(message: str, cause: Exception) -> FormatError:
    """Return the error of a row, after which the next row is read."""
    error = FormatError(message)
    error.__cause__ = cause
    return error


def _csv(path: Path) -> Iterator[_Row]:
    before = csv.field_size_limit(_FIELD_MAX)
    try:
        with _open(path) as file:
            lines = _lines(path, file)
            above = list(islice(lines, 1))
            mark = "\t" if ".tsv" in path.suffixes else _delimiter(above)
            # What stands between a field's quotes may hold line ends: `line_num` counts those.
            rows = csv.reader(chain(above, lines), delimiter=mark, strict=True)
            yield from _csv_rows(path, rows)
    finally:
        csv.field_size_limit(before)


def _delimiter(above: list[str]) -> str:
    """Return what stands between the columns of a first line: a comma, if another does not."""
    for mark in ",;\t|":
        with suppress(csv.Error):
            if len(next(csv.reader(above, delimiter=mark, strict=True), ())) > 1:
                return mark
    return ","


def _csv_rows(path: Path, rows: Any) -> Iterator[_Row]:
    header: list[str] | None = None
    while True:
        line = rows.line_num + 1
        try:
            row = next(rows, None)
        except csv.Error as error:
            yield _bad(f"read_records: {path}:{line}: not CSV: {error}", error)
            continue
        if row is None:
            return
        if not row:
            continue
        if header is None:
            header = row
            twice = {name for name, times in Counter(row).items() if times > 1}
            if twice:
                raise FormatError(
                    f"read_records: {path}:{line}: names of columns must differ; got"
                    f" {', '.join(sorted(twice))} twice"
                )
        elif len(row) != len(header):
            yield FormatError(
                f"read_records: {path}:{line}: must have {len(header)} fields as the first line"
                f" has; got {len(row)}"
            )
        else:
            yield Record(f"{path}:{line}", dict(zip(header, row, strict=True)))


def _parquet(path: Path) -> Iterator[_Row]:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ModuleNotFoundError as error:
        cure = 'pip install "pyggml[data]"'
        raise ImportError(
            f"read_records: {path}: Parquet needs the package pyarrow; {cure}"
        ) from error
    number = 0
    try:
        # Opened here: pyarrow takes no name that is not UTF-8.
        with open_regular(path) as opened, ParquetFile(opened, pre_buffer=False) as file:
            for batch in file.iter_batches(batch_size=_PARQUET_ROWS, use_threads=False):
                for row in batch.to_pylist():
                    yield Record(f"{path}: row {number}", row)
                    number += 1
    except MemoryError as error:
        raise OutOfMemoryError(
            f"read_records: {path}: row {number}: no memory for {_PARQUET_ROWS:,} rows at once:"
            f" {error}; convert the file to JSONL"
        ) from error
    except (ArrowException, OSError, UnicodeError) as error:
        raise FormatError(
            f"read_records: {path}: row {number}: not a Parquet file, or damaged: {error}"
        ) from error


_READERS: dict[str, Callable[[Path], Iterator[_Row]]] = {
    ".jsonl": _jsonl,
    ".ndjson": _jsonl,
    ".csv": _csv,
    ".tsv": _csv,
    ".parquet": _parquet,
}
RECORD_SUFFIXES = tuple(_READERS)
"""The suffixes of files of records."""


def _reader(path: Path) -> Callable[[Path], Iterator[_Row]] | None:
    """Return the reader of a file, by its name; None for other files."""
    suffixes = [s.lower() for s in path.suffixes]
    packed = suffixes[-1:] == [_COMPRESSED]
    name = "".join(suffixes[-2:-1] if packed else suffixes[-1:])
    reader = _json if name == ".json" else _READERS.get(name)
    return None if packed and reader is _parquet else reader


def is_records(path: Path) -> bool:
    """Return True for a file name with a suffix of record files, such as `.jsonl`."""
    # A folder of texts may hold settings in JSON.
    return _reader(path) not in (None, _json)


def read_file(path: Path, on_bad: Callable[[FormatError], None] | None = None) -> Iterator[Record]:
    """Go through the rows of a file.

    Args:
        path: a file with one of `RECORD_SUFFIXES`, or `.json` with a list of rows.
        on_bad: called with the error of each line that is no row; None raises it.

    Raises:
        FormatError: the file is missing, of another kind, or has a line that is no row.
    """
    reader = _reader(path)
    if reader is None:
        raise FormatError(
            f"read_records: {path}: must end in one of {', '.join(RECORD_SUFFIXES)}, .json (all but"
            f" Parquet also with {_COMPRESSED}); rename it, or give its rows"
        )
    if not path.exists():
        raise FormatError(f"read_records: {path}: no such file")
    if not path.is_file():
        what = "is a folder; name its files" if path.is_dir() else "must be a regular file"
        raise FormatError(f"read_records: {path}: {what}")
    for row in reader(path):
        if isinstance(row, Record):
            yield row
        elif on_bad is None:
            raise row
        else:
            on_bad(row)


def _open(path: Path) -> Any:
    packed = path.suffix.lower() == _COMPRESSED
    try:
        file = (open_unpacked if packed else open_regular)(path)
        # Line ends inside of a CSV field stay as they are.
        return io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
    except OSError as error:
        raise FormatError(f"read_records: {path}: cannot be read: {error.strerror}") from error


def _lines(path: Path, file: Any) -> Iterator[str]:
    """Go through the lines of a text file; raise on bytes that are not text, with the line."""
    number = 0
    try:
        while line := file.readline(_LINE_MAX + 1):
            number += 1
            if len(line) > _LINE_MAX:
                raise FormatError(
                    f"read_records: {path}:{number}: a line must have at most {_LINE_MAX:,}"
                    " characters; got more; put each row on a line of its own"
                )
            if "\0" in line:
                raise FormatError(
                    f"read_records: {path}:{number}: must be text; got a NUL byte; the file is"
                    " binary"
                )
            yield line
    except UnicodeDecodeError as error:
        raise FormatError(
            f"read_records: {path}:{number + 1}: text must be UTF-8; got byte"
            f" 0x{error.object[error.start]:02x} ({error.reason}) in or after this line; convert"
            " the file to UTF-8 first"
        ) from error
    except (OSError, EOFError) as error:
        cause = getattr(error, "strerror", None) or error
        raise FormatError(f"read_records: {path}:{number + 1}: cannot be read: {cause}") from error
