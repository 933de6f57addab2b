# SPDX-License-Identifier: MIT
"""A system that grants neither memory nor threads."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pyggml.data import Tokenizer

from .programs import script

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")

LIMIT = """
import logging, resource
def limit(size_bytes):
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + size_bytes,) * 2)
"""


@pytest.mark.parametrize("mb", [0, 3, 8, 28])
def test_small_tensors_until_the_memory_is_full(mb: int) -> None:
    text = """
logging.disable()
pg.set_threads(1)
product()
kept = []
limit(MB * 2**20)
try:
    while True:
        kept.append(pg.ones((1000,)))
except MemoryError:
    kept.clear()
    print("refused")
"""
    assert script(LIMIT + text.replace("MB", str(mb))) == "refused\n"


THREADS = """
a = pg.tensor(big)
want = big @ big
messages = []
class Keep(logging.Handler):
    def emit(self, record):
        messages.append(record.getMessage())
logging.getLogger("pyggml.ggml").addHandler(Keep())
pg.set_threads(16)
"""


def test_threads_that_the_memory_has_no_stacks_for() -> None:
    text = """
limit(40 * 2**20)
assert np.allclose((a @ a).numpy(), want, rtol=1e-4)
assert any("could not be started" in text for text in messages), messages
print("fewer")
"""
    assert script(LIMIT + THREADS + text) == "fewer\n"


def test_threads_beyond_the_limit_of_processes() -> None:
    text = """
if os.getuid() == 0:  # whom the limit does not bind
    os.setgid(54321)
    os.setuid(54321)
resource.setrlimit(resource.RLIMIT_NPROC, (2, resource.getrlimit(resource.RLIMIT_NPROC)[1]))
assert np.allclose((a @ a).numpy(), want, rtol=1e-4)
assert any("could not be started" in text for text in messages), messages
print("fewer")
"""
    assert script(LIMIT + THREADS + text) == "fewer\n"


TOKENIZER = """
from pyggml.data import Tokenizer
text = "the quick brown fox " * 100_000
chars = Tokenizer.chars([text])
ids = list(range(4)) * 200_000
call = {
    "encode": lambda: chars.encode(text),
    "encode_documents": lambda: chars.encode_documents([text]),
    "decode": lambda: chars.decode(ids),
    "train_bpe": lambda: Tokenizer.train_bpe([text], 300),
}["CALL"]
"""


@pytest.mark.parametrize("mb", [2, 60])
@pytest.mark.parametrize("call", ["encode", "encode_documents", "decode", "train_bpe"])
def test_texts_that_the_memory_has_no_room_for(call: str, mb: int) -> None:
    """The library of the tokenizers ends the process when an allocation fails."""
    text = """
limit(MB * 2**20)
try:
    call()
except MemoryError:
    print("refused")
"""
    assert script(LIMIT + (TOKENIZER + text).replace("CALL", call).replace("MB", str(mb))) == (
        "refused\n"
    )


@pytest.mark.parametrize("mb", [40, 60])
def test_texts_that_the_memory_has_room_for_in_one_thread(mb: int, tmp_path: Path) -> None:
    """Another thread of the library would end the process: each reserves tens of megabytes."""
    file = tmp_path / "tokenizer.json"
    Tokenizer.train_bpe(["the quick brown fox"], 270).save(file)
    text = """
from pyggml.data import Tokenizer
tokenizer = Tokenizer.from_file("FILE")
texts = [f"the {i * i * i} quick {i * i} brown {i} foxes" for i in range(2000)]
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + MB * 2**20,) * 2)
print(len(tokenizer.encode_documents(texts)) > 1000)
"""
    program = LIMIT + text.replace("FILE", str(file)).replace("MB", str(mb))
    assert script(program) == "True\n"


@pytest.mark.parametrize("first", ["train_bpe([text], 300)", "chars([text])"])
def test_a_tokenizer_without_threads(first: str) -> None:
    text = """
import logging
messages = []
class Keep(logging.Handler):
    def emit(self, record):
        messages.append(record.getMessage())
logging.getLogger("pyggml.data").addHandler(Keep())
if os.getuid() == 0:  # whom the limit does not bind
    os.setgid(54322)
    os.setuid(54322)
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
tokenizer = Tokenizer.FIRST
assert len(tokenizer.encode(text)) > 100_000
assert len(tokenizer.encode_documents([text])) > 100_000
assert any("no threads" in message for message in messages), messages
print("one")
"""
    text = TOKENIZER.replace("CALL", "encode") + text.replace("FIRST", first)
    assert script(LIMIT + text) == "one\n"


@pytest.mark.parametrize("kind", ["png", "parquet"])
def test_files_that_the_memory_has_no_room_for(kind: str, tmp_path: Path) -> None:
    """The file is whole; the error is of the memory."""
    pytest.importorskip("PIL" if kind == "png" else "pyarrow")
    file = tmp_path / f"large.{kind}"
    if kind == "png":
        from PIL import Image

        Image.new("RGB", (3000, 3000)).save(file)
    else:
        import pyarrow
        from pyarrow import parquet

        parquet.write_table(pyarrow.table({"text": ["fox " * 5000] * 2000}), file)
    text = """
from pyggml.data import read_image, read_records
def read():
    return read_image("FILE") if "FILE".endswith("png") else list(read_records("FILE"))
import PIL.Image, pyarrow.parquet
limit(4 * 2**20)
try:
    read()
except MemoryError as error:
    print("FILE" in str(error))
"""
    need = "import PIL.Image" if kind == "png" else "import pyarrow.parquet"
    text = text.replace("import PIL.Image, pyarrow.parquet", need).replace("FILE", str(file))
    assert script(LIMIT + text) == "True\n"
