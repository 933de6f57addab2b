# SPDX-License-Identifier: MIT
"""Split sets of GGUF files: written by size, read by any part, refused when they are no set."""

import os
import shutil

import numpy as np
import pytest

import pyggml as pg
from pyggml.errors import FormatError
from pyggml.io import i32, read_gguf, u16, u32, write_gguf
from pyggml.models import build, load

TENSORS = {f"t{i}.weight": np.full((4, 8), i, np.float32) for i in range(7)}
KEYS = {"general.architecture": "own", "own.size": u32(7)}


@pytest.fixture
def parts(tmp_path):
    made = write_gguf(tmp_path / "m.gguf", KEYS, TENSORS, max_part_bytes=300)
    assert [path.name for path in made] == [f"m-0000{i}-of-00004.gguf" for i in (1, 2, 3, 4)]
    return made


def test_every_part_opens_the_set(parts):
    for path in parts:
        with read_gguf(path) as file:
            assert list(file.tensors) == list(TENSORS)
            assert file.typed_metadata == KEYS
            for name, array in TENSORS.items():
                np.testing.assert_array_equal(file.array(name), array)
    assert len(write_gguf(parts[0].with_name("one.gguf"), KEYS, TENSORS, 10**6)) == 1
    with pytest.raises(ValueError, match="max_part_bytes"):
        write_gguf(parts[0].with_name("one.gguf"), KEYS, TENSORS, 0)
    with pytest.raises(ValueError, match="path must be the name of the set"):
        write_gguf(parts[0], KEYS, TENSORS, 500)


@pytest.mark.parametrize("at", range(4))
def test_parts_of_two_saves_are_no_set(parts, monkeypatch, at):
    others = {name: array + 100 for name, array in TENSORS.items()}
    real, calls = os.replace, []

    def replace(*names):
        calls.append(names)
        if len(calls) > at:
            raise OSError(5, "Input/output error")
        real(*names)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(OSError, match="Input/output"):
        write_gguf(parts[0].with_name("m.gguf"), KEYS, others, max_part_bytes=300)
    with pytest.raises(FormatError, match="part 1 of 4 is missing"):
        read_gguf(parts[1])
    monkeypatch.undo()
    write_gguf(parts[0].with_name("m.gguf"), KEYS, others, max_part_bytes=300)
    with read_gguf(parts[1]) as file:
        np.testing.assert_array_equal(file.array("t6.weight"), others["t6.weight"])


def test_a_large_tensor_has_its_own_part(tmp_path):
    tensors = {
        "a": np.ones(8, np.float32),
        "b": np.ones(999, np.float32),
        "c": ("q8_0", np.ones(32)),
    }
    made = write_gguf(tmp_path / "m.gguf", KEYS, tensors, max_part_bytes=100)
    assert len(made) == 3
    with read_gguf(made[1]) as file:
        assert file.array("b").shape == (999,)
        assert file.tensors["c"].dtype == "q8_0"


def test_bad_sets_are_named(parts, tmp_path):
    first, second, third, _ = parts
    third.rename(tmp_path / "away")
    with pytest.raises(FormatError, match=r"m-00001-of-00004\.gguf: part 3 of 4 is missing"):
        read_gguf(first)
    shutil.copy(second, third)  # doubled
    with pytest.raises(
        FormatError, match=r"m-00003-of-00004\.gguf: split\.no: must be 2, .*; got 1"
    ):
        read_gguf(first)
    third.write_bytes((tmp_path / "away").read_bytes()[:-200])
    with pytest.raises(FormatError, match=r"m-00003-of-00004\.gguf.*truncated"):
        read_gguf(second)
    write_gguf(third, {}, TENSORS)  # no part at all
    with pytest.raises(FormatError, match=r"m-00003-of-00004\.gguf: split\.no"):
        read_gguf(first)
    shutil.copy(first, tmp_path / "renamed.gguf")
    with pytest.raises(FormatError, match=r"renamed\.gguf: split\.count is 4"):
        read_gguf(tmp_path / "renamed.gguf")
    shutil.copy(first, tmp_path / "m-00001-of-00003.gguf")
    with pytest.raises(FormatError, match=r"split\.count is 4"):
        read_gguf(tmp_path / "m-00001-of-00003.gguf")


def part(path, number, tensors, count=2, total=2, **more):
    keys = {"split.no": u16(number), "split.count": u16(count), "split.tensors.count": i32(total)}
    write_gguf(path, {**keys, **more}, tensors)


@pytest.mark.parametrize(
    ("number", "tensors", "more", "message"),
    [
        (1, {"a": np.ones(4)}, {}, r"tensor 'a': another part of the set has it too"),
        (1, {"b": np.ones(4), "c": np.ones(4)}, {}, r"split\.tensors\.count: must be .* 3; got 2"),
        (1, {"b": np.ones(4)}, {"total": 3}, r"split\.tensors\.count: must be 2"),
        (1, {"b": np.ones(4)}, {"count": 3}, r"split\.count: must be 2"),
        (0, {"b": np.ones(4)}, {}, r"split\.no: must be 1, .*; got 0"),
        (1, {"b": np.ones(4)}, {"general.architecture": "other"}, "must be 'own'; got 'other'"),
    ],
)
def test_parts_of_other_sets_are_named(number, tensors, more, message, tmp_path):
    own = {"general.architecture": "own"}
    part(tmp_path / "m-00001-of-00002.gguf", 0, {"a": np.ones(4)}, **own)
    part(tmp_path / "m-00002-of-00002.gguf", number, tensors, **more)
    with pytest.raises(FormatError, match=message):
        read_gguf(tmp_path / "m-00001-of-00002.gguf")


@pytest.mark.parametrize("value", [u32(0), u32(2**32 - 1), "2", np.array([2, 2]), ["2"], True])
def test_odd_counts_are_named(value, tmp_path):
    write_gguf(tmp_path / "m-00001-of-00002.gguf", {"split.count": value}, TENSORS)
    with pytest.raises(FormatError, match=r"split\.count"):
        read_gguf(tmp_path / "m-00001-of-00002.gguf")
    odd = {"split.count": u16(2), "split.no": value}
    write_gguf(tmp_path / "m-00001-of-00002.gguf", odd, TENSORS)
    with pytest.raises(FormatError, match=r"split\.no|missing"):
        read_gguf(tmp_path / "m-00001-of-00002.gguf")


def test_a_model_comes_back_from_its_parts(tmp_path):
    pg.seed(1)
    model = build("llama", "tiny", vocab_size=64)
    made = model.save_gguf(tmp_path / "model.gguf", max_part_bytes=200_000)
    assert len(made) > 3
    again, _ = load(made[2])
    other, _ = load(tmp_path)
    for name, array in model.state_dict().items():
        np.testing.assert_array_equal(again.state_dict()[name], array)
        np.testing.assert_array_equal(other.state_dict()[name], array)
    again.save_gguf(tmp_path / "one.gguf")
    with read_gguf(tmp_path / "one.gguf") as file:
        assert not [key for key in file.metadata if key.startswith("split.")]
