# SPDX-License-Identifier: MIT
"""LoRA beside linear layers of every kind of weight: values, gradients, and what is refused."""

from collections import OrderedDict, namedtuple

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn
from pyggml.errors import AnomalyError, DTypeError, ShapeError
from pyggml.nn.layers import Linear
from pyggml.nn.lora import LoRALinear

OUT, IN, RANK, ALPHA, N = 48, 256, 3, 12.0, 37
TYPES = ["f32", "f16", "bf16", "q8_0", "q4_K", "q6_K"]


def linear(dtype, bias=True):
    """A linear layer with a weight of a type; and the numbers that the weight stands for."""
    pg.seed(3)
    layer = Linear(IN, OUT, bias)
    if dtype != "f32":
        layer.weight = pg.tensor(layer.weight.numpy(), dtype)
    return layer, layer.weight.numpy().astype(np.float32)


def adapted(dtype, **options):
    layer, weight = linear(dtype)
    lora = LoRALinear(layer, RANK, ALPHA, **options)
    rng = np.random.default_rng(1)
    lora.lora_B.weight.copy_(rng.standard_normal((OUT, RANK)).astype(np.float32) * 0.1)
    return lora, weight


def data(seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((N, IN)).astype(np.float32), rng.standard_normal((N, OUT)).astype(
        np.float32
    )


def as_multiplied(x, dtype):
    """The activations as ggml's CPU products of such a weight see them.

    Products of quantised weights quantise the activations, by 32 (q8_0) or, for k-quants, by 256
    with a scale of f32 (ggml-quants.c, quantize_row_q8_K). Those of f16, and of bf16 on a CPU that
    multiplies no bf16, go by panels of f32 where there are many rows, as here.
    """
    if dtype in ("f32", "f16") or (dtype == "bf16" and not pg.bf16_matmuls()):
        return x
    if dtype == "bf16":
        return pg.tensor(x, "bf16").numpy()
    if dtype == "q8_0":
        return pg.tensor(x, "q8_0").numpy()
    blocks = x.reshape(-1, 256)
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(1)[:, None], 1)
    inverse = np.float32(-127.0) / largest
    return (np.minimum(np.rint(inverse * blocks), 127) / inverse).reshape(x.shape)


@pytest.mark.parametrize("dtype", TYPES)
def test_output_and_gradients_are_those_of_pytorch(dtype):
    torch = pytest.importorskip("torch")
    lora, weight = adapted(dtype)
    x, g = data()
    ours = pg.tensor(x, requires_grad=True)
    y = lora(ours)
    values = y.numpy()
    (y * pg.tensor(g)).sum().backward()

    a, b, t = (
        torch.tensor(v, requires_grad=True)
        for v in (lora.lora_A.weight.numpy(), lora.lora_B.weight.numpy(), x)
    )
    beside = ALPHA / RANK * (t @ a.T) @ b.T
    want = t @ torch.tensor(weight).T + torch.tensor(lora.bias.numpy()) + beside
    (want * torch.tensor(g)).sum().backward()
    # The adapter's own products are f32 of f32, and the way back to x multiplies the numbers that
    # the weight stands for: only the forward's frozen product rounds.
    for own, theirs in ((lora.lora_A.weight, a), (lora.lora_B.weight, b)):
        np.testing.assert_allclose(own.grad.numpy(), theirs.grad, rtol=1e-4, atol=2e-4)
    # bf16 weights are multiplied with a gradient rounded to bf16: half of 2^-8, of the largest
    atol = 2**-9 * np.abs(t.grad.numpy()).max() * 4 if dtype == "bf16" else 1e-4
    np.testing.assert_allclose(ours.grad.numpy(), t.grad, rtol=1e-4, atol=atol)
    exact = as_multiplied(x, dtype) @ weight.T + lora.bias.numpy() + beside.detach().numpy()
    np.testing.assert_allclose(values, exact, rtol=1e-4, atol=2e-3)
    # and so the output is near that of f32: a step of 1/127 of the largest of 256 normal numbers,
    # about 3, has a root mean square error of 3 / 127 / sqrt(12) = 0.7 %
    off = np.sqrt(np.mean((values - want.detach().numpy()) ** 2) / np.mean(values**2))
    assert off < 0.01


