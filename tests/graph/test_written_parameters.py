# SPDX-License-Identifier: MIT
"""What was recorded of a parameter, and is computed after the parameter has changed."""

from __future__ import annotations

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn
from pyggml.errors import RecordingError
from pyggml.nn import functional as F
from pyggml.optim import SGD

X = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
Y = np.arange(8) % 3


def make():
    pg.seed(0)
    model = nn.Sequential(nn.Linear(4, 3))
    return model, SGD(model, lr=0.5)


def test_what_no_backward_computed_is_refused_after_the_step_with_the_line():
    model, optimizer = make()
    loss, other = (F.cross_entropy(model(pg.tensor(X)), pg.tensor(Y)) for _ in range(2))
    logits = model(pg.tensor(X))
    loss.backward()
    optimizer.step()
    assert loss.item() > 0  # computed by backward()
    for t in (other, logits, logits.argmax(1)):
        with pytest.raises(RecordingError, match=r"test_written_parameters\.py:\d+ recorded an op"):
            t.numpy()
    assert "Tensor" in repr(logits)


def test_what_is_read_or_detached_before_stays():
    model, optimizer = make()
    x = pg.tensor(X)
    read, cut = model(x), model(x).detach()
    before = read.numpy()
    F.cross_entropy(model(x), pg.tensor(Y)).backward()
    optimizer.step()
    np.testing.assert_array_equal(read.numpy(), before)
    np.testing.assert_array_equal(cut.numpy(), before)
    assert not np.array_equal(model(x).numpy(), before)


def test_a_loss_of_before_the_step_has_no_gradient_of_then():
    model, optimizer = make()
    first, second = (F.cross_entropy(model(pg.tensor(X)), pg.tensor(Y)) for _ in range(2))
    first.backward()
    optimizer.step()
    with pytest.raises(RecordingError, match="backward: a parameter of shape"):
        second.backward()


def test_numbers_that_are_no_parameters_may_change():
    model, _ = make()
    x = pg.tensor(X)
    y = model(x)
    x.zero_()
    np.testing.assert_array_equal(y.numpy(), np.broadcast_to(model[0].bias.numpy(), (8, 3)))
