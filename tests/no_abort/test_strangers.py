# SPDX-License-Identifier: MIT
"""What SECURITY.md promises of files of unknown origin."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import pyggml as pg
from pyggml.data import Corpus, Tokenizer, read_image, read_text
from pyggml.errors import FormatError
from pyggml.io import read_gguf, save_safetensors, write_gguf
from pyggml.models import build
from pyggml.train import TrainState, save_checkpoint

# Python tells a hook of these before it does them.
PROGRAM = """
import io, json, sys
from pathlib import Path
import numpy as np
import pyggml as pg
from pyggml.data import Corpus, Tokenizer, read_idx, read_image, read_records
from pyggml.io import load_safetensors, read_gguf
from pyggml.models import load
from pyggml.recipes import read_config
from pyggml.train import load_checkpoint
pg.set_threads(1)
def read():
    model, tokenizer = load("m.gguf")
    tokenizer.encode("a b")
    with read_gguf("m.gguf") as file:
        [file.array(name) for name in file]
    load_safetensors("m.safetensors")
    Tokenizer.from_file("tokenizer.json").encode("a b")
    load_checkpoint("step-000001")
    read_config("run.toml")
    list(Corpus("a.txt").pieces())
    list(read_records(["a.jsonl.gz", "a.csv"]))
    read_image("a.png")
read()
told, listening = [], True
HARM = ("exec", "compile", "os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen",
        "pickle.find_class", "marshal.loads", "socket.connect", "socket.getaddrinfo", "os.remove",
        "os.rename", "os.mkdir", "os.rmdir", "shutil.rmtree", "import")
def hook(event, arguments):
    if listening and (event in HARM or (event == "open" and set("wax+") & set(arguments[1] or ""))):
        told.append((event, repr(arguments)[:200]))
