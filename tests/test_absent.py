# SPDX-License-Identifier: MIT
"""A name of PyTorch's that is not there says what to use instead."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml import data, nn, optim, train
from pyggml.absent.cures import INSTEAD
from pyggml.nn import functional, init

# Names of PyTorch's that a user may look for, see scripts/gen_torch_names.py.
LIST = (Path(__file__).parent / "torch_names.txt").read_text("utf-8").splitlines()
NAMES = [name for name in LIST if not name.startswith("#")]
PLACES: dict[str, Any] = {
    "x": pg.ones(2, 2), "pg": pg, "nn": nn, "F": functional, "optim": optim, "init": init,
    "schedules": optim.schedules, "data": data, "module": nn.Linear(2, 2),
    "optimizer": optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1),
    "trainer": train.Trainer(
        nn.Linear(2, 2), data.ArrayDataset(np.eye(8, 2, dtype=np.float32), np.arange(8) % 2)
    ),
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_every_cure_is_given_and_needed(place: str) -> None:
    for name, cure in INSTEAD[place].items():
        with pytest.raises(AttributeError) as error:
            getattr(PLACES[place], name)
        assert str(error.value) == f"{place}: there is no {place}.{name}; use {cure}"


def test_each_name_of_pytorch_is_there_or_has_a_cure() -> None:
    """A cure is what is used instead; a hint at all names, or at a typo's neighbour, is none."""
    assert len(NAMES) > 1500
    bare = []
    for full in NAMES:
        place, _, name = full.partition(".")
        try:
            getattr(PLACES[place], name)
        except AttributeError as error:
            cure = str(error).partition("; use ")[2]
            others = f"the names of dir({place})", "the functions of pg.ops, or x.numpy() and NumPy"
            if not cure or cure in others or cure == "x.copy_(values), which writes":
                bare.append(full)
    assert not bare


@pytest.mark.parametrize(
    ("line", "cure"),
    [
        ("from pyggml.data import DataLoader", r"data\.Loader"),
        ("from pyggml.nn import Linear, LSTM", "nn.MultiheadAttention"),
        ("from pyggml.optim.schedules import StepLR", "gamma"),
        ("from pyggml.optim import lr_scheduler", r"optim\.schedules"),
        ("from pyggml import no_grad as off", "not kept|no gradient is kept"),
        ("from pyggml.nn.functional import grid_sample", r"F\.interpolate"),
        ("from pyggml.nn.init import sparse_", r"weight\.copy_"),
    ],
)
def test_an_import_of_a_name_says_what_to_use(line: str, cure: str) -> None:
    with pytest.raises(ImportError, match=rf"there is no .*; use .*({cure})"):
        exec(line)


def test_the_list_is_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    if torch.__version__.partition("+")[0] not in LIST[0]:
        pytest.skip(f"the list is not of torch {torch.__version__}")
    script = Path(__file__).parents[1] / "scripts" / "gen_torch_names.py"
    subprocess.run([sys.executable, "-W", "ignore", script, "--check"], check=True)


X, Y = np.array([[0.7, 0.2], [0.1, 0.5]], np.float32), np.array([[0.4, 0.3], [0.9, 0.6]])
# Calls of NumPy among the cures, with what they are given; PyTorch's calls give the same.
SAME = (
    "acos asin atan acosh asinh atanh arccos sinc signbit cov corrcoef argwhere nonzero det"
    " inverse pinverse cumprod diff trapezoid rot90 matrix_power atan2 copysign fmax fmin fmod"
    " hypot heaviside kron logaddexp2 median float_power deg2rad flipud fliplr"
).split()