@pytest.mark.parametrize("dtype", ["f32", "q4_K"])
def test_gradients_are_those_of_differences(dtype):
    """By A and by B: neither changes what the frozen product sees."""
    layer, _ = linear(dtype)
    x = pg.tensor(data()[0][:5])
    rng = np.random.default_rng(2)
    a = rng.standard_normal((RANK, IN)).astype(np.float32) * 0.1
    b = rng.standard_normal((OUT, RANK)).astype(np.float32) * 0.1
    lora = LoRALinear(layer, RANK, ALPHA)

    def fn(a, b):
        lora.lora_A.__dict__["weight"], lora.lora_B.__dict__["weight"] = a, b
        return lora(x)

    # differences of f32 sums of 256 products, by a step of 1e-3
    assert pg.check_grads(fn, a, b) < 1e-2


def test_the_first_output_is_the_layers_own():
    layer, _ = linear("q4_K")
    x = pg.tensor(data()[0])
    before = layer(x).numpy()
    lora = LoRALinear(layer, RANK)
    np.testing.assert_array_equal(lora(x).numpy(), before)
    a = lora.lora_A.weight.numpy()
    assert np.abs(a).max() <= IN**-0.5  # Kaiming-uniform as in PEFT
    assert np.abs(a).max() > 0.9 * IN**-0.5
    assert not lora.lora_B.weight.numpy().any()


def test_scales():
    layer, _ = linear("f32")
    assert LoRALinear(layer, 4, 8.0).scale == 2.0
    assert LoRALinear(layer, 4, np.float32(8.0)).scale == 2.0
    assert LoRALinear(layer, 4, 8.0, use_rslora=True).scale == 4.0


def test_dropout_is_of_the_adapters_input_and_of_training():
    lora, weight = adapted("f32", dropout=0.5)
    x, _ = data()
    lora.eval()
    plain = x @ (weight + lora.delta()).T + lora.bias.numpy()
    np.testing.assert_allclose(lora(pg.tensor(x)).numpy(), plain, rtol=1e-4, atol=1e-4)
    lora.train()
    lora.lora_A.weight.copy_(np.eye(RANK, IN, dtype=np.float32))
    lora.lora_B.weight.copy_(np.eye(OUT, RANK, dtype=np.float32))
    base = x @ weight.T + lora.bias.numpy()
    seen = (lora(pg.tensor(x)).numpy() - base)[:, :RANK] / lora.scale
    ratio = np.round(seen / x[:, :RANK], 2)
    assert set(np.unique(ratio)) == {0.0, 2.0}


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "q8_0"])
def test_merged_equals_unmerged(dtype):
    lora, _ = adapted(dtype)
    x, _ = data()
    want = lora(pg.tensor(x)).numpy()
    exact = lora.weight.numpy().astype(np.float32) + lora.delta()
    model = nn.Sequential(lora)
    assert nn.merge_lora(model) == ["0"]
    merged = model[0]
    assert type(merged) is Linear
    assert merged.weight.dtype.name == dtype
    assert not merged.weight.requires_grad
    # what a weight is rounded to: half a step of its type, beside the largest of the block
    step = {"f32": 2**-23, "f16": 2**-10, "bf16": 2**-7, "q8_0": 1 / 127}[dtype]
    worst = np.abs(merged.weight.numpy().astype(np.float32) - exact).max()
    assert worst <= 0.51 * step * np.abs(exact).max() + 1e-7
    off = merged(pg.tensor(x)).numpy() - want
    assert np.sqrt(np.mean(off**2) / np.mean(want**2)) < step + 1e-6


def test_merged_into_f32_keeps_all_of_the_adapter():
    lora, weight = adapted("q4_K")
    x, _ = data()
    want = as_multiplied(x, "f32") @ (weight + lora.delta()).T + lora.bias.numpy()
    model = nn.Sequential(lora)
    nn.merge_lora(model, dtype="f32")
    np.testing.assert_allclose(model(pg.tensor(x)).numpy(), want, rtol=1e-4, atol=1e-4)
    assert [name for name, _ in model.named_parameters()] == ["0.weight", "0.bias"]


def test_a_weight_that_layers_share_gets_each_ones_adapter():
    one, two = Linear(4, 4), Linear(4, 4)
    two.weight = one.weight
    model = nn.Sequential(one, two)
    nn.apply_lora(model, rank=2, targets="all-linear")
    for i in (0, 1):
        model[i].lora_B.weight.copy_(np.full((4, 2), 1.0 + i, np.float32))
    x = pg.tensor(np.eye(4, dtype=np.float32))
    want = model(x).numpy()
    nn.merge_lora(model)
    np.testing.assert_allclose(model(x).numpy(), want, rtol=1e-5, atol=1e-5)


