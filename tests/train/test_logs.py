# SPDX-License-Identifier: MIT
"""TensorBoard's files, and Weights & Biases through a stand-in and itself."""

from __future__ import annotations

import builtins
import json
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from pyggml.train import Callback, Sampler, TensorBoardWriter, TrainingError, WandbWriter

from .test_trainer import At
from .tiny import make_trainer


@pytest.fixture
def without(monkeypatch):
    """Make the import of a package fail."""

    def hide(package):
        real = builtins.__import__

        def missing(name, *args, **kwargs):
            if name.partition(".")[0] == package:
                raise ModuleNotFoundError(name=package)
            return real(name, *args, **kwargs)

        monkeypatch.setattr(builtins, "__import__", missing)

    return hide


def events(folder):
    """What TensorBoard itself reads of a folder: (step, value) by tag."""
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = reader.EventAccumulator(str(folder))
    found.Reload()
    tags = found.Tags()
    values = {tag: [(e.step, e.value) for e in found.Scalars(tag)] for tag in tags["scalars"]}
    for tag in tags["tensors"]:
        values[tag] = [(e.step, e.tensor_proto.string_val[0]) for e in found.Tensors(tag)]
    return values


def test_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    folder = tmp_path / "tb"
    options = {"steps": 6, "eval_every": 2, "save_every": 4}

    def trainer():
        writers = [TensorBoardWriter(folder), Sampler(3, lambda: "naïve")]
        return make_trainer(tmp_path, writers, **options)

    first = trainer()
    first.fit()
    found = events(folder)
    assert [step for step, _ in found["train/loss"]] == [1, 2, 3, 4, 5, 6]
    assert [step for step, _ in found["validation/loss"]] == [2, 4, 6]
    assert found["train/lr"][0][1] == pytest.approx(first.schedule(0))
    assert found["validation/loss"][-1][1] == pytest.approx(first.last_evaluation.loss)
    assert found["sample"] == [(3, "naïve".encode()), (6, "naïve".encode())]
    # A resumed run takes back what came after its checkpoint.
    again = trainer()
    again.resume(tmp_path / "checkpoints" / "step-000004")
    again.fit()
    steps = [step for step, _ in events(folder)["train/loss"]]
    assert steps == [1, 2, 3, 4, 5, 6]


def test_tensorboard_in_a_folder_whose_name_is_not_unicode_is_told_first(tmp_path):
    pytest.importorskip("tensorboard")
    with pytest.raises(ValueError, match=r"folder must be Unicode; got .*x\\xe9.*: rename it"):
        TensorBoardWriter(tmp_path / "x\udce9")


