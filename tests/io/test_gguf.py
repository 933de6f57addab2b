# SPDX-License-Identifier: MIT
from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pyggml import io
from pyggml.backend.dtypes import as_dtype, encode
from pyggml.errors import DTypeError, FormatError, ShapeError
from pyggml.io import Encoded, GGUFFile, f32, read_gguf, u32, write_gguf

RNG = np.random.default_rng(0)
# Largest error as a share of a row's largest magnitude: half a step of each format's own grid.
# q4_0 has the levels -8 to 7, so the opposite end of the largest value is off by a whole step.
ERRORS = {"f32": 0.0, "f16": 2**-11, "bf16": 2**-8, "q8_0": 0.005, "q4_0": 0.126, "q5_1": 0.04}


def sample(path: Path) -> Path:
    """A small valid file with every kind of value."""
    metadata = {
        "general.architecture": "llama",
        "general.name": "é 漢",
        "count": u32(3),
        "eps": f32(1e-5),
        "flag": True,
        "names": ["a", "", "bc"],
        "types": np.array([1, 3], np.int32),
        "nothing": [],
        "reals": np.array([0.5, -1.0]),
        "bits": np.array([True, False, True]),
    }
    tensors = {
        "a": RNG.standard_normal((3, 4)).astype(np.float32),
        "b.weight": ("q8_0", RNG.standard_normal((2, 64)).astype(np.float32)),
        "c": np.arange(5, dtype=np.int32),
    }
    write_gguf(path, metadata, tensors)
    return path


def test_metadata_comes_back(tmp_path: Path) -> None:
    with read_gguf(sample(tmp_path / "a.gguf")) as file:
        assert file.metadata["general.name"] == "é 漢"
        assert file.metadata["count"] == 3
        assert isinstance(file.metadata["count"], int)
        assert file.metadata["eps"] == pytest.approx(1e-5)
        assert file.metadata["flag"] is True
        assert file.metadata["names"] == ["a", "", "bc"]
        assert file.metadata["types"].dtype == np.int32
        assert file.metadata["nothing"] == []
        assert file.metadata["bits"].tolist() == [True, False, True]
        assert list(file) == ["a", "b.weight", "c"]
        assert "3 tensors" in repr(file)


def test_typed_metadata_writes_the_same_header(tmp_path: Path) -> None:
    first = sample(tmp_path / "a.gguf")
    with read_gguf(first) as file:
        write_gguf(tmp_path / "b.gguf", file.typed_metadata, {"a": file.array("a")})
    with read_gguf(tmp_path / "b.gguf") as again, read_gguf(first) as file:
        assert again._types == file._types
        np.testing.assert_equal(again.metadata, file.metadata)


@pytest.mark.parametrize("dtype", ERRORS)
@pytest.mark.parametrize("shape", [(3, 5, 64), (2, 1, 3, 32), (96,), (7, 32)])
def test_tensors_come_back(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    array = RNG.standard_normal(shape).astype(np.float32)
    write_gguf(tmp_path / "a.gguf", {}, {"first": np.float32([1]), "x": (dtype, array)})
    with GGUFFile.open(tmp_path / "a.gguf") as file:
        info = file.tensors["x"]
        assert info.dtype == dtype
        assert info.shape == shape
        read = file.array("x", dequantise=True)
        raw = file.array("x")
        assert raw.nbytes == info.size_bytes
    assert read.dtype == np.float32
    assert read.shape == shape
    limit = ERRORS[dtype] * np.abs(array).max(-1, keepdims=True)
    assert (np.abs(read - array) <= limit).all()
    assert not raw.flags.writeable


def test_bfloat16_rounds_to_nearest_even(tmp_path: Path) -> None:
    values = np.array([1.0, 1.0 + 2**-8, 1.0 + 3 * 2**-8, -0.0, np.inf], np.float32)
    write_gguf(tmp_path / "a.gguf", {}, {"x": ("bf16", values)})
    file = read_gguf(tmp_path / "a.gguf")
    assert file.array("x", dequantise=True).tolist() == [1.0, 1.0, 1.015625, -0.0, np.inf]
    assert file.array("x").dtype == np.uint16


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64, np.float64, np.float16])
def test_plain_types_are_kept(tmp_path: Path, dtype: type) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)
    write_gguf(tmp_path / "a.gguf", {}, {"x": array[:, ::-1]})
    file = read_gguf(tmp_path / "a.gguf")
    assert file.array("x").dtype == dtype
    np.testing.assert_array_equal(file.array("x"), array[:, ::-1])


