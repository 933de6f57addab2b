# SPDX-License-Identifier: MIT
"""Log-probabilities under the reference: computed once, and kept in a file."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ... import checks
from ...data import Documents
from ...data.text.documents import check_documents
from ...errors import FormatError
from ...io import atomic_write
from ...io.sealed import read_sealed, seal
from ...nn.raw_bytes import checksum
from ...nn.weight_check import WeightCheck
from .logps import document_logps

__all__ = ["read_reference", "reference_key", "reference_logps", "write_reference"]

_FORMAT = 1


def reference_logps(
    model: Any,
    documents: Documents,
    path: str | Path | None = None,
    *,
    batch_size: int = 8,
    seq_len: int | None = None,
    model_id: int | None = None,
    options: Mapping[str, Any] | None = None,
) -> np.ndarray:
    """Return the log-probabilities of documents under the model as it is now.

    Call this before the training: no second model is needed then. Adapters that begin at zero
    make the base the reference.

    Args:
        model: a language model.
        documents: token ids, and which of them count.
        path: a file that keeps the numbers. It is read where it is of the same model, documents and
            options, and else written anew. None keeps none.
        batch_size: documents that are read side by side. Take the rows of a batch of the training,
            two for each pair: a CPU rounds products of quantised weights otherwise for few tokens.
        seq_len: most inputs of a row, that of the dataset; None is the longest document's.
        model_id: stands for the weights; None takes a checksum of them.
        options: further values by name, JSON-ready, that the numbers depend on.

    Shape:
        -> (D,) f32

    Raises:
        FormatError: the file is damaged.
        OSError: it cannot be read or written.

    Example:
        >>> documents = Documents.of([[1, 2, 3], [4, 5]])
        >>> first = reference_logps(model, documents, "reference.json")
        >>> bool((first == reference_logps(model, documents, "reference.json")).all())
        True
    """
    who = "reference_logps"
    check_documents(who, documents)
    checks.whole(who, "batch_size", batch_size, 1)
    if path is None:
        return document_logps(model, documents, batch_size, seq_len)
    file = checks.path(who, "path", path)
    weights = WeightCheck(who, model)
    weights.check()
    model_id = checksum(model) if model_id is None else model_id
    own = {"batch_size": batch_size, "seq_len": seq_len}
    key = reference_key(documents, model_id, {**own, **(options or {})})
    found = read_reference(file, key)
    if found is None:
        found = document_logps(model, documents, batch_size, seq_len)
        weights.check()
        write_reference(file, key, found)
    return found


def reference_key(
    documents: Documents, model_id: int, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what the numbers of a file depend on.

    Args:
        documents: token ids, and which of them count.
        model_id: stands for the weights.
        options: further values by name, JSON-ready.
    """
    return {
        "format": _FORMAT,
        "model": model_id,
        "documents": documents.fingerprint(),
        "count": len(documents),
        "options": dict(options),
    }


def write_reference(path: Path, key: Mapping[str, Any], logps: np.ndarray) -> None:
    """Write log-probabilities, and a hash of the file into it.

    Args:
        path: the file.
        key: of `reference_key`.
        logps: a number for each document.

    Raises:
        OSError: it cannot be written; an earlier file is then whole.
    """
    data = base64.b64encode(np.asarray(logps, "<f4").tobytes()).decode()
    with atomic_write(path, "wb") as handle:
        handle.write(seal({**key, "logps": data}))


def read_reference(path: Path, key: Mapping[str, Any]) -> np.ndarray | None:
    """Return the numbers of a file; None where there is none, or it is of another key.

    Args:
        path: the file.
        key: of `reference_key`.

    Raises:
        FormatError: the file is damaged.
    """
    if not path.exists():
        return None
    try:
        record = read_sealed(path)
        if {name: record.get(name) for name in key} != dict(key):
            return None
        data = base64.b64decode(record["logps"], validate=True)
        found = np.frombuffer(data, "<f4").astype(np.float32)
        if found.size != key["count"] or not np.isfinite(found).all():
            raise FormatError(f"it must hold {key['count']} finite numbers, and does not")
    except (FormatError, KeyError, TypeError, ValueError, binascii.Error) as error:
        raise FormatError(
            f"{path}: must be a file of a reference, and whole; {error}: move it away, and the"
            " numbers are computed again, or give another file"
        ) from error
    return found
