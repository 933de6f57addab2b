# SPDX-License-Identifier: MIT
"""Names of files that are not UTF-8: trained with, written down, and read back the same."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from pyggml.data import Tokenizer
from pyggml.errors import ConfigError, FormatError
from pyggml.io import atomic_dir, atomic_write
from pyggml.io.names import original, portable
from pyggml.models import load
from pyggml.recipes import LLMConfig, export_checkpoint, read_config, save_config, train_llm

ODD = os.fsdecode(b"caf\xe9")
SMALL = {
    **{"steps": 2, "layers": 1, "heads": 2, "embd": 16, "seq_len": 8, "batch_size": 2},
    **{"tokenizer": "chars", "sample_tokens": 2},
}
TEXT = "the quick brown fox jumps over the lazy dog. " * 6

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="needs a file system of names that are bytes"
)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # Pictures, which take longest, have no name in them.
    monkeypatch.setattr("pyggml.recipes.run.plot_loss", lambda *args, **more: False)
    monkeypatch.setattr("pyggml.recipes.report.report._curves", lambda *arguments: "")


def test_a_run_with_odd_names_ends_and_goes_on() -> None:
    Path(f"{ODD}.txt").write_text(TEXT)
    Tokenizer.chars([TEXT]).save(f"{ODD}.json")
    more = {"text": f"{ODD}.txt", "eval_text": (f"more={ODD}.txt",), "artifact_dir": f"run {ODD}"}
    run = train_llm(**more, **{**SMALL, "tokenizer": f"{ODD}.json"})
    folder = Path(f"run {ODD}")
    assert {"model.gguf", "report.html", "config.toml"} <= {p.name for p in folder.iterdir()}
    again = train_llm(artifact_dir=str(folder), resume=True, steps=3)
    assert again.result is not None
    assert again.result.step == 3
    # All that is written is valid for readers in other languages.
    for path in folder.rglob("*"):
        if path.suffix in (".json", ".jsonl", ".toml", ".html"):
            text = path.read_text(encoding="utf-8")
            assert r"\udce9" not in text, path
    assert "caf%E9.txt" in (folder / "config.toml").read_text()
    for name in ("config.toml", "config.json"):
        assert LLMConfig(**read_config(folder / name))["text"] == (f"{ODD}.txt",)
    model, _ = load(export_checkpoint(folder / "checkpoints" / "best", f"{ODD}.gguf"))
    assert model.num_parameters() == run.model.num_parameters()


@pytest.mark.parametrize("name", ["prompt", "field", "separator", "wandb"])
def test_an_option_that_is_no_path_is_unicode(name: str) -> None:
    with pytest.raises(ConfigError, match=f"`{name}` must be valid Unicode"):
        LLMConfig(**{name: ODD})


def test_a_class_is_unicode_before_the_first_step() -> None:
    image = pytest.importorskip("PIL.Image")
    from pyggml.recipes import train_image

    for name in (ODD, "dog"):
        os.makedirs(f"pets/{name}")
        for number in range(3):
            image.new("RGB", (8, 8), (number, 0, 0)).save(f"pets/{name}/{number}.png")
    with pytest.raises(FormatError, match=r"caf\\xe9.*rename"):
        train_image(data="pets", artifact_dir="a", model="cnn", size=8)
    assert not Path("a").exists()


@pytest.mark.parametrize("name", [ODD, f"{ODD}\n\x1b", "é" * 127, ODD * 60])
def test_files_and_folders_of_any_name_are_written(name: str) -> None:
    with atomic_write(name) as file:
        file.write(b"x")
    assert os.listdir() == [name]
    os.remove(name)
    name = name[:100]  # the name of a folder that is replaced has the other's tag beside it
    for _ in range(2):
        with atomic_dir(name, replace=True) as folder:
            (folder / "a").touch()
    assert os.listdir() == [name]


def test_any_text_comes_back() -> None:
    values = {"a": ODD, "b": [ODD, "x%y", {"percent": 3}], "c": {"percent": "x", "d": 1}, "e": None}
    written = json.dumps(portable(values), ensure_ascii=False).encode()
    assert original(json.loads(written)) == values


def test_a_table_of_options_stays_a_table() -> None:
    config = LLMConfig(text=f"{ODD}.txt", optimizer="sgd", optimizer_options={"momentum": 0.5})
    save_config(config, "a.toml")
    assert LLMConfig(**read_config("a.toml")) == config
