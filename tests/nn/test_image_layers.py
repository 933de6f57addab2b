# SPDX-License-Identifier: MIT
"""Convolution, pooling and the norms of images, against PyTorch's modules of the same names."""

from __future__ import annotations

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn
from pyggml.optim import SGD
from pyggml.train import TrainStep

RNG = np.random.default_rng(5)


def draw(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) * 1.5 + 0.5).astype(np.float32)


# Name, arguments, shape of the input.
ROWS = [
    ("Conv2d", {"in_channels": 3, "out_channels": 5, "kernel_size": 3}, (2, 3, 7, 6)),
    (
        "Conv2d",
        {
            **{"in_channels": 3, "out_channels": 4, "kernel_size": (3, 2), "stride": (2, 1)},
            **{"padding": (1, 0), "dilation": (1, 2), "bias": False},
        },
        (2, 3, 9, 8),
    ),
    ("Conv2d", {"in_channels": 2, "out_channels": 3, "kernel_size": 1, "stride": 2}, (1, 2, 5, 5)),
    (
        "Conv2d",
        {"in_channels": 4, "out_channels": 4, "kernel_size": 3, "padding": 1, "groups": 4},
        (3, 4, 5, 6),
    ),
    (
        "Conv1d",
        {"in_channels": 3, "out_channels": 5, "kernel_size": 3, "stride": 2, "padding": 1},
        (2, 3, 7),
    ),
    ("Conv1d", {"in_channels": 2, "out_channels": 3, "kernel_size": 2, "dilation": 3}, (2, 2, 7)),
    (
        "ConvTranspose2d",
        {"in_channels": 3, "out_channels": 5, "kernel_size": 4, "stride": 2, "padding": 1},
        (2, 3, 5, 4),
    ),
    (
        "ConvTranspose2d",
        {
            **{"in_channels": 3, "out_channels": 2, "kernel_size": (3, 2), "stride": 2},
            **{"padding": (1, 0), "output_padding": 1, "bias": False},
        },
        (2, 3, 5, 4),
    ),
    ("Upsample", {"scale_factor": 2}, (2, 3, 5, 4)),
    ("Upsample", {"scale_factor": 1.5, "mode": "bilinear"}, (2, 3, 6, 4)),
    ("Upsample", {"size": (3, 9), "mode": "bilinear", "align_corners": True}, (2, 3, 5, 4)),
    ("MaxPool2d", {"kernel_size": 2}, (2, 3, 6, 5)),
    ("MaxPool2d", {"kernel_size": 3, "stride": 2, "padding": 1}, (2, 3, 7, 8)),
    ("AvgPool2d", {"kernel_size": (2, 3)}, (2, 3, 6, 9)),
    ("GroupNorm", {"num_groups": 2, "num_channels": 6}, (3, 6, 4, 5)),
    ("GroupNorm", {"num_groups": 1, "num_channels": 3, "eps": 1e-2, "affine": False}, (2, 3, 1, 5)),
    ("BatchNorm2d", {"num_features": 3}, (4, 3, 5, 2)),
    (
        "BatchNorm2d",
        {"num_features": 3, "momentum": 0.4, "eps": 1e-2, "affine": False},
        (2, 3, 1, 1),
    ),
    ("BatchNorm2d", {"num_features": 1, "momentum": None}, (1, 1, 5, 2)),
    ("BatchNorm1d", {"num_features": 7, "momentum": 1.0}, (5, 7)),
    ("BatchNorm1d", {"num_features": 3}, (4, 3, 5)),
    ("BatchNorm1d", {"num_features": 3, "affine": False}, (1, 3, 5)),
    ("GroupNorm", {"num_groups": 2, "num_channels": 6}, (3, 6, 5)),
    ("GroupNorm", {"num_groups": 2, "num_channels": 6}, (3, 6)),
]


def their_module(name: str, given: dict):
    torch = pytest.importorskip("torch")
    return torch, getattr(torch.nn, name)(**given)


