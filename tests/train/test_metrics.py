# SPDX-License-Identifier: MIT
from __future__ import annotations

import builtins
import errno
import json
import math
import os

import pytest

from pyggml.recipes import plot_loss
from pyggml.train import (
    EvalMetrics,
    MemoryPlan,
    MetricsError,
    MetricsFile,
    MetricsWriter,
    OutOfMemoryError,
    Sampler,
    StepMetrics,
    format_bytes,
    perplexity,
    read_metrics,
)

from .tiny import make_trainer


def step(n, loss=1.0):
    return StepMetrics(n, loss, 1e-3, 0.5, n * 10, 100.0, n * 0.1)


def test_lines(tmp_path):
    file = MetricsFile(tmp_path / "m.jsonl")
    file.write(step(1))
    file.write(EvalMetrics(1, 2.0, math.inf, 50))
    lines = [json.loads(line) for line in file.path.read_text().splitlines()]
    assert [line["kind"] for line in lines] == ["train", "validation"]
    assert lines[0]["grad_norm"] == 0.5
    assert lines[1]["perplexity"] is None
    assert read_metrics(file.path) == lines


def test_a_resumed_run_drops_later_and_half_lines(tmp_path):
    path = tmp_path / "m.jsonl"
    file = MetricsFile(path)
    for n in range(1, 6):
        file.write(step(n))
    with path.open("a") as raw:
        raw.write(f'{{"step": {"3" * 5000}}}\n')  # more digits than Python reads
        raw.write(f'{{"step": 2, "loss": {"[" * 100_000}}}\n')  # deeper than Python reads
        raw.write('{"kind": "train", "st')
    again = MetricsFile(path)
    again.truncate_after(3)
    again.write(step(3, loss=9.0))
    again.write(step(4, loss=8.0))
    lines = read_metrics(path)
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert [line["loss"] for line in lines] == [1.0, 1.0, 1.0, 8.0]


def test_a_missing_file_is_empty(tmp_path):
    assert read_metrics(tmp_path / "none") == []
    MetricsFile(tmp_path / "none").truncate_after(3)
    assert not (tmp_path / "none").exists()


def test_perplexity():
    assert perplexity(math.log(50)) == pytest.approx(50)
    assert perplexity(1e6) == math.inf


def test_picture(tmp_path):
    pytest.importorskip("matplotlib")
    file = MetricsFile(tmp_path / "m.jsonl")
    for n in range(1, 121):
        file.write(step(n, loss=5 / n))
        if n % 20 == 0:
            file.write(EvalMetrics(n, 5 / n, 3.0, 10))
    assert plot_loss(read_metrics(file.path), tmp_path / "loss.png", "a title")
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert plot_loss([], tmp_path / "none.png") is False
    assert plot_loss([{"kind": "train", "step": 1, "loss": None}], tmp_path / "none.png") is False


def test_without_matplotlib_there_is_a_note(tmp_path, monkeypatch, caplog):
    real = builtins.__import__

    def missing(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ModuleNotFoundError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    line = {"kind": "train", "step": 1, "loss": 1.0}
    assert plot_loss([line], tmp_path / "loss.png") is False
    assert "loss.png was not drawn: plot: needs the package matplotlib" in caplog.text


def test_plan_refuses_what_does_not_fit():
    plan = MemoryPlan(4_000, 4_000, 8_000, 100_000, "cpu", 50_000)
    assert plan.total == 116_000
    with pytest.raises(OutOfMemoryError) as caught:
        plan.check()
    for word in ("116.0 kB", "50.0 kB", "activations 100.0 kB", "`batch_size`", "`accumulate`"):
        assert word in str(caught.value)
    MemoryPlan(1, 1, 1, 1, "cpu", None).check()
    MemoryPlan(1, 1, 1, 1, "cpu", 4).check()


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (12_345, "12.3 kB"), (5 * 10**15, "5.0 PB")]
)
def test_sizes_for_people(size, text):
    assert format_bytes(size) == text