def test_all_quantised_types_that_ggml_offers(tmp_path: Path) -> None:
    array = np.random.default_rng(0).standard_normal((2, 512)).astype(np.float32)
    names = ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_K", "q3_K", "Q4_K", "q5_k", "q6_K"]
    names += ["iq4_nl", "iq4_xs", "tq2_0", "mxfp4"]
    write_gguf(tmp_path / "a.gguf", {}, {name: (name, array) for name in names})
    with read_gguf(tmp_path / "a.gguf") as file:
        for name in names:
            error = file.array(name, dequantise=True) - array
            # Ternary, the coarsest, keeps a third of the variance; unrelated would be above 1.
            assert np.linalg.norm(error) < 0.9 * np.linalg.norm(array), name


def test_leading_ones_and_scalars_lose_axes_as_in_ggml(tmp_path: Path) -> None:
    write_gguf(tmp_path / "a.gguf", {}, {"one": np.ones((1, 1, 5), np.float32), "s": np.float32(2)})
    file = read_gguf(tmp_path / "a.gguf")
    assert file.tensors["one"].shape == (5,)
    assert file.array("s").tolist() == [2.0]


def test_arrays_outlive_the_file(tmp_path: Path) -> None:
    path = sample(tmp_path / "a.gguf")
    with read_gguf(path) as file:
        array = file.array("c")
    path.unlink()
    assert array.tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="closed"):
        file.array("c")