@pytest.mark.parametrize("name", SAME)
def test_a_cure_computes_the_same(name: str) -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(AttributeError) as error:
        getattr(pg, name)
    cure = re.split(", without|; along", str(error.value).partition("; use ")[2])[0]
    x = X + 1 if name == "acosh" else X
    more = {"cumprod": "0", "matrix_power": "3"}.get(name, "")
    given = {"x": pg.tensor(x), "a": pg.tensor(x), "b": pg.tensor(Y, "f32"), "p": 3, "shape": (2,)}
    cure = cure.replace("x.numpy())", f"x.numpy(), {more})") if more else cure
    with np.errstate(all="ignore"):
        got = eval(cure, {"np": np, "pg": pg, **given})
    two = "a.numpy()" in cure
    want = getattr(torch, name)(torch.tensor(x), *([torch.tensor(Y).float()] if two else []),
                                *([int(more)] if more else []),
                                *([3] if name == "float_power" else []))  # fmt: skip
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("place", "name", "other"),
    [
        ("x", "atan", "tan"),
        ("pg", "acos", "cos"),
        ("x", "fmax", "max"),
        ("nn", "RReLU", "ReLU"),
        ("nn", "AlphaDropout", "Dropout1d"),
        ("optim", "Rprop", "RMSprop"),
    ],
)
def test_no_cure_is_another_function(place: str, name: str, other: str) -> None:
    """A name that is written alike is the cure of a typo, not of another function."""
    with pytest.raises(AttributeError) as error:
        getattr(PLACES[place], name)
    assert f"{place}.{other}" not in str(error.value)


@pytest.mark.parametrize(
    ("place", "name", "cure"),
    [
        ("pg", "argmx", "pg.argmax"),
        ("pg", "softplus", "F.softplus"),
        ("pg", "asarray", "pg.as_tensor"),
        ("pg", "contiguous", r"x\.contiguous"),
        ("nn", "Liner", "nn.Linear"),
        ("nn", "LSTM", "slow"),
        ("F", "dot", "pg.dot"),
        ("optim", "Adamw", "optim.AdamW"),
        ("module", "train_", "module.train"),
        ("x", "argmx", "x.argmax"),
        ("x", "add_", "copy_"),
        ("pg", "wholly_unknown", r"dir\(pg\)"),
    ],
)
def test_a_name_nearby_or_elsewhere_is_named(place: str, name: str, cure: str) -> None:
    with pytest.raises(AttributeError, match=f"there is no {place}.{name}; use .*{cure}"):
        getattr(PLACES[place], name)


def test_there_are_the_names_that_cures_begin_with() -> None:
    roots = {**PLACES, "ops": pg.ops, "np": np, "train": train}
    for place in INSTEAD.values():
        for cure in place.values():
            root, dot, rest = cure.partition(".")
            if root in roots and dot:
                name = "".join(c if c.isalnum() or c == "_" else " " for c in rest).split()[0]
                assert hasattr(roots[root], name), cure


def test_a_property_of_a_module_raises_its_own_error() -> None:
    class Broken(nn.Module):
        @property
        def width(self) -> int:
            return self.inner.size

    with pytest.raises(AttributeError, match=r"module\.inner"):
        _ = Broken().width


def test_asking_whether_a_name_is_there_imports_nothing() -> None:
    code = (
        "import sys, pyggml; hasattr(pyggml, 'Linear'); hasattr(pyggml, '_x');"
        "print('pyggml.nn' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_cure_of_a_sampler_in_order_keeps_the_order() -> None:
    dataset = data.ArrayDataset(np.arange(10.0), np.arange(10))
    with pytest.raises(AttributeError) as error:
        _ = data.SequentialSampler
    cure = str(error.value).partition("; use ")[2]
    batches = eval(cure, {"data": data, "dataset": dataset, "batch_size": 4})
    assert np.concatenate([y for _, y in batches]).tolist() == list(range(10))


def test_the_cure_of_a_copy_into_a_parameter_writes_it() -> None:
    weight = pg.zeros(2, requires_grad=True)
    with pytest.raises(ValueError, match=r"use dst\.copy_\(src\)") as error:
        pg.ops.cpy(pg.ones(2), weight)
    eval(str(error.value).partition("use ")[2], {"dst": weight, "src": pg.ones(2)})
    assert weight.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("name", ["Dense", "LayerNormalization", "GlobalAveragePooling2D", "Input"])
def test_layers_of_keras(name: str) -> None:
    with pytest.raises(AttributeError, match=f"no nn.{name}; use n"):
        getattr(pg.nn, name)


@pytest.mark.parametrize("name", ["fit", "predict", "evaluate"])
def test_methods_of_keras(name: str) -> None:
    with pytest.raises(AttributeError, match=r"use pg\.train"):
        getattr(pg.nn.Linear(2, 2), name)
