# SPDX-License-Identifier: MIT
"""Methods that are compiled, and arguments that are given by name."""

from __future__ import annotations

import copy
import gc
import inspect
import sys
import weakref
from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn


class Scaled:
    def __init__(self, scale: float) -> None:
        self.scale = scale
        self.recorded = 0

    @pg.compile
    def times(self, x: Any, plus: Any = 0.0) -> Any:
        """Multiply."""
        self.recorded += 1
        return x * self.scale + plus


def test_each_object_has_its_own_recording() -> None:
    two, three = Scaled(2.0), Scaled(3.0)
    for _ in range(2):
        assert two.times([1.0, 2.0]).tolist() == [2.0, 4.0]
        assert three.times([1.0, 2.0]).tolist() == [3.0, 6.0]
    assert two.recorded == three.recorded == 1
    two.times([1.0])
    assert (two.recorded, three.recorded) == (2, 1)


def test_a_method_is_called_in_each_way_that_python_has() -> None:
    class Heir(Scaled):
        def times(self, x: Any, plus: Any = 0.0) -> Any:
            return super().times(x, plus)

    assert Scaled(2.0).times([1.0]).tolist() == [2.0]  # nothing else holds the object
    assert Scaled.times(Scaled(3.0), [1.0]).tolist() == [3.0]
    assert Heir(4.0).times([1.0], [1.0]).tolist() == [5.0]
    bound = Scaled(5.0).times
    assert bound([1.0]).tolist() == [5.0]
    assert bound.__name__ == "times"
    assert list(inspect.signature(bound).parameters) == ["x", "plus"]
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        Scaled(1.0).times()


def test_other_kinds_of_functions_in_a_class() -> None:
    class Kinds:
        layer = pg.compile(nn.ReLU())

        @staticmethod
        @pg.compile
        def static(x: Any) -> Any:
            return x * 2

        @pg.compile
        @staticmethod
        def inner(x: Any) -> Any:
            return x * 3

    assert Kinds().static([1.0]).tolist() == Kinds.static([1.0]).tolist() == [2.0]
    assert Kinds().inner([1.0]).tolist() == Kinds.inner([1.0]).tolist() == [3.0]
    assert Kinds().layer([-1.0]).tolist() == [0.0]


class Net(nn.Module):
    def __init__(self) -> None:
        self.inner = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.5))
        self.last = nn.Dropout(0.5)

    @pg.compile
    def forward(self, x: Any) -> Any:
        return self.last(self.inner(x)) if self.training else self.inner(x)


def dropped(y: pg.Tensor) -> bool:
    return bool((y.numpy() == 0).any())


def test_a_method_follows_the_mode_of_its_object_and_of_modules_below() -> None:
    net, other = Net(), Net()
    x = pg.ones((4, 16))
    for training in (True, False, True):
        net.train(training)
        assert dropped(net(x)) == training
        assert dropped(other(x))
    net.eval()
    net.inner.train()
    assert dropped(net(x))


@pytest.mark.parametrize("make", [lambda: Scaled(2.0), Net], ids=["class", "module"])
def test_the_recordings_do_not_keep_an_object_alive(make: Any) -> None:
    thing = make()
    method = "forward" if isinstance(thing, nn.Module) else "times"
    getattr(thing, method)(pg.ones((2, 16)))
    compiled = vars(type(thing))[method]
    assert id(thing) in compiled._methods
    key, seen = id(thing), weakref.ref(thing)
    del thing
    gc.collect()
    assert seen() is None
    assert key not in compiled._methods


def test_a_copy_of_an_object_records_anew() -> None:
    net = Net().eval()
    x = pg.ones((4, 16))
    before = net(x).numpy()
    twin = copy.deepcopy(net)
    twin.inner[0].bias.copy_(np.full(16, 100.0, np.float32))
    assert twin(x).numpy().min() > 50
    np.testing.assert_array_equal(net(x).numpy(), before)


def test_the_end_of_an_object_runs_no_python_code() -> None:
    """A signal that comes there would be lost, and its exception printed."""
    made = [Scaled(2.0)]
    assert made[0].times([1.0]).tolist() == [2.0]
    gc.collect()
    called: list[str] = []
    sys.setprofile(lambda frame, event, _: called.append(f"{event} {frame.f_code.co_name}"))
    made.clear()
    sys.setprofile(None)
    assert [each for each in called if each.startswith("call ")] == []


def test_an_object_that_allows_no_weak_references_is_told() -> None:
    class Narrow:
        __slots__ = ()

        @pg.compile
        def twice(self, x: Any) -> Any:
            return x * 2

    with pytest.raises(TypeError, match="add '__weakref__' to its __slots__"):
        Narrow().twice([1.0])


def test_arguments_by_name_are_those_by_place() -> None:
    recorded = []

    @pg.compile
    def linear(x: Any, weight: Any = 2.0, *, bias: Any = 0.0) -> Any:
        recorded.append(1)
        return x * weight + bias

    x = pg.tensor([1.0])
    assert linear(x).tolist() == linear(x=x).tolist() == [2.0]
    assert len(recorded) == 1
    calls = [linear(x, 3.0), linear(x, weight=3.0), linear(weight=3.0, x=x)]
    assert [y.tolist() for y in calls] == [[3.0]] * 3
    assert len(recorded) == 2
    assert linear(x, bias=3.0).tolist() == [5.0]  # as many numbers as with weight=3
    assert linear(bias=4.0, x=x).tolist() == [6.0]
    assert len(recorded) == 3
    for wrong in ({"y": x}, {}, {"x": x, "wieght": 1.0}):
        with pytest.raises(TypeError, match="linear"):
            linear(**wrong)


def test_any_names_that_a_function_takes() -> None:
    recorded = []

    @pg.compile
    def total(*args: Any, **kwargs: Any) -> Any:
        recorded.append(1)
        return sum(args, start=kwargs["a"] - kwargs["b"])

    assert total([1.0], a=[5.0], b=[3.0]).tolist() == [3.0]
    assert total([1.0], b=[3.0], a=[5.0]).tolist() == [3.0]
    assert len(recorded) == 1


def test_a_module_takes_names_of_its_forward() -> None:
    layer = nn.Linear(3, 2)
    compiled = pg.compile(layer)
    x = pg.ones((4, 3))
    np.testing.assert_array_equal(compiled(x=x).numpy(), compiled(x).numpy())
    assert len(compiled._plans) == 1


def test_a_method_is_a_part_of_what_records_it() -> None:
    thing = Scaled(3.0)
    value, grad = pg.value_and_grad(lambda x: thing.times(x=x).sum())(pg.tensor([1.0, 2.0]))
    assert value.item() == 9.0
    assert grad.tolist() == [3.0, 3.0]
