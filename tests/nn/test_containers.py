# SPDX-License-Identifier: MIT
"""Lists and dicts of modules, hooks, buffers, and the table of a model."""

from __future__ import annotations

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn


def test_a_list_of_modules_counts_its_members() -> None:
    first, second, third = (nn.Linear(2, n) for n in (1, 2, 3))
    layers = nn.ModuleList([second]).append(third)
    layers.insert(0, first)
    assert list(layers) == [first, second, third]
    assert list(layers.state_dict())[::2] == ["0.weight", "1.weight", "2.weight"]
    assert isinstance(layers[1:], nn.ModuleList)
    assert list(layers[1:]) == [second, third]
    assert layers.pop() is third
    del layers[0]
    layers[0] = third
    assert list(layers) == [third]
    assert list(layers.state_dict()) == ["0.weight", "0.bias"]
    with pytest.raises(TypeError, match="int"):
        layers.append(3)
    with pytest.raises(IndexError, match="ModuleList"):
        layers[1] = first
    with pytest.raises(IndexError, match="ModuleList"):
        nn.ModuleList().pop()
    with pytest.raises(TypeError, match="Sequential"):
        nn.Sequential(first)["a"]


def test_a_slice_of_a_sequence_shares_its_layers() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    x = pg.ones((3, 4))
    np.testing.assert_array_equal(model[2:](model[:2](x)).numpy(), model(x).numpy())
    assert model[:1][0] is model[0]


def test_a_dict_of_modules_refuses_names_that_are_taken() -> None:
    heads = nn.ModuleDict({"a": nn.Linear(2, 2)})
    heads["a"] = head = nn.Linear(2, 3)
    assert heads.items() == [("a", head)]
    for name in ("train", "a.b", "_x", "", 3):
        with pytest.raises(KeyError, match="name"):
            heads[name] = head
    assert heads.pop("a") is head
    assert not list(heads.named_parameters())
    with pytest.raises(KeyError):
        heads["a"]


def test_hooks_replace_and_are_removed() -> None:
    layer, x = nn.Linear(2, 3), pg.ones((1, 2))
    plain = layer(x).numpy()
    with layer.register_forward_pre_hook(lambda module, args: args[0] * 2.0):
        np.testing.assert_allclose(layer(x).numpy(), 2 * plain - layer.bias.numpy(), atol=1e-6)
    handle = layer.register_forward_hook(lambda module, args, y: y + 1.0)
    np.testing.assert_allclose(layer(x).numpy(), plain + 1, atol=1e-6)
    handle.remove()
    handle.remove()
    np.testing.assert_array_equal(layer(x).numpy(), plain)
    with pytest.raises(TypeError, match="hook"):
        layer.register_forward_hook(3)


def test_buffers_are_saved_or_not() -> None:
    layer = nn.Linear(2, 3)
    layer.register_buffer("kept", pg.ones((3,)))
    layer.register_buffer("passing", pg.ones((3,)), persistent=False)
    assert list(layer.state_dict()) == ["weight", "bias", "kept"]
    assert [t.shape for t in layer.buffers()] == [(3,), (3,)]
    for name in ("weight", "train", "a.b"):
        with pytest.raises(KeyError, match="name"):
            layer.register_buffer(name, pg.ones((2,)))
    with pytest.raises(TypeError, match="stored"):
        layer.register_buffer("more", layer.bias + 1.0)
    with pytest.raises(ValueError, match="parameter"):
        layer.register_buffer("more", nn.Parameter(np.ones(2)))


def test_patterns_freeze_some_parameters() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    model.freeze("0.*")
    assert [p.requires_grad for p in model.parameters()] == [False, False, True, True]
    model.requires_grad_(False).unfreeze("*.bias")
    assert [p.requires_grad for p in model.parameters()] == [False, True, False, True]
    with pytest.raises(ValueError, match="nope"):
        model.freeze("nope")
    visited: list[type] = []
    assert model.apply(lambda module: visited.append(type(module))) is model
    assert visited == [nn.Linear, nn.Linear, nn.Sequential]


def test_the_table_of_a_model() -> None:
    tied = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 4))
    tied[2].weight = tied[0].weight
    tied[0].freeze()
    found = nn.summary(tied, np.ones((2, 4), np.float32))
    assert [each.name for each in found.layers] == ["", "0", "1", "2"]
    assert found.parameters == tied.num_parameters() == 24
    assert found.layers[0].trainable == 4
    assert found.layers[0].output == (2, 4)
    assert found.layers[0].output_bytes == 32
    assert tied.training
    assert "Dropout" in str(found)
    assert found._repr_html_().count("<tr>") == 5
    assert nn.summary(tied).layers[1].output is None
    with pytest.raises(TypeError, match="model"):
        nn.summary(3)
    with pytest.raises(pg.ShapeError):
        nn.summary(tied, pg.ones((2, 3)))
    assert not tied.__dict__.get("_forward_hooks")
