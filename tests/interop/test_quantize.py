# SPDX-License-Identifier: MIT
"""Our quantised files are llama.cpp's, byte for byte.

The wheel lacks its quantiser, so that one file is compiled from the pinned source package, against
the wheel's library.
"""

import ctypes
import functools
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import pyggml as pg
from pyggml.cli.app import app
from pyggml.data import Tokenizer, embedded_text
from pyggml.errors import ShapeError
from pyggml.io import read_gguf, write_gguf
from pyggml.models import build
from pyggml.models.quantization import MIXES, quantize_gguf, read_importance, write_importance
from pyggml.models.quantization.importance import Importance
from pyggml.models.quantization.mixes import Mixer, in_order

from . import llamacpp

CACHE = Path(__file__).parents[2] / "vendor" / "cache"
PACKAGES = sorted(CACHE.glob("xllamacpp-*.tar.gz"))
pytestmark = [
    pytest.mark.slow,  # half a minute of compiling
    pytest.mark.skipif(
        not llamacpp.HERE or not PACKAGES or not shutil.which("g++"),
        reason="needs the xllamacpp wheel, its source package in vendor/cache, and g++",
    ),
]
DRIVER = """
#include "llama.h"
extern "C" uint32_t run(const char * in, const char * out, int mix,
                        const llama_model_imatrix_data * importance, bool pure, bool dry) {
    llama_model_quantize_params p = llama_model_quantize_default_params();
    p.ftype = (llama_ftype) mix;
    p.nthread = 2;
    p.imatrix = importance;
    p.pure = pure;
    p.dry_run = dry;
    return llama_model_quantize(in, out, &p);
}
"""
SIZES = {"vocab_size": 64, "context": 64, "n_embd": 256, "n_layer": 10, "n_head": 4, "n_ffn": 512}
GROUPED = {**SIZES, "n_kv_head": 1}
MODELS = {
    "llama": ("llama", GROUPED),
    "untied": ("llama", {**SIZES, "n_kv_head": 2, "n_layer": 9, "tie": False}),
    "odd": ("llama", {**SIZES, "n_embd": 96, "n_ffn": 160, "n_head": 3}),
    "moe8": ("llama", {**GROUPED, "n_expert": 8, "n_layer": 3, "n_ffn": 256}),
    "qwen3moe": (
        "llama",
        {**SIZES, "family": "qwen3moe", "n_expert": 4, "n_layer": 4, "n_expert_ffn": 256},
    ),
    "phi3": ("llama", {**GROUPED, "family": "phi3", "n_layer": 4}),
    "gpt-oss": ("llama", {**GROUPED, "family": "gpt-oss", "n_expert": 4, "n_layer": 2}),
    "gpt2": ("gpt2", SIZES),
    "bert": ("bert", {**SIZES, "n_layer": 3}),
    "t5": ("t5", {**SIZES, "n_head_dim": 64, "n_layer": 3}),
}
NAMES = [name for name in MIXES if name not in ("Q3_K", "Q4_K", "Q5_K")]


class _Entry(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("data", ctypes.POINTER(ctypes.c_float)),
        ("size", ctypes.c_size_t),
    )


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """llama.cpp's quantiser: (in, out, mix, importance, pure, dry) -> None or the log."""
    import xllamacpp.xllamacpp as module

    folder = tmp_path_factory.mktemp("quantiser")
    wanted = re.compile(r".*/thirdparty/llama\.cpp/(src|include|ggml/include)/[^/]*$")
    with tarfile.open(PACKAGES[-1]) as package:
        for member in package.getmembers():
            if member.isfile() and wanted.match(member.name):
                target = folder / member.name.split("/llama.cpp/")[1]
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(package.extractfile(member).read())
    (folder / "driver.cpp").write_text(DRIVER)
    words = "g++ -O1 -std=c++17 -D_GLIBCXX_USE_CXX11_ABI=0 -shared -fPIC -Iinclude -Isrc"
    words += " -Iggml/include src/llama-quant.cpp driver.cpp -o quantiser.so"
    subprocess.run(words.split(), cwd=folder, check=True, timeout=600)
    library = ctypes.CDLL(module.__file__, mode=ctypes.RTLD_GLOBAL)
    driver = ctypes.CDLL(folder / "quantiser.so")
    said = []
    log = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
    listen = log(lambda level, text, data: said.append(text.decode("utf-8", "replace")))
    library.llama_log_set(listen, None)
    kinds = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p]
    driver.run.argtypes = [*kinds, ctypes.c_bool, ctypes.c_bool]

    def run(source, target, mix, importance=None, pure=False, dry=False):
        said.clear()
        listen.restype = None  # keeps it alive
        given = None
        if importance is not None:
            floats = ctypes.POINTER(ctypes.c_float)
            entries = [
                _Entry(name.encode(), values.ctypes.data_as(floats), values.size)
                for name, values in importance.items()
            ]
            given = (_Entry * (len(entries) + 1))(*entries)
            given = ctypes.cast(given, ctypes.c_void_p)
        files = str(source).encode(), str(target).encode()
        failed = driver.run(*files, MIXES[mix].number, given, pure, dry)
        return bool(failed), "".join(said)

    return run


@functools.cache
def saved(name, folder):
    """A model's file, and values of importance for its matrices."""
    arch, sizes = MODELS[name]
    pg.seed(1)
    path = folder / f"{name}.gguf"
    build(arch, sizes).save(path, Tokenizer.chars(["hello there"]))
    return path, important(path)


