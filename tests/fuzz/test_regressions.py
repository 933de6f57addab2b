# SPDX-License-Identifier: MIT
"""What the fuzzers of fuzz/ found stays mended; their readers read what is whole."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import pyggml as pg
from pyggml.errors import ConfigError
from pyggml.io import save_safetensors, write_gguf
from pyggml.train import CheckpointError, load_checkpoint

FUZZ = Path(__file__).resolve().parents[2] / "fuzz"
REGRESSIONS = FUZZ / "regressions"

# Reads each file as fuzz/gguf.cpp does: with memory for its data, and without.
READ_GGUF = """
import resource, sys
from pathlib import Path
from pyggml import ffi, lib
resource.setrlimit(resource.RLIMIT_AS, (2**34, resource.getrlimit(resource.RLIMIT_AS)[1]))
for path in map(Path, sys.argv[1:]):
    data = path.read_bytes()[:-1]
    for no_alloc in (True, False):
        ctx = ffi.new("struct ggml_context **")
        params = ffi.new("struct gguf_init_params *", {"no_alloc": no_alloc, "ctx": ctx})[0]
        print(path.name, no_alloc, flush=True)
        gguf = lib.gguf_init_from_buffer(data, len(data), params)
        if gguf != ffi.NULL:
            lib.gguf_free(gguf)
        lib.ggml_free(ctx[0])
"""


def module_of(name: str) -> ModuleType:
    """Load a file of fuzz/."""
    spec = importlib.util.spec_from_file_location(f"fuzz_{name}", FUZZ / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def readers() -> ModuleType:
    return module_of("readers")


@pytest.fixture(scope="module")
def run() -> ModuleType:
    return module_of("run")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the fuzzers start from."""
    for package in ("tokenizers", "PIL"):
        pytest.importorskip(package)
    folder = tmp_path_factory.mktemp("corpus")
    subprocess.run([sys.executable, str(FUZZ / "seeds.py"), str(folder)], check=True, timeout=300)
    return folder


@pytest.mark.skipif(sys.platform == "win32", reason="limits address space")
@pytest.mark.skipif(pg.patch_count() < 5, reason="the build is older than patch 0005")
def test_ggufs_that_ended_the_process() -> None:
    files = [str(path) for path in sorted((REGRESSIONS / "gguf").iterdir())]
    assert files
    command = [sys.executable, "-c", READ_GGUF, *files]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-2000:]


def test_files_that_a_reader_got_wrong(readers: ModuleType, corpus: Path, tmp_path: Path) -> None:
    for name in readers.READERS:
        folder = tmp_path / name
        folder.mkdir()
        readers.prepare(name, corpus, folder)
        for path in sorted((REGRESSIONS / f"python-{name}").glob("*")):
            readers.read(name, path.read_bytes(), folder)
    for path in sorted((REGRESSIONS / "gguf").iterdir()):
        assert not readers.read("gguf", path.read_bytes()[:-1], tmp_path), path.name


def test_replay_reads_what_lies_beside_a_file(
    run: ModuleType,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The files of the Python readers are replayed: an adapter with its base, a finding as such."""
    monkeypatch.setattr(run, "CORPUS", corpus)
    monkeypatch.setattr(run, "REGRESSIONS", tmp_path)
    assert run.replay(["adapter", "state", "toml"])
    own = tmp_path / "python-gzip"
    own.mkdir()
    (own / "a-folder-has-no-bytes").mkdir()
    assert not run.replay(["adapter", "gzip"])
    assert "a-folder-has-no-bytes" in capfd.readouterr().err


def test_all_regressions_are_of_a_target(run: ModuleType, readers: ModuleType) -> None:
    assert set(run.READERS) == set(readers.READERS)
    known = {*run.NATIVE, *(f"python-{name}" for name in run.READERS)}
    assert {path.name for path in REGRESSIONS.iterdir()} <= known


def test_readers_read_what_their_fuzzers_start_from(
    readers: ModuleType, corpus: Path, tmp_path: Path
) -> None:
    no_models = {"seed-kinds", "seed-tensors", "seed-values"}
    for name in readers.READERS:
        folder = tmp_path / f"read-{name}"
        folder.mkdir()
        readers.prepare(name, corpus, folder)
        seeds = sorted((corpus / f"python-{name}").iterdir())
        refused = {s.name for s in seeds if not readers.read(name, s.read_bytes(), folder)}
        assert refused == (no_models if name == "gguf" else set()), name
        assert not readers.read(name, b"\x1f\x8bnothing", folder), name


def test_readers_wait_for_no_pipe(readers: ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")

    def late(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    try:
        # That of `state` looks into the file itself before it is read.
        reading = {**readers.READERS, "state": ("state.json", lambda p: load_checkpoint(p.parent))}
        for name, (file, reader) in reading.items():
            folder = tmp_path / name
            folder.mkdir()
            os.mkfifo(folder / file)
            signal.alarm(60)
            if name == "adapter":  # which is read after its base
                write_gguf(folder / "base.gguf", {"general.architecture": "none"}, {})
            with pytest.raises((pg.FormatError, CheckpointError, ConfigError)):
                reader(folder / file)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_readers_without_their_fuzzer_are_no_success(
    run: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "seeds", lambda: None)
    monkeypatch.setattr(run.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "argv", ["run.py", "run", "1", "--only", "toml", "csv"])
    assert run.main() == 1
    assert "2 readers of files are left out" in capsys.readouterr().out


def test_readers_read_and_refuse(readers: ModuleType, tmp_path: Path) -> None:
    save_safetensors(tmp_path / "a", {"a": np.ones(3, np.float32)})
    assert readers.read("safetensors", (tmp_path / "a").read_bytes(), tmp_path)
    assert readers.read("toml", b"[trainer]\nsteps = 3\n", tmp_path)
    assert readers.read("chats", b'{"prompt": "a", "completion": "b"}\n', tmp_path)