def disk_of(monkeypatch, space):
    """A disk with so many bytes free: it takes what fits, then nothing."""
    real = os.write
    left = space

    def write(fd, data):
        nonlocal left
        if not left:
            raise OSError(errno.ENOSPC, "No space left on device")
        count = real(fd, bytes(data[:left]))
        left -= count
        return count

    monkeypatch.setattr(os, "write", write)


def test_a_full_disk_leaves_whole_lines(tmp_path, monkeypatch):
    file = MetricsFile(tmp_path / "m.jsonl")
    file.write(step(1))
    before = file.path.read_bytes()
    disk_of(monkeypatch, 20)
    with pytest.raises(OSError, match=r"m\.jsonl"):
        file.write(step(2))
    assert file.path.read_bytes() == before
    monkeypatch.undo()
    file.write(step(2))
    assert [line["step"] for line in read_metrics(file.path)] == [1, 2]


def test_a_short_write_is_continued(tmp_path, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, bytes(data[:7])))
    file = MetricsFile(tmp_path / "m.jsonl")
    file.write(step(1))
    assert [line["step"] for line in read_metrics(file.path)] == [1]
    assert file.path.read_bytes().endswith(b"}\n")


def test_a_full_disk_while_training_says_how_to_go_on(tmp_path, monkeypatch):
    path = tmp_path / "metrics.jsonl"
    trainer = make_trainer(tmp_path, [MetricsWriter(path)], steps=6, save_every=2)
    disk_of(monkeypatch, 1000)
    with pytest.raises(MetricsError) as caught:
        trainer.fit()
    for word in (str(path), "No space left", "step-000002 is whole", "resume"):
        assert word in str(caught.value)
    # There is room for the step that was done since; what stands in for the disk is not asked.
    assert trainer.last_checkpoint.name == "step-000003"


def test_a_new_run_leaves_another_one_s_lines(tmp_path):
    """They are renamed, and never overwritten."""
    path, samples = tmp_path / "runs" / "m.jsonl", tmp_path / "s.jsonl"

    def run(**options):
        writers = [MetricsWriter(path), Sampler(1, lambda: "x", samples)]
        trainer = make_trainer(callbacks=writers, **options)
        trainer.fit()

    contents = []
    for steps in (3, 2, 4):
        run(steps=steps)
        contents.append(path.read_bytes())
        assert [m["step"] for m in read_metrics(samples)] == list(range(1, steps + 1))
    assert path.with_name("m.jsonl.left").read_bytes() == contents[0]
    assert path.with_name("m.jsonl.left1").read_bytes() == contents[1]
    assert path.read_bytes() == contents[2]
    assert len(read_metrics(tmp_path / "s.jsonl.left")) == 3
    # Whatever it was that lay there.
    path.write_text("a diary, not metrics\n")
    run(steps=1)
    assert path.with_name("m.jsonl.left2").read_text() == "a diary, not metrics\n"


@pytest.mark.skipif(os.name != "posix", reason="needs pipes")
def test_a_pipe_or_a_device_stays_where_it_is(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    os.symlink("/dev/full", tmp_path / "device")
    for name in ("pipe", "device"):
        with pytest.raises(OSError, match="which stays as it is") as error:
            MetricsFile(tmp_path / name).begin(0)
        assert error.value.filename == str(tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["device", "pipe"]


def test_a_resumed_run_goes_on_in_its_file(tmp_path):
    path = tmp_path / "m.jsonl"
    make_trainer(tmp_path, [MetricsWriter(path)], steps=4, save_every=2).fit()
    again = make_trainer(tmp_path, [MetricsWriter(path)], steps=5, save_every=2)
    again.resume(tmp_path / "checkpoints" / "step-000002")
    again.fit()
    assert not (tmp_path / "m.jsonl.left").exists()
    steps = [line["step"] for line in read_metrics(path) if line["kind"] == "train"]
    assert steps == [1, 2, 3, 4, 5]


def test_a_place_that_cannot_be_written_to_is_told_before_the_first_step(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "file" / "m.jsonl", tmp_path / "folder"):
        trainer = make_trainer(callbacks=[MetricsWriter(path)], steps=3)
        with pytest.raises(MetricsError, match="could not be written at step 0"):
            trainer.fit()
        assert trainer.step == 0