def test_adapters_that_are_not_finite_are_not_merged():
    model = nn.Sequential(Linear(32, 4), Linear(4, 4))
    nn.apply_lora(model, rank=2, targets="all-linear")
    model[1].lora_A.weight.copy_(np.full((2, 4), np.nan, np.float32))
    before = model[0].weight.numpy()
    with pytest.raises(ValueError, match="that of 1 holds NaN or Inf"):
        nn.merge_lora(model)
    assert isinstance(model[0], LoRALinear)
    np.testing.assert_array_equal(model[0].weight.numpy(), before)


class Nested(nn.Module):
    """Layers in a list, a dict, a tuple, twice, and in a Sequential."""

    def __init__(self):
        self.blocks = [Linear(4, 4), Linear(4, 4)]
        self.named = {"one": Linear(4, 4)}
        self.pair = (Linear(4, 4), nn.GELU())
        self.again = self.blocks[0]
        self.stack = nn.Sequential(Linear(4, 4), nn.ReLU())

    def forward(self, x):
        for layer in (*self.blocks, self.named["one"], *self.pair, self.again, self.stack):
            x = layer(x)
        return x


def test_layers_are_found_wherever_they_are():
    model = Nested()
    x = pg.tensor(np.ones((2, 4), np.float32))
    before, names = model(x).numpy(), [name for name, _ in model.named_parameters()]
    paths = nn.apply_lora(model, rank=2, targets="all-linear")
    assert paths == ["blocks.0", "blocks.1", "named.one", "pair.0", "again", "stack.0"]
    assert model.again is model.blocks[0]  # one adapter for one layer
    assert isinstance(model.pair, tuple)
    np.testing.assert_array_equal(model(x).numpy(), before)
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    assert trained == [f"{p}.lora_{ab}.weight" for p in paths if p != "again" for ab in "AB"]
    for _, p in model.named_parameters():
        if p.requires_grad:
            p.copy_(np.full(p.shape, 0.5, np.float32))
    changed = model(x).numpy()
    assert np.abs(changed - before).max() > 1
    state = nn.lora_state_dict(model)
    nn.merge_lora(model)
    np.testing.assert_allclose(model(x).numpy(), changed, rtol=1e-5)
    assert [name for name, _ in model.named_parameters()] == names
    other = Nested()
    nn.apply_lora(other, rank=2, targets="all-linear")
    nn.load_lora_state_dict(other, state)
    assert nn.lora_state_dict(other).keys() == state.keys()
    assert nn.remove_lora(other) == paths
    assert [name for name, _ in other.named_parameters()] == names


Two = namedtuple("Two", "left right")


class Odd(nn.Module):
    """Layers in a named tuple and an ordered dict; one that is called by a private name."""

    def __init__(self):
        self.two = Two(Linear(4, 4), Linear(4, 4))
        self.ordered = OrderedDict(one=Linear(4, 4))
        self.last = Linear(4, 4)
        self._calls = [self.last]

    def forward(self, x):
        return self._calls[0](self.ordered["one"](self.two.right(self.two.left(x))))


def test_what_holds_layers_keeps_its_kind():
    model, x = Odd(), pg.tensor(np.ones((2, 4), np.float32))
    before = model(x).numpy()
    paths = nn.apply_lora(model, rank=2, targets="all-linear")
    assert paths == ["two.0", "two.1", "ordered.one", "last"]
    assert (type(model.two), type(model.ordered)) == (Two, OrderedDict)
    assert model._calls[0] is model.last
    model(x).sum().backward()  # by all of them
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)
    nn.remove_lora(model)
    np.testing.assert_array_equal(model(x).numpy(), before)


class Doubled(Linear):
    def forward(self, x):
        return super().forward(x) * 2.0


def test_a_layer_with_a_forward_of_its_own_is_refused():
    model = nn.Sequential(Doubled(4, 4), Linear(4, 4))
    with pytest.raises(ValueError, match="Doubled"):
        nn.apply_lora(model, rank=2, targets="all-linear")
    assert all(p.requires_grad for p in model.parameters())
    assert nn.apply_lora(model, rank=2, targets="1") == ["1"]
    with pytest.raises(TypeError, match="must be a Linear itself; got Doubled"):
        LoRALinear(Doubled(4, 4))


