# SPDX-License-Identifier: MIT
"""Runs of all kinds: arguments, and folders of another kind."""

from __future__ import annotations

import json

import pytest

from pyggml.errors import ConfigError
from pyggml.recipes import ImageRun, LLMRun, train_image, train_llm


@pytest.mark.parametrize(("train", "options"), [(train_llm, {}), (train_image, {"data": "digits"})])
@pytest.mark.parametrize("name", ["note", "prepared"])
def test_what_is_called_must_be_a_function(train, options, name):
    with pytest.raises(TypeError, match=f"{train.__name__}: {name} "):
        train(**{name: 3}, **options)


@pytest.mark.parametrize(("kind", "task"), [(LLMRun, "image"), (ImageRun, None)])
def test_a_run_of_another_kind_is_not_resumed(tmp_path, kind, task):
    record = {"kind": "pyggml training run", "format": 1, "task": task}
    (tmp_path / "config.json").write_text(json.dumps(record))
    with pytest.raises(ConfigError, match=r"`resume`: .* holds a run of train-"):
        kind.resume(tmp_path)
    with pytest.raises(TypeError, match="note"):
        kind.resume(tmp_path, note=3)
