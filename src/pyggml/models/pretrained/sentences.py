# SPDX-License-Identifier: MIT
"""Files of sentence-transformers: the pooling that makes one vector of a text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ...errors import FormatError, shown
from ...io import read_regular
from .fields import HFConfig, read_json

__all__ = ["read_pooling", "written_pooling"]

_MODULES = "modules.json"
_PREFIX = "sentence_transformers.models."
_POOLING, _NORMALIZE = "1_Pooling", "2_Normalize"
# transformers' model, and what makes the vectors of length one, which `embed` does by itself.
_IGNORED = ("Transformer", "Normalize")
_MODES = {"cls": "cls_token", "last": "lasttoken", "mean": "mean_tokens"}
_OTHERS = ("max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens")


def read_pooling(given: HFConfig, default: str | None = "mean") -> str | None:
    """Read how sentence-transformers makes one vector of a text.

    Args:
        given: the fields of the `config.json` beside its files.
        default: for a folder without them.

    Raises:
        FormatError: it does so in another way.
    """
    file = _pooling_file(Path(given.path).parent)
    if not file.is_file():
        return default
    beside = HFConfig(file, read_json(file))
    chosen = [name for name, mode in _MODES.items() if beside.flag(f"pooling_mode_{mode}", False)]
    chosen += [mode for mode in _OTHERS if beside.flag(f"pooling_mode_{mode}", False)]
    if len(chosen) != 1 or chosen[0] not in _MODES:
        told = " and ".join(chosen) or "nothing"
        raise FormatError(f"{file}: the pooling must be one of mean, cls and last; got {told}")
    return chosen[0]


def _pooling_file(folder: Path) -> Path:
    """Return the configuration of the pooling.

    Raises:
        FormatError: there are modules that no model computes, such as a dense layer.
    """
    file, found = folder / _MODULES, _POOLING
    if file.is_file():
        try:
            modules = json.loads(read_regular(file))
        except (OSError, ValueError, RecursionError) as error:
            raise FormatError(f"{file}: must be JSON: {error}") from error
        for module in modules if isinstance(modules, list) else [modules]:
            kind = module.get("type") if isinstance(module, dict) else module
            name = str(kind).rpartition(".")[2]
            if name == "Pooling" and isinstance(module.get("path"), str):
                found = Path(module["path"]).name
            elif name not in _IGNORED:
                raise FormatError(
                    f"{file}: the modules must be Transformer, Pooling and Normalize; got"
                    f" {shown(kind)}, which is not computed"
                )
    return folder / found / "config.json"


def written_pooling(pooling: str, width: int) -> dict[str, Any]:
    """Return sentence-transformers' files by name, in the order of writing.

    Args:
        pooling: "mean", "cls" or "last".
        width: of a vector.
    """
    modules = [("", "Transformer"), (_POOLING, "Pooling"), (_NORMALIZE, "Normalize")]
    modes = {f"pooling_mode_{mode}": name == pooling for name, mode in _MODES.items()}
    modes |= {f"pooling_mode_{mode}": False for mode in _OTHERS}
    return {
        f"{_POOLING}/config.json": {"word_embedding_dimension": width, **modes},
        _MODULES: [
            {"idx": i, "name": str(i), "path": path, "type": _PREFIX + kind}
            for i, (path, kind) in enumerate(modules)
        ],
    }