def test_tensorboard_does_not_bring_torch_along():
    pytest.importorskip("tensorboard")
    script = (
        "import sys; from pyggml.train import TensorBoardWriter; TensorBoardWriter('x');"
        "assert not {'torch', 'tensorflow'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=900)


@pytest.mark.parametrize(
    ("package", "make"), [("tensorboard", TensorBoardWriter), ("wandb", WandbWriter)]
)
def test_a_missing_package_names_the_extra(without, package, make):
    without(package)
    with pytest.raises(ModuleNotFoundError, match=rf"pip install \"pyggml\[{package}\]\""):
        make("somewhere")


class StandIn(types.ModuleType):
    """As much of wandb as is used."""

    Error = type("Error", (Exception,), {})

    def __init__(self):
        super().__init__("wandb")
        self.told, self.begun, self.ended = [], [], []

    def init(self, **options):
        self.begun.append(options)
        return self

    def log(self, values, step):
        json.dumps(values)
        self.told.append((step, values))

    def finish(self, exit_code):
        self.ended.append(exit_code)


def test_weights_and_biases(tmp_path, monkeypatch):
    wandb = StandIn()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    writers = [WandbWriter("shakespeare", tmp_path, mode="offline"), Sampler(2, lambda: "text")]
    trainer = make_trainer(callbacks=writers, steps=2, eval_every=0)
    trainer.fit()
    options = wandb.begun[0]
    assert options["project"] == "shakespeare"
    assert options["mode"] == "offline"
    assert options["dir"] == str(tmp_path)
    assert options["config"] == trainer.options.to_dict()
    assert [step for step, _ in wandb.told] == [1, 2, 2, 2]
    assert wandb.told[0][1]["train/loss"] > 0
    assert wandb.told[2][1] == {"sample": "text"}
    assert "validation/loss" in wandb.told[3][1]
    assert wandb.ended == [0]


def test_a_failed_run_says_so(monkeypatch):
    wandb = StandIn()
    monkeypatch.setitem(sys.modules, "wandb", wandb)

    def fail(trainer):
        raise TrainingError("no more")

    trainer = make_trainer(callbacks=[WandbWriter("x"), At(1, fail)], steps=3)
    with pytest.raises(TrainingError):
        trainer.fit()
    assert wandb.ended == [1]


ROOT = str(Path(__file__).parents[2])
OFFLINE = """
import sys
from pathlib import Path
from pyggml.train import Sampler, WandbWriter
sys.path.insert(0, sys.argv[1])
from tests.train.tiny import make_trainer
writers = [WandbWriter("shakespeare", sys.argv[2], mode="offline"), Sampler(2, lambda: "naïve")]
trainer = make_trainer(Path(sys.argv[2]), writers, steps=4, eval_every=2)
trainer.fit()
"""


def kept_offline(file):
    """The records of a run's file: LevelDB's log format, after seven bytes of its own."""
    data, at, parts = file.read_bytes(), 7, b""
    while at + 7 <= len(data):
        left = 32768 - at % 32768  # a block
        if left < 7:
            at += left
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        parts += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield parts
            parts = b""


def test_weights_and_biases_itself(tmp_path):
    """Offline, in a process of its own: it writes the last of its file as that ends."""
    pytest.importorskip("wandb")
    from wandb.proto.wandb_internal_pb2 import Record

    quiet = {**os.environ, "WANDB_SILENT": "true", "WANDB_MODE": "offline"}
    command = [sys.executable, "-c", OFFLINE, ROOT, str(tmp_path)]
    subprocess.run(command, check=True, timeout=900, env=quiet, cwd=tmp_path)
    (file,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    records = [Record.FromString(part) for part in kept_offline(file)]
    (run,) = (r.run for r in records if r.WhichOneof("record_type") == "run")
    assert run.project == "shakespeare"
    config = {item.key: json.loads(item.value_json) for item in run.config.update}
    assert (config["steps"], config["lr"]) == (4, 1e-2)
    (end,) = (r.exit for r in records if r.WhichOneof("record_type") == "exit")
    assert end.exit_code == 0
    told = {}
    for record in records:
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            values = {i.key or i.nested_key[0]: json.loads(i.value_json) for i in items}
            told[values["_step"]] = values
    assert sorted(told) == [1, 2, 3, 4]
    assert [step for step, values in told.items() if "validation/loss" in values] == [2, 4]
    assert [step for step, values in told.items() if values.get("sample") == "naïve"] == [2, 4]
    losses = [told[step]["train/loss"] for step in (1, 2, 3, 4)]
    twin = make_trainer(None, [Losses()], steps=4, eval_every=2)
    twin.fit()
    assert losses == pytest.approx(twin.callbacks[0].seen)


def test_weights_and_biases_without_a_login(tmp_path):
    pytest.importorskip("wandb")
    hidden = {k: v for k, v in os.environ.items() if not k.startswith("WANDB") and k != "NETRC"}
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE.replace(', mode="offline"', ""), ROOT, str(tmp_path)],
        check=False, timeout=900, env={**hidden, "HOME": str(tmp_path)}, cwd=tmp_path,
        stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1
    assert "RuntimeError: WandbWriter: no run could be begun: No API key" in done.stderr
    assert "Else set WANDB_MODE=offline, or train without it" in done.stderr


class Losses(Callback):
    def __init__(self):
        self.seen = []

    def on_step(self, trainer, metrics):
        self.seen.append(metrics.loss)
