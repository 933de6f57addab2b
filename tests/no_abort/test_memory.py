# SPDX-License-Identifier: MIT
"""Very many tensors and ops, and a memory that is full."""

from __future__ import annotations

import sys

import pytest

import pyggml as pg

from .programs import script


def test_very_many_tensors() -> None:
    held = [pg.zeros((1,)) for _ in range(20_000)]
    assert pg.Graph([*held[:3], held[0] + held[-1]]).n_nodes == 1
    del held


@pytest.mark.parametrize("length", [5_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_long_chains(length: int) -> None:
    text = """
x = pg.tensor([1.0], requires_grad=True)
y = x
for _ in range(LENGTH):
    y = y * 1.0
assert y.numpy().tolist() == [1.0]
y.sum().backward()
assert x.grad.tolist() == [1.0]
z = pg.tensor([0.0])
for _ in range(4 * LENGTH):
    z = z + x
del y, z
print("freed")
"""
    assert script(text.replace("LENGTH", str(length))) == "freed\n"


@pytest.mark.skipif(sys.platform != "linux", reason="limits address space")
def test_more_ops_than_fit_in_memory() -> None:
    text = """
import resource
x = pg.tensor([1.0], requires_grad=True)
y = x
for _ in range(30_000):
    y = y * 1.0
product()
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**29,) * 2)
try:
    y.sum().backward()
except pg.OutOfMemoryError:
    print("refused")
assert pg.tensor([2.0]).sum().item() == 2.0
"""
    assert script(text) == "refused\n"


LIMIT = """
import resource
def limit(size_bytes):
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + size_bytes,) * 2)
pg.set_threads(1)
product()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits address space")
@pytest.mark.parametrize("mb", [1, 5, 12, 40])
def test_graphs_until_the_memory_is_full(mb: int) -> None:
    text = """
kept = []
limit(MB * 2**20)
try:
    while True:
        y = pg.ones((300, 300))
        y.requires_grad = True
        kept.append((y, pg.ops.tanh(y @ y)))
        kept[-1][1].sum().backward()
except MemoryError:
    kept.clear()
    print("refused")
"""
    assert script(LIMIT + text.replace("MB", str(mb))) == "refused\n"


@pytest.mark.skipif(sys.platform != "linux", reason="limits address space")
def test_ops_in_a_full_memory() -> None:
    text = """
x, kept = pg.ones((8, 8)), []
limit(100 * 2**20)
try:
    while True:
        kept.append(np.ones(2**17))
except MemoryError:
    pass
refused = 0
for call in (
    lambda: pg.ones((4, 4)),
    lambda: (x @ x).numpy(),
    lambda: [pg.ops.tanh(x) for _ in range(2000)],
    lambda: pg.zeros((300, 300)),
):
    try:
        call()
    except MemoryError:
        refused += 1
kept.clear()
print(refused > 0, (x @ x).numpy().sum())
"""
    assert script(LIMIT + text) == "True 512.0\n"


@pytest.mark.skipif(sys.platform != "linux", reason="limits address space")
def test_no_memory_to_work_in() -> None:
    text = """
a, b = pg.tensor(np.ones((64, 4096)), "f16"), pg.ones((2048, 4096))
graph = pg.Graph([pg.ops.mul_mat(a, b)])
limit(3 * 2**20)
try:
    graph.run()
except pg.OutOfMemoryError:
    print("refused")
"""
    assert script(LIMIT + text) == "refused\n"


TUNING = """
from pathlib import Path
from pyggml.data import Tokenizer
from pyggml.models import Llama, LlamaConfig
from pyggml.recipes import finetune
from pyggml.train import Callback

folder = Path(FOLDER)
tokenizer = Tokenizer.train_bpe(["What is it? It is a word."], 270)
sizes = {"n_layer": 2, "n_head": 2, "n_embd": 64, "n_ffn": 128, "context": 1024}
Llama(LlamaConfig(vocab_size=tokenizer.vocab_size, **sizes)).save(folder / "base.gguf", tokenizer)
long = [2] * 12 + [200] * 4
rows = [{"prompt": "What is it? ", "completion": "It is a word. " * n} for n in long]
given = {
    "model": folder / "base.gguf", "data": rows, "packing": False, "batch_size": 4, "epochs": 2,
    "val_fraction": 0.0, "save_every": 1, "threads": 1, "lora_rank": 4, "report": False,
}

class Shapes(Callback):
    # The limit comes when the first shape has been computed, and leaves no room for the second.
    def __init__(self, limited):
        self.limited, self.seen = limited, []
    def on_step(self, trainer, metrics):
        self.seen.append(metrics.tokens)
        if self.limited:
            limit(2**22)
            self.limited = False

whole = Shapes(False)
finetune(artifact_dir=folder / "whole", callbacks=[whole], **given)
tokens = np.diff([0, *whole.seen])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits address space")
def test_a_fine_tuning_whose_second_shape_has_no_room(tmp_path) -> None:
    setup = LIMIT + TUNING.replace("FOLDER", repr(str(tmp_path)))
    text = """
cut = Shapes(True)
try:
    finetune(artifact_dir=folder / "cut", callbacks=[cut], **given)
except pg.OutOfMemoryError as error:
    assert "checkpoint" in str(error) and "`resume`" in str(error), error
    done = len(cut.seen)
    assert set(tokens[:done]) == {tokens[0]} and tokens[done] > 2 * tokens[0], (done, tokens)
    print("refused")
"""
    assert script(setup + text).splitlines()[-1] == "refused"
    text = f"""
from pathlib import Path
from pyggml.recipes import finetune
folder = Path({str(tmp_path)!r})
finetune(artifact_dir=folder / "cut", resume=True)
same = [(folder / name / "adapter.gguf").read_bytes() for name in ("whole", "cut")]
print(same[0] == same[1])
"""
    assert script(text).splitlines()[-1] == "True"


@pytest.mark.skipif(sys.platform != "linux", reason="limits address space")
@pytest.mark.parametrize("arenas", ["1", ""], ids=["one arena", "arenas"])
def test_a_thread_whose_first_call_finds_no_memory(
    arenas: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C++ needs memory of its own for the first exception of a thread."""
    text = """
import ctypes
import threading
from pyggml.backend.library import ffi, lib
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = libc.free.argtypes = [ctypes.c_size_t]
params = ffi.new("struct ggml_init_params *", {"mem_size": 2**16, "no_alloc": True})
said = []

def first_call():
    last = None  # the pieces hang together, for Python has no memory to name them
    for size in [*range(2**16, 2**10, -1024), *range(2**10, 0, -16)]:
        while piece := libc.malloc(size):
            ctypes.c_void_p.from_address(piece).value, last = last, piece
    try:
        lib.ggml_init(params[0])
    except MemoryError:
        said.append("refused")
    while last:
        piece, last = last, ctypes.c_void_p.from_address(last).value
        libc.free(piece)
    lib.ggml_free(lib.ggml_init(params[0]))

thread = threading.Thread(target=first_call, daemon=True)
limit(2**24)
thread.start()
thread.join()
print(*said)
"""
    if arenas:
        monkeypatch.setenv("MALLOC_ARENA_MAX", arenas)
    assert script(LIMIT + text) == "refused\n"
