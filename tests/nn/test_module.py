# SPDX-License-Identifier: MIT
import numpy as np
import pytest

import pyggml as pg
from pyggml import nn
from pyggml.errors import AnomalyError, ShapeError


class Tree(nn.Module):
    def __init__(self):
        self.first = nn.Linear(3, 4)
        self.shared = self.first.weight
        self.many = [nn.Linear(4, 4, bias=False), nn.LayerNorm(4)]
        self.table = {"a": nn.RMSNorm(4)}
        self.scale = pg.tensor([2.0])
        self.none = None
        self._private = nn.Linear(2, 2)


def test_names_follow_definition_order_and_shared_tensors_come_once():
    tree = Tree()
    assert [name for name, _ in tree.named_parameters()] == [
        "shared",
        "first.bias",
        "many.0.weight",
        "many.1.weight",
        "many.1.bias",
        "table.a.weight",
    ]
    assert [name for name, _ in tree.named_buffers()] == ["scale"]
    assert tree.num_parameters() == 12 + 4 + 16 + 4 + 4 + 4
    assert [name for name, _ in tree.named_modules()][:3] == ["", "first", "many.0"]


def test_state_dict_round_trip():
    a, b = Tree(), Tree()
    b.load_state_dict(a.state_dict())
    for name, array in b.state_dict().items():
        np.testing.assert_array_equal(array, a.state_dict()[name])


def test_load_refuses_wrong_names_and_shapes_and_changes_nothing():
    layer = nn.Linear(2, 3)
    before = layer.state_dict()
    with pytest.raises(KeyError, match="missing bias, unexpected extra"):
        layer.load_state_dict({"weight": np.ones((3, 2)), "extra": np.ones(1)})
    with pytest.raises(pg.ShapeError, match=r"bias .*\(4,\)"):
        layer.load_state_dict({"weight": np.ones((3, 2)), "bias": np.ones(4)})
    np.testing.assert_array_equal(layer.weight.numpy(), before["weight"])
    keys = layer.load_state_dict({"weight": np.ones((3, 2)), "extra": np.ones(1)}, strict=False)
    assert keys == nn.IncompatibleKeys(missing_keys=["bias"], unexpected_keys=["extra"])
    np.testing.assert_array_equal(layer.weight.numpy(), np.ones((3, 2)))


def test_freeze_keeps_parameters_and_unfreeze_restores_them():
    tree = Tree().freeze()
    assert tree.num_parameters() == 44
    assert tree.num_parameters(trainable_only=True) == 0
    assert tree.unfreeze().num_parameters(trainable_only=True) == 44


def test_replacing_an_attribute_replaces_its_kind():
    layer = nn.Linear(2, 2)
    layer.bias = pg.zeros((2,))
    assert [name for name, _ in layer.named_parameters()] == ["weight"]
    assert [name for name, _ in layer.named_buffers()] == ["bias"]
    layer.bias = nn.Parameter([1.0, 2.0])
    assert [name for name, _ in layer.named_parameters()] == ["weight", "bias"]


def test_train_and_eval_reach_every_module():
    tree = Tree()
    assert tree.training
    tree.eval()
    assert not any(module.training for _, module in tree.named_modules())
    assert tree.train().many[0].training


def test_zero_grad_clears_what_backward_left():
    layer = nn.Linear(2, 2)
    layer(pg.ones((1, 2))).sum().backward()
    assert np.abs(layer.weight.grad.numpy()).sum() > 0
    layer.zero_grad(set_to_none=False)
    assert not layer.weight.grad.numpy().any()
    layer.zero_grad()
    assert layer.weight.grad is None
    layer(pg.ones((1, 2))).sum().backward()
    np.testing.assert_array_equal(layer.weight.grad.numpy(), 1)


def test_a_module_without_forward_says_so():
    with pytest.raises(TypeError, match=r"must define forward\(\)"):
        nn.Module()()


def test_repr_shows_the_tree():
    assert repr(nn.Sequential(nn.Linear(2, 3), nn.GELU())) == (
        "Sequential(\n  0: Linear(weight=(3, 2), bias=(3,))\n  1: GELU(approximate='none')\n)"
    )


def test_repr_tells_options() -> None:
    assert repr(nn.Dropout(0.5)) == "Dropout(p=0.5)"
    options = "kernel_size=(2, 2), stride=(2, 2), padding=(0, 0), ceil_mode=False"
    assert repr(nn.MaxPool2d(2)) == f"MaxPool2d({options})"
    shapes = "weight=(3, 2, 3, 3), bias=(3,)"
    assert repr(nn.Conv2d(2, 3, 3)) == f"Conv2d({shapes})"
    assert repr(nn.Conv2d(2, 3, 3, padding=1)) == f"Conv2d({shapes}, padding=(1, 1))"


def test_a_state_that_does_not_fit_changes_nothing() -> None:
    layer = nn.Linear(2, 3)
    before = layer.state_dict()
    bad = {"weight": np.full((3, 2), 5.0), "bias": np.array(["a", "b", "c"])}
    with pytest.raises(pg.DTypeError, match="bias"):
        layer.load_state_dict(bad)
    for name, array in before.items():
        np.testing.assert_array_equal(layer.state_dict()[name], array)


def test_a_module_without_parameters_has_an_empty_state():
    assert nn.Sequential(nn.ReLU(), nn.Flatten()).state_dict() == {}


def test_a_load_that_fails_in_the_middle_changes_nothing():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    before, state = model.state_dict(), {k: v + 1.0 for k, v in model.state_dict().items()}
    held = pg.ops.log(model[1].weight * 0.0 - 1.0)
    with pg.detect_anomaly(), pytest.raises(AnomalyError):
        model.load_state_dict(state)
    for name, array in model.state_dict().items():
        np.testing.assert_array_equal(array, before[name])
    model.load_state_dict(state)
    np.testing.assert_array_equal(model[1].weight.numpy(), state["1.weight"])
    assert np.isnan(held.numpy()).all()


def test_a_load_of_wrong_row_numbers_changes_nothing():
    class Table(nn.Module):
        def __init__(self):
            self.weight = nn.Parameter(np.ones((3, 2)))
            self.ids = pg.tensor(np.array([0, 2], np.int32))

        def forward(self):
            return pg.ops.get_rows(self.weight, self.ids)

    table = Table()
    table().numpy()
    with pytest.raises(ShapeError, match=r"load_state_dict: ids: row numbers.* from 0 to 2; got"):
        table.load_state_dict({"weight": np.zeros((3, 2)), "ids": np.array([0, 3], np.int32)})
    assert table.weight.numpy().all()
    assert table.ids.tolist() == [0, 2]


def test_blocks_may_lie_in_any_order():
    layer = nn.Linear(32, 4, bias=False)
    layer.weight = pg.tensor(layer.weight.numpy(), "q8_0")
    blocks = layer.state_dict()["weight"]
    layer.load_state_dict({"weight": np.asfortranarray(blocks[::-1])})
    np.testing.assert_array_equal(layer.state_dict()["weight"], blocks[::-1])
