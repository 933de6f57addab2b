# SPDX-License-Identifier: MIT
"""The norm of gradients whose squares are more than f32 holds."""

from __future__ import annotations

import numpy as np
import pytest

from pyggml import nn
from pyggml.optim import SGD, GradNorm


def test_a_norm_is_infinite_only_where_an_element_is():
    w = nn.Parameter(np.zeros(4, np.float32))
    optimizer = SGD([w], lr=0.1)
    optimizer.grads[w].copy_(np.full(4, 1e30, np.float32))
    assert optimizer.grad_norm() == pytest.approx(2e30, rel=1e-6)
    assert GradNorm([optimizer.grads[w]] * 2)() == pytest.approx(2e30 * 2**0.5, rel=1e-6)
    with pytest.raises(FloatingPointError, match=r"norm must be at most 1\.8e\+19.*got 2e\+30"):
        optimizer.step()
    assert optimizer.steps == 0
    assert w.tolist() == [0.0] * 4
    assert optimizer.step(clip=2.0) == pytest.approx(2e30, rel=1e-6)
    np.testing.assert_allclose(w.numpy(), -0.1, rtol=1e-5)
    for bad in (np.nan, np.inf):
        optimizer.grads[w].copy_(np.array([1e30, bad, 0, 0], np.float32))
        assert not np.isfinite(optimizer.grad_norm())
        with pytest.raises(FloatingPointError, match="must be finite"):
            optimizer.step(clip=1.0)


def test_a_scaled_gradient_that_is_too_long_asks_for_a_smaller_scale():
    """Clipping would mend it, but at a smaller scale all is done on the device."""
    w = nn.Parameter(np.zeros(4, np.float32))
    optimizer = SGD([w], lr=0.1)
    optimizer.grads[w].copy_(np.full(4, 1e20, np.float32))
    with pytest.raises(FloatingPointError, match="grad_scale"):
        optimizer.step(clip=1.0, grad_scale=1e20)
    optimizer.grads[w].copy_(np.full(4, 1e10, np.float32))
    assert optimizer.step(clip=1.0, grad_scale=1e10) == pytest.approx(2.0)
