# SPDX-License-Identifier: MIT
from __future__ import annotations

import contextlib
import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

pytest.importorskip("safetensors")
from pyggml.errors import DTypeError, FormatError
from pyggml.io import (
    load_safetensors,
    open_safetensors,
    safetensors_metadata,
    save_safetensors,
)

RNG = np.random.default_rng(0)


def raw_file(path: Path, tensors: dict[str, tuple[str, list[int], bytes]]) -> Path:
    """A file written by hand, with dtypes that NumPy has not."""
    header, data = {}, b""
    for name, (dtype, shape, raw) in tensors.items():
        place = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": place}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def arrays() -> dict[str, np.ndarray]:
    return {
        "b.weight": RNG.standard_normal((3, 5)).astype(np.float32),
        "a.bias": np.arange(4, dtype=np.int64),
        "scalar": np.array(2.5),
        "half": np.ones((2, 1, 3), np.float16),
        "flag": np.array([True, False]),
        "none": np.zeros((0, 3), np.float32),
    }


def assert_equal(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> None:
    assert sorted(first) == sorted(second)
    for name, array in first.items():
        assert second[name].dtype == array.dtype
        assert second[name].shape == array.shape
        np.testing.assert_array_equal(second[name], array)


def test_round_trip(tmp_path: Path) -> None:
    written = arrays()
    save_safetensors(tmp_path / "m.safetensors", written, {"step": "3"})
    assert_equal(written, load_safetensors(tmp_path / "m.safetensors"))
    assert safetensors_metadata(tmp_path / "m.safetensors") == {"format": "pt", "step": "3"}
    assert len(list(tmp_path.iterdir())) == 1


def test_views_and_byte_orders_are_laid_out(tmp_path: Path) -> None:
    base = np.arange(12, dtype=np.float32).reshape(3, 4)
    written = {"t": base.T, "s": base[::-1, ::2], "big": base.astype(">f4")}
    save_safetensors(tmp_path / "m.safetensors", written)
    for name, array in load_safetensors(tmp_path / "m.safetensors").items():
        np.testing.assert_array_equal(array, written[name])


@settings(max_examples=40, deadline=None)
@given(
    array=hnp.arrays(
        st.sampled_from([np.float32, np.float16, np.int8, np.uint16, np.bool_]),
        hnp.array_shapes(min_dims=0, max_side=4),
    )
)
def test_any_array_round_trips(tmp_path_factory: pytest.TempPathFactory, array: np.ndarray) -> None:
    path = tmp_path_factory.mktemp("st") / "m.safetensors"
    save_safetensors(path, {"x": array})
    assert_equal({"x": array}, load_safetensors(path))


def test_bfloat16_is_widened(tmp_path: Path) -> None:
    values = np.array([[1.0, -2.5], [0.0, np.inf]], np.float32)
    bits = (values.view(np.uint32) >> 16).astype("<u2").tobytes()
    path = raw_file(
        tmp_path / "m.safetensors",
        {"odd": ("U8", [1], b"x"), "b": ("BF16", [2, 2], bits), "e": ("BF16", [0], b"")},
    )
    read = load_safetensors(path)
    assert read["b"].dtype == np.float32
    np.testing.assert_array_equal(read["b"], values)
    assert read["e"].shape == (0,)


def test_shards_round_trip(tmp_path: Path) -> None:
    written = arrays()
    save_safetensors(tmp_path / "model", written, max_shard_bytes=64)
    names = sorted(p.name for p in (tmp_path / "model").iterdir())
    assert names[0] == "model-00001-of-00002.safetensors"
    assert names[-1] == "model.safetensors.index.json"
    index = json.loads((tmp_path / "model" / names[-1]).read_text())
    assert index["metadata"]["total_size"] == sum(a.nbytes for a in written.values())
    assert_equal(written, load_safetensors(tmp_path / "model"))
    assert_equal(written, load_safetensors(tmp_path / "model" / names[-1]))


class Killed(BaseException):
    """Ends a save as a signal would: what undoes a failed one does not run."""


@pytest.mark.parametrize("kill", [False, True])
@pytest.mark.parametrize("at", range(6))
def test_a_save_over_shards_is_all_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, kill: bool
) -> None:
    folder = tmp_path / "model"

    def save(value: int) -> None:
        values = {name: np.full(100, value, np.float32) for name in "abc"}
        save_safetensors(folder, values, max_shard_bytes=400)

    save(1)
    calls = 0

    def failing(real: Callable[..., None]) -> Callable[..., None]:
        def call(*args: Any, **options: Any) -> None:
            nonlocal calls
            calls += 1
            if kill and calls > at:  # as if nothing ran any more
                raise Killed
            if calls == at + 1:
                raise OSError(5, "Input/output error")
            real(*args, **options)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", failing(os.replace))
        if kill:
            patch.setattr(os, "unlink", failing(os.unlink))
            patch.setattr(Path, "unlink", failing(Path.unlink))
        with contextlib.suppress(OSError, Killed):
            save(2)
    found = {float(array[0]) for array in load_safetensors(folder).values()}
    assert found == ({1.0} if at < 4 else {2.0})
    for value in (3, 4, 5):
        save(value)
        assert {float(a[0]) for a in load_safetensors(folder).values()} == {value}
        assert sum(path.suffix == ".safetensors" for path in folder.iterdir()) == 3