KEYS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
NUMBERS = hnp.arrays(
    st.sampled_from([np.uint8, np.int16, np.uint32, np.int64, np.float32, np.float64, np.bool_]),
    st.one_of(st.just(()), st.tuples(st.integers(0, 5))),
)
VALUES = st.one_of(TEXTS, st.booleans(), st.lists(TEXTS), NUMBERS)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(KEYS.filter(lambda k: k != "general.alignment"), VALUES, max_size=5))
def test_any_metadata_round_trips(metadata: dict) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_gguf(Path(folder, "a.gguf"), metadata, {"x": np.zeros(3, np.float32)})
        file = read_gguf(Path(folder, "a.gguf"))
        assert list(file.metadata) == list(metadata)
        for key, value in metadata.items():
            np.testing.assert_equal(file.typed_metadata[key], value)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        hnp.arrays(
            st.sampled_from([np.float32, np.float16, np.int32, np.int8]),
            hnp.array_shapes(min_dims=1, max_dims=4, max_side=4),
        ),
        max_size=4,
    )
)
def test_any_tensors_round_trip(arrays: list[np.ndarray]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        named = {f"t{number}": array for number, array in enumerate(arrays)}
        write_gguf(Path(folder, "a.gguf"), {}, named)
        file = read_gguf(Path(folder, "a.gguf"))
        assert list(file.tensors) == list(named)
        for name, array in named.items():
            read = file.array(name)
            np.testing.assert_array_equal(read.reshape(array.shape), array)
            assert file.tensors[name].offset % 32 == 0


@pytest.mark.parametrize(
    ("metadata", "error", "match"),
    [
        ({"n": 3}, DTypeError, "u32"),
        ({"n": 3.5}, DTypeError, "f32"),
        ({"n": None}, DTypeError, "'n'"),
        ({"n": ["a", 3]}, DTypeError, r"'n'\[1\]"),
        ({"n": np.zeros((2, 2))}, DTypeError, "vector"),
        ({"n": np.array(["a"])}, DTypeError, "'n'"),
        ({"n": "a\0b"}, ValueError, "NUL"),
        ({"n": "\ud800"}, ValueError, "Unicode"),
        ({"": "a"}, ValueError, "empty"),
        ({3: "a"}, DTypeError, "string"),
        ({"general.alignment": u32(64)}, ValueError, "alignment"),
    ],
)
def test_bad_metadata_is_refused(
    tmp_path: Path, metadata: dict, error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        write_gguf(tmp_path / "a.gguf", metadata, {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "value", "error", "match"),
    [
        ("x", np.zeros((0, 3), np.float32), ShapeError, "empty"),
        ("x", np.zeros((1,) * 5, np.float32), ShapeError, "at most 4"),
        ("x", ("q8_0", np.zeros((2, 33), np.float32)), ShapeError, "multiples of 32"),
        ("x", ("q8_0", np.float32(1)), ShapeError, "multiples of 32"),
        ("x", ("q8_1", np.zeros((2, 32), np.float32)), DTypeError, "own use"),
        ("x", ("q8_K", np.zeros((2, 256), np.float32)), DTypeError, "own use"),
        ("x", ("iq2_xxs", np.zeros((2, 256), np.float32)), DTypeError, "importance"),
        ("x", ("q8_0", np.full((1, 32), np.nan, np.float32)), DTypeError, "finite"),
        ("x", ("nope", np.zeros(2, np.float32)), DTypeError, "nope"),
        ("x", ("f16", np.full(2, 1e6, np.float32)), ValueError, "65504"),
        ("x", ("i32", np.full(2, 0.5, np.float32)), DTypeError, "integers"),
        ("x", np.zeros(2, np.complex64), DTypeError, "real"),
        ("x", np.zeros(2, np.uint8), DTypeError, "uint8"),
        ("x", ("f32",), DTypeError, "tuple"),
        ("", np.zeros(2, np.float32), ValueError, "name"),
        ("n" * 64, np.zeros(2, np.float32), ValueError, "63"),
        ("a\0b", np.zeros(2, np.float32), ValueError, "NUL"),
    ],
)
def test_bad_tensors_are_refused(
    tmp_path: Path, name: str, value: object, error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        write_gguf(tmp_path / "a.gguf", {}, {name: value})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64"])
def test_typed_integers_check_their_range(name: str) -> None:
    convert = getattr(io, name)
    info = np.iinfo(convert(0).dtype)
    assert convert(info.max) == info.max
    for wrong in (info.min - 1, info.max + 1):
        with pytest.raises(ValueError, match=name):
            convert(wrong)
    for wrong in (1.5, True, "1"):
        with pytest.raises(DTypeError, match=name):
            convert(wrong)


def test_typed_reals_take_numbers_only() -> None:
    assert io.f64(1).dtype == np.float64
    with pytest.raises(DTypeError, match="f32"):
        f32("1")  # type: ignore[arg-type]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = sample(tmp_path / "a.gguf")
    before = path.read_bytes()
    with pytest.raises(ValueError, match="65504"):
        write_gguf(path, {}, {"ok": np.ones(9, np.float32), "x": ("f16", np.float32([1e9]))})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


FULL_DISK = """
import resource, signal, sys
import numpy as np
from pyggml.io import write_gguf
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    write_gguf(sys.argv[1], {}, {"x": np.ones(1_000_000, np.float32)})
except OSError as error:
    print("refused", error.errno)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX resource limits")
def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    path = sample(tmp_path / "a.gguf")
    before = path.read_bytes()
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(path)], capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("refused"), done.stderr
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def gguf_string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def raw_file(
    keys: list[tuple[bytes, int, bytes]] = (),  # type: ignore[assignment]
    tensors: list[tuple[bytes, list[int], int, int]] = (),  # type: ignore[assignment]
    data: bytes = b"",
) -> bytes:
    """A file with whatever is asked for, legal or not."""
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    for key, kind, value in keys:
        out += gguf_string(key) + struct.pack("<I", kind) + value
    for name, extents, kind, offset in tensors:
        out += gguf_string(name) + struct.pack("<I", len(extents))
        out += struct.pack(f"<{len(extents)}q", *extents) + struct.pack("<IQ", kind, offset)
    return out + bytes(-len(out) % 32) + data


F32, Q8_0 = 0, 8
BAD_FILES = {
    "foreign": (b"\x7fELF" + bytes(200), "magic"),
    "magic alone": (b"GGUF", "header"),
    "other byte order": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "endian"),
    "future version": (b"GGUF" + struct.pack("<IQQ", 9, 0, 0), "version"),
    "negative count": (b"GGUF" + struct.pack("<Iqq", 3, -1, 0), "number of tensors"),
    "huge count": (b"GGUF" + struct.pack("<Iqq", 3, 0, 2**40), "key"),
    "duplicate key": (raw_file([(b"k", 4, bytes(4))] * 2), "duplicate key"),
    "keys equal up to NUL": (
        raw_file([(b"k\0a", 4, bytes(4)), (b"k\0b", 4, bytes(4))]),
        "occurs twice",
    ),
    "key type": (raw_file([(b"k", 99, bytes(4))]), "invalid GGUF type"),
    "nested array": (raw_file([(b"k", 9, struct.pack("<IQ", 9, 1) + bytes(64))]), "invalid"),
    "huge array": (raw_file([(b"k", 9, struct.pack("<IQ", 4, 2**62))]), "key-value"),
    "huge string": (raw_file([(b"k", 8, struct.pack("<Q", 2**62))]), "string length"),
    "key not UTF-8": (raw_file([(b"\xff", 4, bytes(4))]), "UTF-8"),
    "value not UTF-8": (raw_file([(b"k", 8, gguf_string(b"a\xffb"))]), "'k'.*UTF-8.*0xff at 1"),
    "item not UTF-8": (
        raw_file([(b"k", 9, struct.pack("<IQ", 8, 1) + gguf_string(b"\xc3"))]),
        "'k'.*UTF-8",
    ),
    "alignment not a power of 2": (
        raw_file([(b"general.alignment", 4, struct.pack("<I", 33))]),
        "power of 2",
    ),
    "alignment type": (raw_file([(b"general.alignment", 8, gguf_string(b"32"))]), "alignment"),
    "name not UTF-8": (raw_file([], [(b"\xff", [1], F32, 0)], bytes(32)), "UTF-8"),
    "long name": (raw_file([], [(b"n" * 64, [1], F32, 0)], bytes(32)), "too long"),
    "duplicate tensor": (
        raw_file([], [(b"x", [1], F32, 0), (b"x", [1], F32, 32)], bytes(64)),
        "duplicate tensor name",
    ),
    "five axes": (raw_file([], [(b"x", [1] * 5, F32, 0)], bytes(32)), "dimensions"),
    "negative extent": (raw_file([], [(b"x", [-4], F32, 0)], bytes(32)), "< 0"),
    "overflowing extents": (raw_file([], [(b"x", [2**40, 2**40], F32, 0)], bytes(32)), "overflow"),
    "size that wraps": (raw_file([], [(b"x", [2**60], Q8_0, 0)], bytes(64)), "end at byte 1,224"),
    "removed type": (raw_file([], [(b"x", [32], 4, 0)], bytes(64)), "block size"),
    "unknown type": (raw_file([], [(b"x", [32], 1000, 0)], bytes(64)), "type"),
    "part of a block": (raw_file([], [(b"x", [33], Q8_0, 0)], bytes(64)), "block size"),
    "data beyond the end": (raw_file([], [(b"x", [64], F32, 0)], bytes(32)), "truncated"),
    "offset": (raw_file([], [(b"x", [1], F32, 64)], bytes(128)), "offset 64"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_files_are_refused_with_the_cause(tmp_path: Path, case: str) -> None:
    data, match = BAD_FILES[case]
    path = tmp_path / "bad.gguf"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=match) as caught:
        read_gguf(path)
    assert str(path) in str(caught.value)


def test_missing_and_empty_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for name, match in [
        ("none", "No such file"),
        ("empty", "empty"),
        ("", "it is a folder; give the file in it"),
    ]:
        with pytest.raises(FormatError, match=match):
            read_gguf(tmp_path / name)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(FormatError, match="regular"):
            read_gguf(tmp_path / "pipe")


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    with (
        read_gguf(sample(tmp_path / "a.gguf")) as file,
        pytest.raises(FormatError, match="tensor 'nope'"),
    ):
        file.array("nope")


def test_types_without_a_conversion_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(raw_file([], [(b"x", [32], 9, 0)], bytes(64)))  # q8_1
    file = read_gguf(path)
    assert file.array("x").shape == (36,)
    with pytest.raises(FormatError, match="q8_1"):
        file.array("x", dequantise=True)


def test_unaligned_data_is_read(tmp_path: Path) -> None:
    values = np.arange(64, dtype=np.float32)
    header = raw_file(
        [(b"general.alignment", 4, struct.pack("<I", 1))],
        [(b"x", [64], F32, 0), (b"y", [1], 0, 256)],
    )
    # With an alignment of 1 the data follows the header at once.
    unpadded = header.rstrip(b"\0") + bytes(6)
    path = tmp_path / "a.gguf"
    path.write_bytes(unpadded + values.tobytes() + bytes(4))
    file = read_gguf(path)
    assert file.tensors["x"].offset % 4
    np.testing.assert_array_equal(file.array("x", dequantise=True), values)


FUZZ = """
import json, sys
import numpy as np
from pyggml.errors import FormatError
from pyggml.io import GGUFFile
data = open(sys.argv[1], "rb").read()
count = int(sys.argv[2])
results = {"read": 0, "refused": 0}

def attempt(damaged):
    try:
        file = GGUFFile(damaged)
        for name in file:
            file.array(name)
            file.array(name, dequantise=True)
        file.typed_metadata
        results["read"] += 1
    except FormatError:
        results["refused"] += 1

for length in range(len(data)):
    attempt(data[:length])
assert results["read"] < 32, results  # only the padding at the very end may be missing
rng = np.random.default_rng(0)
header = GGUFFile(data).tensors["a"].offset
for _ in range(count):
    damaged = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        damaged[rng.integers(header)] = rng.integers(256)
    attempt(bytes(damaged))
for place in range(header):  # the values that overflow
    for value in (0, 0x7F, 0x80, 0xFF):
        for width in (1, 8):
            attempt(data[:place] + bytes([value]) * width + data[place + width :])
print(json.dumps(results))
"""


@pytest.mark.parametrize("count", [4000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_no_damage_kills_the_process(tmp_path: Path, count: int) -> None:
    path = sample(tmp_path / "a.gguf")
    done = subprocess.run(
        [sys.executable, "-c", FUZZ, str(path), str(count)],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    results = json.loads(done.stdout)
    assert results["refused"] > count // 4
    assert results["read"] > 0


def test_a_file_that_is_cut_short_while_it_is_open_is_named(tmp_path):
    """A mapping would end the process."""
    path = tmp_path / "m.gguf"
    write_gguf(path, {}, {"a": np.ones((64, 1024), np.float32), "b": np.ones(8, np.float32)})
    with read_gguf(path) as file:
        kept = file.array("a")
        os.truncate(path, path.stat().st_size - 1024)
        with pytest.raises(FormatError, match=r"m\.gguf: the file was cut short"):
            file.array("b")
        assert kept.sum() == 64 * 1024
        with pytest.raises(ValueError, match="read-only"):
            kept[0] = 2


@pytest.mark.parametrize("dtype", ["f32", "bf16", "q8_0", "q4_K"])
def test_the_first_rows_of_a_tensor(dtype, tmp_path):
    weights = np.random.default_rng(0).standard_normal((5, 256)).astype(np.float32)
    kind = as_dtype(dtype)
    raw = encode(weights, kind).view(np.uint8).reshape(5, -1)
    write_gguf(tmp_path / "w.gguf", {"general.architecture": "own"}, {"w": Encoded(dtype, raw)})
    for private in (False, True):
        with read_gguf(tmp_path / "w.gguf", private=private) as file:
            for wide in (False, True):
                whole = file.array("w", wide)
                np.testing.assert_array_equal(file.array("w", wide, rows=2), whole[:2])
                np.testing.assert_array_equal(file.array("w", wide, rows=9), whole)
