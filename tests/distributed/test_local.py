# SPDX-License-Identifier: MIT
"""Ranks that take steps by themselves and average their weights now and then."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pyggml import Tensor, tensor
from pyggml.distributed import Group
from pyggml.distributed.local import LocalSteps
from pyggml.errors import ConfigError
from pyggml.train import TrainerOptions

from .ranks import run_code
from .test_training import train

FOLDER = Path(__file__).parent


class Pair(Group):
    """This rank and another one, whose weights are known."""

    size = 2

    def __init__(self, others: list[np.ndarray]) -> None:
        super().__init__()
        self.others = others

    def reduce(self, arrays: list[np.ndarray], op: str = "sum") -> None:
        """Add the other rank's difference to that of this one."""
        arrays[0] += self.others.pop(0)


def test_the_outer_step_is_nesterov_momentum() -> None:
    anchor, velocity = np.array([1.0, -2.0], np.float32), np.zeros(2, np.float32)
    weights: Tensor = tensor(anchor)
    rng, others = np.random.default_rng(0), list[np.ndarray]()
    local = LocalSteps(Pair(others), {"w": weights}, 0.5, 0.8)
    for _ in range(3):
        mine, its = rng.normal(size=(2, 2)).astype(np.float32)
        others.append(anchor - its)
        weights.copy_(mine)
        assert local.sync(2.0) == [2.0]
        mean = anchor - (mine + its) / 2
        velocity = 0.8 * velocity + mean
        anchor = anchor - 0.5 * (mean + 0.8 * velocity)
        np.testing.assert_allclose(weights.numpy(), anchor, rtol=1e-5)
    again = LocalSteps(Group(), {"w": weights})
    again.load_state_dict(local.state_dict())
    np.testing.assert_array_equal(again.state_dict()["w"], local.state_dict()["w"])


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"outer_lr": 0.5}, "outer_lr"),
        ({"sync_every": 4, "ema": 0.9}, "ema"),
        ({"sync_every": 4, "save_every": 6}, "save_every"),
        ({"sync_every": 4, "outer_momentum": 1.0}, "outer_momentum"),
    ],
)
def test_options_that_do_not_agree_are_named(options, name) -> None:
    with pytest.raises(ConfigError, match=name):
        TrainerOptions(**options)


COUNTED = f"""
import sys
sys.path.insert(0, {str(FOLDER)!r})
import training
from pyggml import distributed
group = distributed.init()
sent, steps = [0], []
for name in ("reduce", "send_all", "barrier"):
    def counted(*given, _call=getattr(group, name)):
        sent[0] += 1
        return _call(*given)
    setattr(group, name, counted)
trainer, losses = training.make("local", None, 30, eval_every=0)
trainer.train_step.check = lambda batch, _old=trainer.train_step.check: (
    steps.append(sent[0]), _old(batch))[1]
trainer.fit()
gaps = [b - a for a, b in zip(steps, steps[1:])]
if group.rank == 0:
    print(gaps[1:30])  # the first check was that of the first evaluation
"""


@pytest.mark.mpi
def test_nothing_is_sent_between_averages(tmp_path: Path) -> None:
    done = run_code(2, tmp_path, COUNTED)
    assert done.returncode == 0, done.stderr
    gaps = [int(word) for word in done.stdout.strip(" []\n").split(",")]
    assert [at for at, gap in enumerate(gaps) if gap] == [9, 19]
    assert max(gaps) <= 4  # the weights, and whether a rank was asked to stop


@pytest.mark.mpi
def test_adapters_are_averaged() -> None:
    found = train(2, "lora+local")  # which compares the weights of the ranks
    assert len(found["losses"]) == 50
    assert found["losses"][-1] < found["losses"][0] - 0.01
    assert found["early"] is None, "no gradients are exchanged"


@pytest.mark.mpi
@pytest.mark.slow
def test_local_steps_resume_with_the_same_bits(tmp_path: Path) -> None:
    whole = train(2, "local")
    assert train(2, "local") == whole
    train(2, "local", tmp_path / "run", "20")
    rest = train(2, "local", tmp_path / "run")
    assert rest["losses"] == whole["losses"][20:]
    assert rest["digests"] == whole["digests"]
    for ranks in (1, 4):  # the weights and the momentum are those of the checkpoint
        train(2, "local", tmp_path / f"run-{ranks}", "20")
        other = train(ranks, "local", tmp_path / f"run-{ranks}")
        assert len(other["losses"]) == 30
        assert other["validation"] == pytest.approx(whole["validation"], abs=0.3)
