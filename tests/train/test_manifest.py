# SPDX-License-Identifier: MIT
"""Nothing of a checkpoint can change unseen, and the error offers the one before it."""

from __future__ import annotations

import logging
import os
import random
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from pyggml.errors import FormatError
from pyggml.train import load_checkpoint

from ..io.test_atomic import dead_process, leftover
from .test_checkpoint import save
from .tiny import edit_state, make_trainer, same

FILES = ("state.json", "model.safetensors", "optimizer.safetensors")


def accepted(path: Path, name: str, bits: list[int]) -> list[int]:
    """The bits of a file that can be flipped without an error that names the file."""
    file = path / name
    whole, found = file.read_bytes(), []
    for bit in bits:
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        file.write_bytes(data)
        try:
            load_checkpoint(path)
            found.append(bit)
        except FormatError as error:
            if str(file) not in str(error):
                found.append(bit)
    file.write_bytes(whole)
    load_checkpoint(path)
    return found


def test_the_error_of_a_damaged_hash_shows_where_it_differs(tmp_path: Path) -> None:
    path = save(tmp_path, 3)
    file = path / "state.json"
    data = file.read_bytes()
    end = max(m.end(1) for m in re.finditer(rb'"([0-9a-f]{64})"', data))
    last = b"1" if data[end - 1 : end] == b"0" else b"0"
    file.write_bytes(data[: end - 1] + last + data[end:])
    with pytest.raises(FormatError) as caught:
        load_checkpoint(path)
    found = re.search(r"at its end, ([0-9a-f]+…?); got ([0-9a-f]+…?):", str(caught.value))
    assert found is not None
    assert found[1] != found[2]
    assert found[1][:63] == found[2][:63]


@pytest.mark.skipif(os.name != "posix", reason="asks whether a process lives")
def test_a_checkpoint_whose_replacement_was_killed_is_read(tmp_path: Path) -> None:
    path = save(tmp_path, 3)
    path.rename(leftover(tmp_path, path.name, "old", dead_process()))
    assert load_checkpoint(path).state.step == 3


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_is_found(tmp_path: Path, name: str) -> None:
    path = save(tmp_path, 3)
    size = 8 * (path / name).stat().st_size
    # The first and last, where the structure is, and a sample.
    bits = {*range(16), *range(size - 700, size, 14), *random.Random(0).sample(range(size), 100)}
    assert accepted(path, name, sorted(bits)) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_every_flipped_bit_is_found(tmp_path: Path, name: str) -> None:
    path = save(tmp_path, 3)
    assert accepted(path, name, list(range(8 * (path / name).stat().st_size))) == []


@pytest.mark.slow
def test_a_flipped_bit_of_a_large_file_is_found(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, steps=2)
    path = trainer.save()
    for name in FILES:
        size = 8 * (path / name).stat().st_size
        assert accepted(path, name, random.Random(1).sample(range(size), 1000)) == []


@pytest.mark.parametrize("name", FILES)
def test_a_truncated_or_longer_file_is_found(tmp_path: Path, name: str) -> None:
    file = save(tmp_path, 3) / name
    whole = file.read_bytes()
    for data in (*(whole[:n] for n in range(0, len(whole), 13)), whole + b"\n", whole + b"\0"):
        file.write_bytes(data)
        with pytest.raises(FormatError, match=re.escape(str(file))):
            load_checkpoint(file.parent)


def test_a_file_too_many_is_found(tmp_path: Path) -> None:
    path = save(tmp_path, 3)
    (path / ".DS_Store").touch()  # a file manager's
    load_checkpoint(path)
    (path / "more.safetensors").touch()
    with pytest.raises(FormatError, match=r"more\.safetensors"):
        load_checkpoint(path)


def test_a_number_changed_by_hand_is_found(tmp_path: Path) -> None:
    state = save(tmp_path, 3) / "state.json"
    state.write_text(state.read_text().replace('"position": 2', '"position": 1'))
    with pytest.raises(FormatError, match=r"state\.json"):
        load_checkpoint(state.parent)


def test_files_of_another_checkpoint_are_found(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, steps=4, save_every=2, eval_every=0)
    trainer.fit()
    first, last = (tmp_path / "checkpoints" / f"step-00000{n}" for n in (2, 4))
    shutil.copy(first / "model.safetensors", last)
    with pytest.raises(FormatError, match=re.escape(str(last / "model.safetensors"))):
        load_checkpoint(last)