def test_a_folder_with_a_single_file(tmp_path: Path) -> None:
    save_safetensors(tmp_path / "model.safetensors", {"x": np.ones(2)})
    assert list(load_safetensors(tmp_path)) == ["x"]
    assert safetensors_metadata(tmp_path) == {"format": "pt"}


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "empty"),
        (b"123", "header"),
        (b"\xff" * 64, "header"),
        (struct.pack("<Q", 2) + b"{}extra", "header"),
        (struct.pack("<Q", 3) + b"{,}", "header"),
        (struct.pack("<Q", 2**62) + b"{}", "header"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, content: bytes, match: str) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=match) as caught:
        load_safetensors(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("shape", [[1] * 65, [0] * 65, [0, 2**62, 4], [0, 2**63]])
def test_a_shape_that_numpy_has_not_is_refused(tmp_path: Path, shape: list[int]) -> None:
    count = int(0 not in shape)
    header = json.dumps({"w": {"dtype": "U8", "shape": shape, "data_offsets": [0, count]}}).encode()
    path = tmp_path / "m.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(count))
    with pytest.raises(FormatError, match="tensor 'w': shape must be") as caught:
        load_safetensors(path)
    assert str(path) in str(caught.value)


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    save_safetensors(tmp_path / "m.safetensors", arrays())
    data = (tmp_path / "m.safetensors").read_bytes()
    path = tmp_path / "cut.safetensors"
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(FormatError):
            load_safetensors(path)


def test_missing_files_and_foreign_folders(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="no such file"):
        load_safetensors(tmp_path / "none")
    with pytest.raises(FormatError, match="holds neither"):
        load_safetensors(tmp_path)


def test_unsupported_dtypes_are_named(tmp_path: Path) -> None:
    path = raw_file(tmp_path / "m.safetensors", {"x": ("F8_E4M3", [2], b"ab")})
    with pytest.raises(FormatError, match=r"'x'.*F8_E4M3"):
        load_safetensors(path)


@pytest.mark.parametrize(
    ("index", "match"),
    [
        ("not json", "not JSON"),
        ("[]", "weight_map"),
        ('{"weight_map": {}}', "weight_map"),
        ('{"weight_map": {"x": "../m.safetensors"}}', "same folder"),
        ('{"weight_map": {"x": "/etc/passwd"}}', "same folder"),
        ('{"weight_map": {"x": 3}}', "same folder"),
        ('{"weight_map": {"x": "none.safetensors"}}', "no such file"),
        ('{"weight_map": {"y": "m.safetensors"}}', "no such tensor"),
    ],
)
def test_bad_indexes_are_refused(tmp_path: Path, index: str, match: str) -> None:
    save_safetensors(tmp_path / "m.safetensors", {"x": np.ones(2)})
    (tmp_path / "model.safetensors.index.json").write_text(index)
    with pytest.raises(FormatError, match=match):
        load_safetensors(tmp_path)


def test_bad_arguments(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    with pytest.raises(DTypeError, match="x: dtype"):
        save_safetensors(path, {"x": np.array(["text"])})
    with pytest.raises(ValueError, match="name"):
        save_safetensors(path, {"": np.ones(2)})
    with pytest.raises(ValueError, match="metadata"):
        save_safetensors(path, {"x": np.ones(2)}, {"step": 3})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="max_shard_bytes"):
        save_safetensors(path, {"x": np.ones(2)}, max_shard_bytes=0)
    assert list(tmp_path.iterdir()) == []


FULL_DISK = """
import resource, signal, sys
import numpy as np
from pyggml.io import save_safetensors
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    save_safetensors(sys.argv[1], {"x": np.ones(1_000_000, np.float32)})
except OSError as error:
    print("refused", error.errno)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX resource limits")
def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save_safetensors(path, {"x": np.ones(2)})
    before = path.read_bytes()
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(path)], capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("refused"), done.stderr
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_the_library_reads_what_is_written(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    written = {**arrays(), 'ä\n"': np.arange(3, dtype=np.uint8)}
    save_safetensors(tmp_path / "m.safetensors", written, {"ä": "\u2028 \x00"})
    assert_equal(written, load_file(tmp_path / "m.safetensors"))
    assert safetensors_metadata(tmp_path / "m.safetensors")["ä"] == "\u2028 \x00"


def test_every_array_is_aligned(tmp_path: Path) -> None:
    save_safetensors(tmp_path / "m.safetensors", arrays())
    data = (tmp_path / "m.safetensors").read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    assert size % 8 == 0
    for name, array in arrays().items():
        assert header[name]["data_offsets"][0] % array.itemsize == 0


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX modes")
def test_the_mode_is_that_of_other_files(tmp_path: Path) -> None:
    save_safetensors(tmp_path / "m.safetensors", {"x": np.ones(2)})
    save_safetensors(tmp_path / "shards", {"x": np.ones(2)}, max_shard_bytes=100)
    (tmp_path / "other").touch()
    modes = {p.stat().st_mode for p in tmp_path.rglob("*") if p.is_file()}
    assert modes == {(tmp_path / "other").stat().st_mode}


KILLED = """
import os, signal, sys, threading, time
import numpy as np
from pyggml.io import save_safetensors
arrays = {"x": np.ones(10_000_000, np.float32)}
save_safetensors(sys.argv[1], arrays)
threading.Thread(target=lambda: (time.sleep(0.05), os.kill(os.getpid(), signal.SIGKILL))).start()
while True:
    save_safetensors(sys.argv[1], arrays)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX processes")
def test_a_killed_save_leaves_nothing_after_the_next(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert done.returncode == -9
    save_safetensors(path, {"x": np.ones(2)})
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("text", ["caf\udce9", "\ud800"])
def test_what_is_not_unicode_is_refused(tmp_path: Path, text: str) -> None:
    for arrays, metadata in (({text: np.ones(2)}, None), ({"x": np.ones(2)}, {"a": text})):
        with pytest.raises(ValueError, match="Unicode"):
            save_safetensors(tmp_path / "m.safetensors", arrays, metadata)
    assert list(tmp_path.iterdir()) == []


def test_a_tensor_is_read_when_it_is_asked_for(tmp_path: Path) -> None:
    written = {**arrays(), "rounded": ("bf16", np.array([1.0, 1.00390625 + 2**-9], np.float32))}
    save_safetensors(tmp_path, written, max_shard_bytes=16)
    stored = open_safetensors(tmp_path)
    assert {name: array.shape for name, array in stored.items()}["half"] == (2, 1, 3)
    assert stored["rounded"].dtype == "BF16"
    np.testing.assert_array_equal(np.asarray(stored["rounded"]), [1.0, 1.0078125])
    big = stored["b.weight"]
    big.path.write_bytes(big.path.read_bytes()[:-1])
    with pytest.raises(FormatError, match=r"b\.weight.*cut short"):
        np.asarray(big)
    with pytest.raises(ValueError, match="dtype"):
        save_safetensors(tmp_path / "m.safetensors", {"x": ("q4_0", np.ones(32, np.float32))})