def important(path):
    rng = np.random.default_rng(0)
    values, counts = {}, {}
    with read_gguf(path) as file:
        for name, info in file.tensors.items():
            if "blk." in name and len(info.shape) > 1:
                experts = info.shape[0] if len(info.shape) == 3 else 1
                drawn = rng.random(info.shape[-1] * experts).astype(np.float32)
                values[name], counts[name] = drawn + np.float32(0.1), np.ones(experts)
    written = path.with_suffix(".imatrix.gguf")
    write_importance(written, Importance(values, counts))
    return written


@pytest.mark.parametrize("name", MODELS)
def test_types_are_llama_cpps(name, theirs, tmp_path):
    path, weights = saved(name, tmp_path)
    importance = read_importance(weights).values
    with read_gguf(path) as file:
        metadata, infos = file.metadata, file.tensors
        for mix in NAMES:
            for given in (None, importance):
                for pure in (False, True):
                    failed, text = theirs(path, tmp_path / "none", mix, given, pure, dry=True)
                    lines = re.findall(
                        r"\] +(\S+) +- \[.*?type = +(\S+), size =[^\n]*?(?:\((\w+)\))?\n", text
                    )
                    want = {tensor: new or old for tensor, old, new in lines}
                    mixer = Mixer(mix, metadata, infos, given is not None, pure)
                    if failed:  # rows that no type fits
                        with pytest.raises(ShapeError):
                            [mixer.choose(n, infos[n].shape, infos[n].dtype) for n in infos]
                        continue
                    ours = {
                        tensor: mixer.choose(tensor, infos[tensor].shape, infos[tensor].dtype)
                        for tensor in in_order(infos)
                    }
                    assert ours == want, (mix, given is not None, pure)


@pytest.mark.parametrize("experts", [0, 2])
def test_bytes_are_llama_cpps(experts, theirs, tmp_path):
    sizes = {**GROUPED, "n_layer": 1, "n_ffn": 256}
    if experts:
        sizes |= {"family": "qwen3moe", "n_expert": experts, "n_expert_ffn": 256}
    pg.seed(1)
    path = tmp_path / "model.gguf"
    build("llama", sizes).save(path, Tokenizer.chars(["hello there"]))
    weights = important(path)
    importance = read_importance(weights).values
    ours, other = tmp_path / "ours.gguf", tmp_path / "theirs.gguf"
    for mix in NAMES:
        for given in (None, importance):
            failed, text = theirs(path, other, mix, given)
            if failed:
                assert "importance" in text, (mix, text[-300:])
                with pytest.raises(ValueError, match="importance"):
                    quantize_gguf(path, ours, mix)
                continue
            quantize_gguf(path, ours, mix, weights if given is not None else None)
            if given is None:
                assert ours.read_bytes() == other.read_bytes(), mix
                continue
            with read_gguf(ours) as a, read_gguf(other) as b:
                assert list(a.tensors) == list(b.tensors)
                for name, info in b.tensors.items():
                    assert a.tensors[name].dtype == info.dtype, (mix, name)
                    np.testing.assert_array_equal(a.array(name), b.array(name), f"{mix} {name}")


@pytest.mark.slow
@pytest.mark.skipif("PYGGML_LLAMA_IMATRIX" not in os.environ, reason="names llama-imatrix")
@pytest.mark.parametrize("add_bos", [False, True])
def test_importance_is_that_of_llama_imatrix(add_bos, tmp_path):
    tokenizer = Tokenizer.train_bpe(embedded_text()[:3], 300)
    pg.seed(1)
    sizes = {"context": 256, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_kv_head": 2}
    model = build("llama", {**sizes, "vocab_size": tokenizer.vocab_size})
    words = {**tokenizer.to_gguf_metadata(), "tokenizer.ggml.add_bos_token": add_bos}
    path, text = tmp_path / "m.gguf", tmp_path / "text.txt"
    write_gguf(path, model.to_gguf_metadata(words), model.to_gguf_tensors())
    text.write_text("\n".join(embedded_text())[:4000])
    tool, cut = os.environ["PYGGML_LLAMA_IMATRIX"], ["-c", "64", "-b", "64", "-ub", "64"]
    plain = ["--no-ppl", "-t", "1", "-ctk", "f32", "-ctv", "f32", "-fa", "off"]
    found = {}
    for kind in ("gguf", "dat"):
        out = ["-o", str(tmp_path / f"i.{kind}"), "--output-format", kind]
        given = ["-m", str(path), "-f", str(text)]
        subprocess.run([tool, *given, *out, *cut, *plain], check=True, capture_output=True)
        found[kind] = read_importance(tmp_path / f"i.{kind}")
    own = tmp_path / "own.gguf"
    command = ["imatrix", path, "--text", text, "--chunk", 64, "--output", own]
    done = CliRunner().invoke(app, list(map(str, command)))
    assert done.exit_code == 0, done.output
    ours = read_importance(own)
    assert (ours.chunks, ours.chunk_size) == (found["gguf"].chunks, found["gguf"].chunk_size)
    for theirs in found.values():
        assert set(ours.values) == set(theirs.values)
        for name, values in theirs.values.items():
            np.testing.assert_allclose(ours.values[name], values, rtol=1e-4, err_msg=name)