sys.addaudithook(hook)
read()
listening = False
print(json.dumps(told))
"""


def write_all(folder: Path) -> None:
    """A file of each kind."""
    import gzip

    image = pytest.importorskip("PIL.Image")
    sizes = {"n_layer": 1, "n_head": 1, "n_embd": 8, "context": 8}
    tokenizer = Tokenizer.chars(["a b"])
    model = build("gpt2", sizes, vocab_size=tokenizer.vocab_size)
    model.save_gguf(folder / "m.gguf", tokenizer, "x")
    tokenizer.save(folder / "tokenizer.json")
    save_safetensors(folder / "m.safetensors", model.state_dict())
    save_checkpoint(folder, TrainState(1, 2), model.state_dict(), {"m": np.ones(3)})
    (folder / "run.toml").write_text("steps = 3\n")
    (folder / "a.txt").write_text("a b")
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(b'{"text": "a"}\n'))
    (folder / "a.csv").write_text("text\na\n")
    image.new("RGB", (4, 4)).save(folder / "a.png")


def test_no_reader_runs_code_starts_programs_or_writes(tmp_path: Path) -> None:
    write_all(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)],
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


def test_a_model_of_any_claimed_size_takes_the_memory_of_its_file(tmp_path: Path) -> None:
    write_all(tmp_path)
    with read_gguf(tmp_path / "m.gguf") as file:
        metadata = file.typed_metadata
        tensors = {name: file.array(name) for name in file}
    for key in [key for key in metadata if key.startswith("gpt2.")]:
        if not isinstance(metadata[key], np.uint32):
            continue
        for value in (0, 1, 2**31 - 1, 2**32 - 1):
            changed = {**metadata, key: np.uint32(value)}
            write_gguf(tmp_path / "x.gguf", changed, tensors)
            try:
                model, _ = pg.models.load(tmp_path / "x.gguf")
            except (ValueError, TypeError, pg.BackendError):
                continue
            assert model.num_parameters() < 10_000


@pytest.mark.parametrize("field", ["model.vocab", "added_tokens"])
def test_a_tokenizer_takes_memory_for_its_tokens_and_not_for_their_numbers(
    tmp_path: Path, field: str
) -> None:
    content = json.loads(Tokenizer.chars(["abc"]).to_json())
    padded = json.loads(json.dumps(content))
    for each, number in ((content, 2**24 - 1), (padded, 50_000)):
        if field == "model.vocab":
            each["model"]["vocab"]["a"] = number
        else:
            each["added_tokens"].append({**each["added_tokens"][0], "id": number, "content": "<p>"})
            each["model"]["vocab"]["<p>"] = number
    (tmp_path / "t.json").write_text(json.dumps(content))
    with pytest.raises(FormatError, match=rf"t\.json: {field}: .*above the number.*16,777,215"):
        Tokenizer.from_file(tmp_path / "t.json")
    (tmp_path / "t.json").write_text(json.dumps(padded))
    tokenizer = Tokenizer.from_file(tmp_path / "t.json")
    assert len(tokenizer.to_gguf_metadata()["tokenizer.ggml.tokens"]) == 50_001


def replace(old: str, new: str, kind: str = "String") -> dict[str, object]:
    return {"type": "Replace", "pattern": {kind: old}, "content": new}


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


@pytest.mark.parametrize(
    ("field", "steps"),
    [
        ("normalizer", [replace("a", "aa")] * 40),
        ("normalizer", [replace("a", "b" * 20_000)]),
        ("normalizer", [replace("", "ab", "Regex")] * 10),
        ("normalizer", [{"type": "Prepend", "prepend": "a" * 2000}]),
        ("normalizer", [{"type": "ByteLevel"}] * 30),
        ("pre_tokenizer", [BYTES] * 30),
        ("decoder", [replace("a", "aa")] * 40),
    ],
)
def test_a_tokenizer_makes_no_endless_text_of_a_letter(
    tmp_path: Path, field: str, steps: list[dict[str, object]]
) -> None:
    content = json.loads(Tokenizer.chars(["abc"]).to_json())
    name = {"pre_tokenizer": "pretokenizers"}.get(field, field + "s")
    content[field] = {"type": "Sequence", name: steps}
    (tmp_path / "t.json").write_text(json.dumps(content))
    with pytest.raises(FormatError, match=rf"t\.json: {field}: its steps .* 1,000 characters"):
        Tokenizer.from_file(tmp_path / "t.json")


def test_a_sequence_of_another_type_is_one_to_the_library(tmp_path: Path) -> None:
    content = json.loads(Tokenizer.chars(["abc"]).to_json())
    content["normalizer"] = {"type": "None", "normalizers": [replace("a", "aa")] * 40}
    (tmp_path / "t.json").write_text(json.dumps(content))
    with pytest.raises(FormatError, match="normalizer: its steps"):
        Tokenizer.from_file(tmp_path / "t.json")


def test_a_tokenizer_may_make_a_text_somewhat_longer(tmp_path: Path) -> None:
    content = json.loads(Tokenizer.chars(["abc "]).to_json())
    content["normalizer"] = {
        "type": "Sequence",
        "normalizers": [{"type": "Prepend", "prepend": "a"}, replace(" ", "bb"), {"type": "NFKC"}],
    }
    (tmp_path / "t.json").write_text(json.dumps(content))
    tokenizer = Tokenizer.from_file(tmp_path / "t.json")
    assert tokenizer.decode(tokenizer.encode("c c")) == "acbbc"


def test_an_index_names_files_beside_it_only(tmp_path: Path) -> None:
    save_safetensors(tmp_path / "secret.safetensors", {"x": np.ones(2)})
    folder = tmp_path / "model"
    folder.mkdir()
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"x": "../secret.safetensors"}}))
    with pytest.raises(FormatError, match="same folder"):
        pg.io.load_safetensors(folder)


def test_links_in_a_folder_of_text(tmp_path: Path) -> None:
    """Of files they are followed, as the page says, and of folders they are not."""
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "b.txt").write_text("private")
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "a.txt").write_text("a")
    (folder / "folder").symlink_to(tmp_path / "private")
    assert read_text(folder) == ["a"]
    (folder / "b.txt").symlink_to(tmp_path / "private" / "b.txt")
    assert Corpus(folder).files == [folder / "a.txt", folder / "b.txt"]


def test_an_image_of_too_many_pixels_is_not_decoded(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    image.new("1", (12_000, 8_000)).save(tmp_path / "a.png")
    with pytest.raises(FormatError, match="pixels"):
        read_image(tmp_path / "a.png")