@pytest.mark.parametrize(("name", "given", "shape"), ROWS)
def test_forward_and_gradients_are_pytorchs(name, given, shape):
    torch, theirs = their_module(name, given)
    ours = getattr(nn, name)(**given)
    weights = {key: draw(*p.shape) for key, p in ours.named_parameters()}
    ours.load_state_dict(weights, strict=False)
    theirs.load_state_dict({k: torch.tensor(a) for k, a in weights.items()}, strict=False)
    x = draw(*shape)
    their_x = torch.tensor(x, requires_grad=True)
    want = theirs(their_x)
    toward = draw(*want.shape)
    (want * torch.tensor(toward)).sum().backward()
    own_x = pg.tensor(x, requires_grad=True)
    y = ours(own_x)
    assert y.shape == tuple(want.shape)
    loss = (y * pg.tensor(toward)).sum()
    params = dict(ours.named_parameters())
    grads = {p: pg.zeros(p.shape) for p in [own_x, *params.values()]}
    graph = pg.Graph([y], loss=loss, grads=grads)
    graph.run()
    np.testing.assert_allclose(graph.read(y), want.detach(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(grads[own_x].numpy(), their_x.grad, rtol=1e-3, atol=1e-5)
    for key, p in params.items():
        their_grad = dict(theirs.named_parameters())[key].grad
        np.testing.assert_allclose(grads[p].numpy(), their_grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("momentum", [0.1, 0.7, None])
@pytest.mark.parametrize(
    ("name", "shape"),
    [("BatchNorm2d", (4, 3, 5, 2)), ("BatchNorm1d", (6, 3)), ("BatchNorm1d", (4, 3, 5))],
)
def test_running_statistics_are_pytorchs(name, shape, momentum):
    torch, theirs = their_module(name, {"num_features": 3, "momentum": momentum})
    ours = getattr(nn, name)(3, momentum=momentum)
    step = pg.compile(ours)
    for _ in range(4):
        x = draw(*shape)
        np.testing.assert_allclose(step(x).numpy(), theirs(torch.tensor(x)).detach(), atol=1e-5)
    state = ours.state_dict()
    assert list(state) == list(theirs.state_dict())
    for key, value in theirs.state_dict().items():
        np.testing.assert_allclose(state[key], value, rtol=1e-5, atol=1e-6)
    ours.eval()
    theirs.eval()
    x = draw(*shape)
    want = theirs(torch.tensor(x)).detach()
    np.testing.assert_allclose(ours(pg.tensor(x)).numpy(), want, rtol=1e-5, atol=1e-5)
    # Both ways: our arrays into theirs, and theirs into ours.
    other = torch.nn.BatchNorm2d(3)
    other.load_state_dict({key: torch.tensor(a) for key, a in state.items()})
    assert other.num_batches_tracked.item() == 4
    again = getattr(nn, name)(3)
    again.load_state_dict({key: a.numpy() for key, a in other.state_dict().items()})
    np.testing.assert_array_equal(again.running_var.numpy(), state["running_var"])


class Twice(nn.Module):
    """One batch norm that sees two batches in each forward."""

    def __init__(self):
        self.norm = nn.BatchNorm1d(2)

    def forward(self, x):
        return (self.norm(x) + self.norm(x * 2.0)).sum()


def test_a_norm_that_is_called_twice_moves_twice():
    torch = pytest.importorskip("torch")
    model, theirs, x = Twice(), torch.nn.BatchNorm1d(2), draw(5, 2)
    model(pg.tensor(x)).item()
    theirs(torch.tensor(x))
    theirs(torch.tensor(x) * 2)
    np.testing.assert_allclose(model.norm.running_mean.numpy(), theirs.running_mean, rtol=1e-5)
    np.testing.assert_allclose(model.norm.running_var.numpy(), theirs.running_var, rtol=1e-5)


class Net(nn.Module):
    def __init__(self, checkpointed: bool = False):
        pg.seed(4)
        self.conv = nn.Conv2d(1, 3, 3)
        self.norm = nn.BatchNorm2d(3)
        self.head = nn.Linear(3, 2)
        self.checkpointed = checkpointed

    def body(self, x):
        return pg.ops.relu(self.norm(self.conv(x)))

    def forward(self, x):
        x = pg.checkpoint(self.body, x) if self.checkpointed else self.body(x)
        return self.head(nn.GlobalAvgPool2d()(x))


def test_training_steps_move_them_once_and_evaluation_does_not():
    x, y = draw(6, 1, 5, 5), np.array([0, 1, 0, 1, 0, 1], np.int32)
    states = []
    for net in (Net(), Net(checkpointed=True)):
        step = TrainStep(net, SGD(net.parameters(), lr=0.1))
        for _ in range(3):
            step([(x, y)])
        step.loss_sum((x, y))
        step.logits((x, y))
        assert net.norm.num_batches_tracked.item() == 3
        states.append(net.state_dict())
        # Accumulated batches are batches of their own.
        step([(x[:3], y[:3]), (x[3:], y[3:])])
        assert net.norm.num_batches_tracked.item() == 5
    # A block that the backward computes again counts its batch once, too.
    for key, array in states[0].items():
        np.testing.assert_array_equal(array, states[1][key], err_msg=key)


def test_fused_updates_move_them_the_same():
    x, y = draw(6, 1, 5, 5), np.array([0, 1, 0, 1, 0, 1], np.int32)
    states = []
    for fused in (False, True):
        net = Net()
        step = TrainStep(net, SGD(net.parameters(), lr=0.1, fused_update=fused))
        for _ in range(3):
            step([(x, y)])
        states.append(net.state_dict())
    for key, array in states[0].items():
        np.testing.assert_array_equal(array, states[1][key], err_msg=key)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: nn.Conv2d(0, 3, 3), ValueError, "in_channels must be a whole number >= 1; got 0"),
        (
            lambda: nn.Conv2d(3, 3, 0),
            ValueError,
            "kernel_size must be one or two integers >= 1, at .* got 0",
        ),
        (lambda: nn.Conv2d(3, 3, (3, 3, 3)), ValueError, r"got \(3, 3, 3\)"),
        (lambda: nn.Conv2d(3, 3, None), TypeError, "kernel_size must be .* got None"),
        (lambda: nn.Conv2d(4, 7, 3, groups=2), ValueError, "groups must divide the channels"),
        (
            lambda: nn.Conv2d(1, 1, 9)(pg.ones((1, 1, 5, 5))),
            pg.ShapeError,
            "as large as the kernel",
        ),
        (lambda: nn.Conv2d(2, 1, 3)(pg.ones((1, 1, 5, 5))), pg.ShapeError, "the channels of x"),
        (lambda: nn.MaxPool2d(2, padding=2), pg.ShapeError, "padding must be below kernel_size"),
        (lambda: nn.BatchNorm2d(3, momentum=1.5), ValueError, "momentum must be a finite"),
        (lambda: nn.BatchNorm2d(3)(pg.ones((1, 3, 1, 1))), pg.ShapeError, "more than one element"),
        (
            lambda: nn.BatchNorm2d(3)(pg.ones((2, 4, 2, 2))),
            pg.ShapeError,
            r"\(B, C, H, W\) with C=3",
        ),
        (lambda: nn.BatchNorm1d(3)(pg.ones((2, 3, 2, 2))), pg.ShapeError, r"\(B, C, L\) with C=3"),
        (lambda: nn.GroupNorm(4, 6), ValueError, "num_groups must divide num_channels; .* try 2"),
        (lambda: nn.GroupNorm(2, 6)(pg.ones((6,))), pg.ShapeError, r"\(B, C, H, W\) with C=6"),
        (lambda: nn.GlobalAvgPool2d()(pg.ones((2, 6))), pg.ShapeError, r"must be \(B, C, H, W\)"),
        (lambda: nn.Flatten()(pg.tensor(1.0)), pg.ShapeError, "must have an axis"),
    ],
)
def test_mistakes_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_effects_want_what_an_op_returned():
    from pyggml.graph import attach_update

    stored, y = pg.zeros((2,)), pg.ops.exp(pg.zeros((2,)))
    with pytest.raises(ValueError, match="t must be what an op returned"):
        attach_update(stored, pg.ops.cpy(y, stored))
    with pytest.raises(ValueError, match="must write in place"):
        attach_update(y, y + 1.0)
    with pytest.raises(TypeError, match="update must be a Tensor"):
        attach_update(y, 1.0)


@pytest.mark.parametrize("name", ["pixel_shuffle", "pixel_unshuffle"])
def test_a_shuffle_by_one_is_a_copy_as_in_pytorch(name):
    x = pg.ones(1, 2, 3, 3)
    y = getattr(nn.functional, name)(x, 1)
    x.copy_(np.zeros(x.shape))
    assert y.numpy().all()