@pytest.mark.skipif(os.name != "posix", reason="needs pipes")
@pytest.mark.parametrize("name", FILES)
def test_a_pipe_is_no_file_of_a_checkpoint(tmp_path: Path, name: str) -> None:
    file = save(tmp_path, 3) / name
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(FormatError, match=re.escape(str(file))):
        load_checkpoint(file.parent)


def test_the_newest_whole_one_is_offered(tmp_path: Path) -> None:
    save(tmp_path, 1, 2, 3, 4, keep=4)
    for step in (3, 4):
        (tmp_path / f"step-{step:06d}" / "model.safetensors").write_bytes(b"")
    with pytest.raises(FormatError) as caught:
        load_checkpoint(tmp_path / "step-000004")
    offered = re.search(r'resume\("(.*?)"\)', str(caught.value))
    assert offered is not None
    assert Path(offered[1]) == tmp_path / "step-000002"
    assert f"{tmp_path / 'step-000004'} and {tmp_path / 'step-000003'}" in str(caught.value)


@pytest.mark.parametrize("inside", ["", "checkpoints"])
def test_a_folder_of_checkpoints_offers_the_newest_in_it(inside: str, tmp_path: Path) -> None:
    save(tmp_path / inside, 1, 2, keep=4)
    with pytest.raises(FormatError) as caught:
        load_checkpoint(tmp_path)
    newest = tmp_path / inside / "step-000002"
    assert str(caught.value).endswith(f"give one, such as {newest}")


def test_what_is_offered_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    options = {"steps": 6, "save_every": 2, "eval_every": 0, "keep": 9, "keep_best": False}
    whole = make_trainer(tmp_path, **options)
    whole.fit()
    last = whole.last_checkpoint
    assert last is not None
    (last / "optimizer.safetensors").unlink()
    again = make_trainer(tmp_path, **options)
    with pytest.raises(FormatError) as caught:
        again.resume()
    assert again.step == 0
    offered = re.search(r'resume\("(.*?)"\)', str(caught.value))
    assert offered is not None
    assert again.resume(offered[1]) == 4
    again.fit()
    assert same(again.model.state_dict(), whole.model.state_dict())
    # Or the damaged one is moved away.
    shutil.rmtree(last)
    assert make_trainer(tmp_path, **options).resume() == 4


def test_a_damaged_best_is_told_and_not_used(tmp_path: Path, caplog) -> None:
    options = {"steps": 8, "save_every": 2, "eval_every": 2, "keep": 9, "lr": 1e-2}
    trainer = make_trainer(tmp_path, **{**options, "steps": 8})
    trainer.fit()
    assert trainer.best_checkpoint is not None
    weights = trainer.best_checkpoint / "model.safetensors"
    data = weights.read_bytes()
    weights.unlink()  # which may be the file of another checkpoint, too
    weights.write_bytes(data[:-1])
    again = make_trainer(tmp_path, **{**options, "steps": 12})
    with caplog.at_level(logging.WARNING):
        assert again.resume() == 8
    # Where the last step is the best one, it is written anew.
    assert again.best_checkpoint is None or load_checkpoint(again.best_checkpoint).state.step == 8
    assert str(trainer.best_checkpoint) in caplog.text


def test_a_hash_that_fits_does_not_make_a_state_right(tmp_path: Path) -> None:
    path = save(tmp_path, 3)
    edit_state(path, step="three")
    with pytest.raises(FormatError, match="step"):
        load_checkpoint(path)


def test_what_a_message_calls_whole_is_whole(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, steps=4, save_every=2, eval_every=0)
    from pyggml.train.callbacks.writers import explained
    from pyggml.train.metrics import MetricsError

    path = trainer.save()
    for harm in (lambda: None, lambda: shutil.rmtree(tmp_path / "checkpoints")):
        harm()
        with pytest.raises(MetricsError) as caught, explained(trainer, tmp_path / "m.jsonl"):
            raise OSError(28, "No space left on device")
        assert (f"{path} is whole" in str(caught.value)) == path.exists()


def test_the_arrays_of_a_sealed_checkpoint_are_exact(tmp_path: Path) -> None:
    back = load_checkpoint(save(tmp_path, 3))
    np.testing.assert_array_equal(back.model["b"], np.float32([1.5]))
