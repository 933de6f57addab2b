# SPDX-License-Identifier: MIT
"""An interrupted run and an uninterrupted one end with the same bits; kills leave checkpoints."""

from __future__ import annotations

import math
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import pyggml as pg
from pyggml.data import TokenDataset
from pyggml.models import build
from pyggml.optim import optimizers
from pyggml.train import Trainer, latest_checkpoint, list_checkpoints, load_checkpoint
from pyggml.train.checkpoints.folders import read_best, step_of

from .tiny import SEQ_LEN, SIZES, VOCAB, make_optimizer, same, tokens

STEPS, STOP = 6, 3


def make(folder, seed=3, optimizer="adamw", optimizer_options=None, **options):
    """A trainer with everything that a resumed run must restore."""
    options = {
        "batch_size": 2, "accumulate": 2, "steps": STEPS, "warmup": 2, "seed": 3,
        "eval_every": 2, "save_every": STOP, "keep": 9, "ema": 0.9,
        "patience": 9, "schedule": "plateau",
        "schedule_options": {"patience": 0, "factor": 0.5, "threshold": 0.9},
        **options,
    }  # fmt: skip
    pg.seed(seed)
    model = build("gpt2", {**SIZES["gpt2"], "dropout": 0.1}, vocab_size=VOCAB)
    train, validation = TokenDataset(tokens(120), SEQ_LEN).split(0.2)
    settings = {"lr": 1e-3, **(optimizer_options or {})}
    trainer = Trainer(
        model,
        train,
        validation,
        make_optimizer(model, optimizer, **settings),
        checkpoint_dir=folder,
        **options,
    )
    if trainer.scaler is not None:
        trainer.scaler.scale = 2.0**66  # the first steps overflow
        trainer.scaler.backoff_factor = 2.0**-24
        trainer.scaler.growth_interval = 2
    return trainer


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("adamw", "f32"),
        ("adamw", "bf16"),
        *((n, "f32" if n == "lbfgs" else "f16") for n in optimizers()),
    ],
)
def test_the_same_bits(tmp_path, name, precision):
    options = {"optimizer": name, "precision": precision}
    if name == "lbfgs":
        options["clip"] = 0.0
        options["optimizer_options"] = {"lr": 0.5, "weight_decay": 0.0, "max_iter": 3}
    if name == "adamw8bit":
        options["optimizer_options"] = {"min_8bit_size": 0}
    whole = make(tmp_path, **options)
    whole.fit()
    # Other weights and another scale: whatever there was, the checkpoint's replace it.
    resumed = make(tmp_path / "other", seed=7, **options)
    assert resumed.resume(tmp_path / f"step-{STOP:06d}") == STOP
    resumed.fit()
    assert same(resumed.model.state_dict(), whole.model.state_dict())
    assert same(resumed.optimizer.state_dict(), whole.optimizer.state_dict())
    assert resumed.loader.state_dict() == whole.loader.state_dict()
    assert resumed.schedule.state_dict() == whole.schedule.state_dict()
    assert resumed.best == whole.best
    assert same(resumed.ema.state_dict(), whole.ema.state_dict())
    assert resumed.tokens == whole.tokens
    assert pg.random_generator().random() is not None
    last = [list_checkpoints(f)[-1] for f in (tmp_path, tmp_path / "other")]
    for file in ("model.safetensors", "optimizer.safetensors"):
        assert (last[0] / file).read_bytes() == (last[1] / file).read_bytes()
    states = [load_checkpoint(path).state for path in last]
    assert states[0].rng == states[1].rng
    assert states[0].schedule == states[1].schedule
    if precision == "f16":
        assert states[0].scaler == states[1].scaler == whole.scaler.state_dict()
        assert whole.scaler.skipped > 0


def test_the_random_generator_is_restored(tmp_path):
    trainer = make(tmp_path)
    pg.random_generator().random(5)
    path = trainer.save()
    want = pg.random_generator().random()
    pg.seed(99)
    make(tmp_path).resume(path)
    assert pg.random_generator().random() == want


RUN = """
import sys
from pathlib import Path
from tests.train.test_resume import make
from pyggml.train import Callback

class Tell(Callback):
    def on_step(self, trainer, metrics):
        print(metrics.step, flush=True)

    def on_checkpoint(self, trainer, path):
        print("kept", trainer.step, flush=True)

    on_best = on_checkpoint

folder = Path(sys.argv[1])
steps, save_every = map(int, sys.argv[2:])
trainer = make(folder, steps=steps, save_every=save_every, eval_every=3, keep=2)
trainer.callbacks.append(Tell())
print("from", trainer.resume(), flush=True)
trainer.fit()
"""