def test_targets_are_ends_of_paths_or_globs():
    def chosen(targets):
        return nn.apply_lora(Nested(), rank=2, targets=targets)

    assert chosen("one") == ["named.one"]
    assert chosen(["blocks.1", "pair.0"]) == ["blocks.1", "pair.0"]
    assert chosen("blocks.*") == ["blocks.0", "blocks.1"]
    assert chosen(["*0"]) == ["blocks.0", "pair.0", "stack.0"]


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"targets": ("q_proj", "one")}, ValueError, r"'q_proj' matches none: .* end in 0, 1, aga"),
        ({"targets": ()}, TypeError, "targets must be names"),
        ({"targets": [1]}, TypeError, "targets must be names"),
        ({"targets": None}, TypeError, "targets must be names of layers; got None"),
        ({"targets": "one", "rank": 0}, ValueError, "rank must be a whole number >= 1"),
        ({"targets": "one", "rank": 5}, ValueError, "at most the larger width of named.one, 4"),
        ({"targets": "one", "alpha": 0}, ValueError, "alpha must be"),
        ({"targets": "one", "alpha": float("nan")}, ValueError, "alpha must be"),
        ({"targets": "one", "alpha": 1e39}, ValueError, "alpha must be"),
        ({"targets": "one", "alpha": 1e-50}, ValueError, "alpha must be"),
        ({"targets": "one", "alpha": 10**400}, ValueError, "alpha must be"),
        ({"targets": "one", "alpha": "16"}, TypeError, "alpha must be a number; got '16'"),
        (
            {"targets": "one", "use_rslora": "no"},
            TypeError,
            "use_rslora must be True or False; got 'no'",
        ),
        ({"targets": "one", "dropout": 1.0}, ValueError, "p must be a finite number >= 0 and < 1"),
    ],
)
def test_mistakes_change_nothing(options, error, said):
    model = Nested()
    with pytest.raises(error, match=said):
        nn.apply_lora(model, **options)
    assert not nn.lora.adapters_of(model)
    assert all(p.requires_grad for p in model.parameters())


def test_adapters_are_not_stacked_nor_missing():
    model = Nested()
    for use in (nn.merge_lora, nn.remove_lora, nn.lora_state_dict):
        with pytest.raises(ValueError, match="apply_lora"):
            use(model)
    nn.apply_lora(model, rank=2, targets="one")
    with pytest.raises(ValueError, match=r"got 1, .* named.one"):
        nn.apply_lora(model, rank=2, targets="one")
    with pytest.raises(ValueError, match="adapted already"):
        LoRALinear(model.named["one"])
    with pytest.raises(TypeError, match="must be a Linear"):
        LoRALinear(nn.GELU())
    with pytest.raises(TypeError, match="model must be a Module"):
        nn.apply_lora(Nested, targets="one")
    state = nn.lora_state_dict(model)
    wrong = {name: array[:1] for name, array in state.items()}
    with pytest.raises(ShapeError, match=r"lora_A.weight .*\(2, 4\)"):
        nn.load_lora_state_dict(model, wrong)
    with pytest.raises(KeyError, match=r"missing named.one.lora_A.weight"):
        nn.load_lora_state_dict(model, {})
    with pytest.raises(ShapeError, match="rows of q8_0 must be multiples of 32"):
        nn.merge_lora(model, "q8_0")
    with pytest.raises(DTypeError, match="must be a float or quantised; got i32"):
        nn.merge_lora(model, "i32")


def test_what_is_frozen_has_no_gradient():
    lora, _ = adapted("q4_K")
    with pytest.raises(DTypeError, match=r"q4_K, .*apply_lora"):
        lora.weight.requires_grad = True
    with pytest.raises(DTypeError, match=r"unfreeze: .*q4_K"):
        lora.unfreeze()
    assert not lora.bias.requires_grad  # nothing has changed
    names = [name for name, _ in lora.named_parameters()]
    assert names == ["weight", "bias", "lora_A.weight", "lora_B.weight"]
    assert lora.num_parameters(trainable_only=True) == RANK * (IN + OUT)


def test_a_load_that_fails_in_the_middle_changes_nothing():
    model = nn.Sequential(Linear(4, 4), Linear(4, 4))
    nn.apply_lora(model, rank=2, targets="all-linear")
    before = nn.lora_state_dict(model)
    held = pg.ops.log(model[1].lora_B.weight * 0.0 - 1.0)
    with pg.detect_anomaly(), pytest.raises(AnomalyError):
        nn.load_lora_state_dict(model, {name: array + 1.0 for name, array in before.items()})
    for name, array in nn.lora_state_dict(model).items():
        np.testing.assert_array_equal(array, before[name])
    del held