def start(folder, steps, save_every):
    return subprocess.Popen(
        [sys.executable, "-c", RUN, str(folder), str(steps), str(save_every)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
@pytest.mark.parametrize("seed", range(7))
def test_killed_at_thirty_random_instants(tmp_path, seed):
    """Also inside of saves, and where only the best is kept: nothing is lost but the last steps."""
    steps, rng = 400, random.Random(seed)
    reached, kept, least, from_best = 0, 0, math.inf, 0
    for attempt in range(30):
        # Less often than every evaluation, each third step; or each step.
        process = start(tmp_path, steps, rng.choice([1, 50]))
        first = process.stdout.readline()
        while first.startswith("kept "):  # the best, by the resume: the kill came before it
            first = process.stdout.readline()
        assert first.startswith("from "), process.stderr.read()
        began = int(first.split()[1])
        assert kept <= began <= reached, attempt
        from_best += began > max([step_of(path) for path in list_checkpoints(tmp_path)], default=0)
        lines = [process.stdout.readline() for _ in range(rng.randrange(1, 16))]
        time.sleep(rng.random() * 0.05)
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.readlines()
        process.wait()
        process.stdout.close()
        process.stderr.close()
        for line in lines:
            if not line.endswith("\n"):
                break  # killed while it was written
            *said, number = line.split()
            reached, kept = (reached, int(number)) if said else (int(number), kept)
        for path in [*list_checkpoints(tmp_path), *tmp_path.glob("best")]:
            load_checkpoint(path)
        latest_checkpoint(tmp_path)  # puts `best` back, if the kill came while it was replaced
        best = read_best(tmp_path) or {"loss": math.inf}
        assert best["loss"] <= least, attempt
        least = best["loss"]
    assert from_best
    process = start(tmp_path, reached + 3, 0)
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert f"\n{reached + 3}\n" in out
    # The run that was killed so often ends as one that never was.
    whole = make(tmp_path / "whole", steps=reached + 3, save_every=0, eval_every=3)
    whole.fit()
    ends = [list_checkpoints(f)[-1] / "model.safetensors" for f in (tmp_path, tmp_path / "whole")]
    assert ends[0].read_bytes() == ends[1].read_bytes()
    bests = [read_best(f) for f in (tmp_path, tmp_path / "whole")]
    assert bests[0] == bests[1]


# Rows: targets that count in each micro-batch, and the precision of sums.
TABLE = {
    "as many everywhere": [32, 32, 32, 32],
    "each another number": [32, 7, 1, 19],
    "one has none": [32, 0, 5],
    "two micro-batches": [3, 30],
    "one alone": [11],
}


@pytest.mark.parametrize("counts", TABLE.values(), ids=TABLE)
@pytest.mark.parametrize("arch", SIZES)
def test_accumulation_equals_the_large_batch(arch, counts):
    """Micro-batches with different numbers of targets: losses and gradients within 1e-6."""
    from pyggml.data import IGNORE_INDEX
    from pyggml.train import TrainStep

    rng = np.random.default_rng(len(counts))
    x = rng.integers(0, VOCAB, (len(counts) * 4, SEQ_LEN)).astype(np.int32)
    y = rng.integers(0, VOCAB, (len(counts), 4 * SEQ_LEN)).astype(np.int32)
    for row, count in zip(y, counts, strict=True):
        row[rng.permutation(row.size)[count:]] = IGNORE_INDEX
    y = y.reshape(x.shape)
    found = []
    for parts in (1, len(counts)):
        pg.seed(0)
        model = build(arch, SIZES[arch], vocab_size=VOCAB)
        optimizer = make_optimizer(model, lr=1e-3)
        step = TrainStep(model, optimizer, clip=1.0)
        pieces = list(zip(np.split(x, parts), np.split(y, parts), strict=True))
        result = step(pieces)
        grads = {n: p.grad.numpy() for n, p in model.named_parameters()}
        found.append((result, grads))
    large, small = found
    assert small[0].tokens == large[0].tokens == sum(counts)
    assert small[0].loss == pytest.approx(large[0].loss, rel=1e-6)
    assert small[0].grad_norm == pytest.approx(large[0].grad_norm, rel=1e-6)
    for n, grad in large[1].items():
        assert np.abs(small[1][n] - grad).max() <= 1e-6 * max(1.0, np.abs(grad).max()), n
