# SPDX-License-Identifier: MIT
"""Adapters beyond linear layers, DoRA, starts by the SVD, and several adapters as one: as PEFT."""

import logging

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn
from pyggml.nn.lora import Factors, adapters_of, combine_lora
from pyggml.nn.mlp import SwiGLUMLP

RANK, ALPHA = 3, 6.0
RNG = np.random.default_rng(0)
IMAGES = RNG.standard_normal((2, 3, 7, 6)).astype(np.float32)
ROWS = RNG.standard_normal((5, 32)).astype(np.float32)
IDS = np.array([[1, 4, 4], [0, 9, 2]], np.int32)
KINDS = {
    "linear": (lambda: nn.Linear(32, 20), ROWS),
    "embedding": (lambda: nn.Embedding(10, 6), IDS),
    "convolution": (lambda: nn.Conv2d(3, 8, 3, stride=2, padding=1), IMAGES),
}


def filled(layer, seed=3):
    """Give the trained tensors other numbers, so that nothing is zero."""
    rng = np.random.default_rng(seed)
    for value in layer.factors().values():
        drawn = value.numpy() + 0.3 * rng.standard_normal(value.shape)
        value.copy_(drawn.astype(np.float32))
    return layer


def twin(name, **options):
    """Our adapted layer, and PEFT's with the same numbers."""
    torch, peft = pytest.importorskip("torch"), pytest.importorskip("peft")
    pg.seed(1)
    make, _ = KINDS[name]
    model = nn.Sequential(make())
    plain = model[0]
    if name == "linear":
        there = torch.nn.Linear(32, 20)
    elif name == "embedding":
        there = torch.nn.Embedding(10, 6)
    else:
        there = torch.nn.Conv2d(3, 8, 3, 2, 1)
    with torch.no_grad():
        there.weight.copy_(torch.tensor(plain.weight.numpy()))
        if name != "embedding":
            there.bias.copy_(torch.tensor(plain.bias.numpy()))
    nn.apply_lora(model, RANK, ALPHA, targets="0", **options)
    config = peft.LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=["0"], **options)
    return model, peft.get_peft_model(torch.nn.Sequential(there), config)


def parts(layer, name):
    """The trained tensors of PEFT's layer, in the order of ours, and how theirs are turned."""
    if name == "embedding":
        return [layer.lora_embedding_A["default"], layer.lora_embedding_B["default"]]
    found = [layer.lora_A["default"].weight, layer.lora_B["default"].weight]
    if hasattr(layer, "lora_magnitude_vector") and len(layer.lora_magnitude_vector):
        found.append(layer.lora_magnitude_vector["default"].weight)
    return found


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("linear", {"use_dora": True}),
        ("linear", {"use_dora": True, "use_rslora": True}),
        ("embedding", {}),
        ("convolution", {}),
        ("convolution", {"use_dora": True}),
    ],
)
def test_values_and_gradients_are_pefts(name, options):
    model, there = twin(name, **options)
    torch = pytest.importorskip("torch")
    ours, theirs = filled(model[0]), there.base_model.model[0]
    turned = name == "embedding"
    for i, (own, other) in enumerate(
        zip(ours.factors().values(), parts(theirs, name), strict=True)
    ):
        value = own.numpy().T if turned and i == 0 else own.numpy().reshape(other.shape)
        other.data = torch.tensor(np.ascontiguousarray(value))
    x = KINDS[name][1]
    y = ours(pg.tensor(x))
    want = there(torch.tensor(x).long() if turned else torch.tensor(x))
    g = np.random.default_rng(5).standard_normal(want.shape).astype(np.float32)
    np.testing.assert_allclose(y.numpy(), want.detach().numpy(), rtol=1e-5, atol=2e-5)
    (y * pg.tensor(g)).sum().backward()
    (want * torch.tensor(g)).sum().backward()
    for i, (own, other) in enumerate(
        zip(ours.factors().values(), parts(theirs, name), strict=True)
    ):
        grad = other.grad.numpy().T if turned and i == 0 else other.grad.numpy()
        np.testing.assert_allclose(own.grad.numpy(), grad.reshape(own.shape), rtol=1e-4, atol=1e-4)
    nn.merge_lora(model)
    np.testing.assert_allclose(model(pg.tensor(x)).numpy(), y.numpy(), rtol=1e-4, atol=2e-5)


def test_dora_drops_as_peft_does():
    """What is dropped still passes the frozen weight once, and its scaled part is dropped."""
    model, _ = twin("linear", use_dora=True)
    layer = filled(model[0])
    base = layer.plain()
    mask = (np.random.default_rng(1).random(ROWS.shape) < 0.5) * np.float32(2)
    layer.dropout.forward = lambda x: x * pg.tensor(mask)
    a, b = layer.lora_A.weight.numpy(), layer.lora_B.weight.numpy()
    total = layer.weight.numpy() + layer.product(a, b)
    factor = layer.lora_magnitude_vector.weight.numpy() / np.linalg.norm(total, axis=1)
    dropped = ROWS * mask
    want = base(pg.tensor(ROWS)).numpy() + (factor - 1) * (dropped @ layer.weight.numpy().T)
    want += factor * (dropped @ (total - layer.weight.numpy()).T)
    np.testing.assert_allclose(layer(pg.tensor(ROWS)).numpy(), want, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("dtype", ["f32", "q8_0"])
def test_doras_first_output_is_the_layers_own(dtype):
    layer = nn.Linear(32, 20)
    layer.weight = pg.tensor(layer.weight.numpy(), dtype)
    x = pg.tensor(ROWS)
    before = layer(x).numpy()
    after = nn.LoRALinear(layer, 2, use_dora=True)(x).numpy()
    np.testing.assert_allclose(after, before, rtol=1e-6, atol=1e-6)


def test_experts_have_an_adapter_each():
    pg.seed(2)
    model = nn.MixtureOfExperts(8, 12, experts=5, used=2)
    x = pg.tensor(np.random.default_rng(1).standard_normal((7, 8)).astype(np.float32))
    before = model(x).numpy()
    paths = nn.apply_lora(model, 2, targets="experts.*")
    assert paths == ["experts.gate_proj", "experts.up_proj", "experts.down_proj"]
    np.testing.assert_array_equal(model(x).numpy(), before)
    for layer in adapters_of(model).values():
        filled(layer)
    y = model(x)
    y.sum().backward()
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)
    down = model.experts.down_proj
    delta = down.delta()
    for e in range(5):
        own = down.scale * down.lora_B.weight.numpy()[e] @ down.lora_A.weight.numpy()[e]
        np.testing.assert_allclose(delta[e], own, rtol=1e-5, atol=1e-6)
    nn.merge_lora(model)
    np.testing.assert_allclose(model(x).numpy(), y.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["gate_proj", "down_proj"])
def test_gradients_of_experts_are_those_of_differences(kind):
    pg.seed(2)
    model = nn.MixtureOfExperts(8, 12, experts=3, used=2)
    nn.apply_lora(model, 2, targets=f"experts.{kind}")
    x = pg.tensor(np.random.default_rng(1).standard_normal((4, 8)).astype(np.float32))
    layer = filled(getattr(model.experts, kind))
    a, b = layer.lora_A.weight.numpy(), layer.lora_B.weight.numpy()

    def fn(a, b):
        layer.lora_A.__dict__["weight"], layer.lora_B.__dict__["weight"] = a, b
        return model(x)

    assert pg.check_grads(fn, a, b) < 1e-2


@pytest.mark.parametrize("start", ["pissa", "pissa_niter_200"])
def test_pissa_is_pefts(start):
    model, there = twin("linear", init_lora_weights=start)
    before = KINDS["linear"][0]
    ours, theirs = model[0], there.base_model.model[0]
    np.testing.assert_allclose(
        ours.product(ours.lora_A.weight.numpy(), ours.lora_B.weight.numpy()),
        (theirs.get_delta_weight("default")).detach().numpy(),
        atol=2e-4,
    )
    np.testing.assert_allclose(ours.weight.numpy(), theirs.base_layer.weight.numpy(), atol=2e-4)
    pg.seed(1)
    np.testing.assert_allclose(
        model(pg.tensor(ROWS)).numpy(), before()(pg.tensor(ROWS)).numpy(), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("name", KINDS)
def test_pissa_takes_the_largest_parts_of_every_kind(name):
    pg.seed(1)
    model = nn.Sequential(KINDS[name][0]())
    x = pg.tensor(KINDS[name][1])
    before, norm = model(x).numpy(), np.linalg.norm(model[0].weight.numpy())
    nn.apply_lora(model, RANK, ALPHA, targets="0", init_lora_weights="pissa")
    np.testing.assert_allclose(model(x).numpy(), before, rtol=1e-4, atol=1e-5)
    assert np.linalg.norm(model[0].weight.numpy()) < 0.9 * norm


def rounded(dtype="q4_0", seed=4):
    """A layer whose weight is rounded, and the weight before."""
    pg.seed(seed)
    model = nn.Sequential(nn.Linear(256, 64))
    original = model[0].weight.numpy()
    model[0].weight = pg.tensor(original, dtype)
    return model, original


@pytest.mark.parametrize(("start", "rounds"), [("loftq", 1), ("loftq", 4), ("pissa", 1)])
def test_a_start_takes_up_what_rounding_took(start, rounds):
    model, original = rounded()
    base = model[0].weight.numpy()
    nn.apply_lora(
        model, 16, 4.0, targets="0", init_lora_weights=start, loftq_iter=rounds,
        originals={"0": original},
    )  # fmt: skip
    layer = model[0]
    off = np.linalg.norm(layer.weight.numpy() + layer.delta() - original)
    # a random matrix has no large parts that PiSSA could take out of the rounding
    most = {"pissa": 0.95, "loftq": 0.85 if rounds == 1 else 0.8}[start]
    assert off < most * np.linalg.norm(base - original)
    unchanged = np.array_equal(layer.weight.numpy(), base)
    assert unchanged is (start == "loftq" and rounds == 1)
    assert layer.weight.dtype.name == "q4_0"
    assert layer.base_rounded is not unchanged


def test_one_round_of_loftq_is_the_best_of_its_rank():
    """As PEFT's low_rank_decomposition of the difference, with our scale taken out."""
    torch = pytest.importorskip("torch")
    utils = pytest.importorskip("peft.utils.loftq_utils")
    model, original = rounded()
    difference = original - model[0].weight.numpy()
    want = utils._low_rank_decomposition(torch.tensor(difference), 5)
    nn.apply_lora(
        model, 5, 10.0, targets="0", init_lora_weights="loftq", originals={"0.weight": original}
    )
    np.testing.assert_allclose(
        model[0].delta(), (want["L"] @ want["R"]).numpy(), rtol=1e-3, atol=1e-6
    )


# A weight of the right shape, of another model.
OTHER = np.random.default_rng(0).normal(size=(64, 256))


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"init_lora_weights": "svd"}, ValueError, "init_lora_weights"),
        ({"init_lora_weights": "pissa"}, ValueError, "originals"),
        ({"init_lora_weights": "loftq"}, ValueError, "originals"),
        ({"init_lora_weights": "loftq", "originals": {"0": np.zeros((2, 2))}}, ValueError, "shape"),
        ({"init_lora_weights": "loftq", "originals": {"0": OTHER}}, ValueError, "originals"),
        ({"init_lora_weights": "pissa", "originals": {"0": OTHER}}, ValueError, "originals"),
        ({"init_lora_weights": "pissa", "originals": 3}, TypeError, "originals"),
        ({"originals": {}}, ValueError, "originals"),
        ({"loftq_iter": 0}, ValueError, "loftq_iter"),
        ({"rank_pattern": {"1": 3}}, ValueError, "rank_pattern"),
        ({"rank_pattern": 3}, TypeError, "rank_pattern"),
        ({"alpha_pattern": {"0": -1.0}}, ValueError, "alpha"),
        ({"use_dora": 1}, TypeError, "use_dora"),
    ],
)
def test_mistakes_change_nothing(options, error, said):
    model, _ = rounded()
    with pytest.raises(error, match=said):
        nn.apply_lora(model, 2, targets="0", **options)
    assert type(model[0]) is nn.Linear


def test_what_cannot_be_adapted():
    depthwise = nn.Sequential(nn.Conv2d(4, 4, 3, groups=4), nn.Embedding(4, 4))
    with pytest.raises(ValueError, match="groups=1"):
        nn.apply_lora(depthwise, 2, targets="0")
    with pytest.raises(ValueError, match="use_dora"):
        nn.apply_lora(depthwise, 2, targets="1", use_dora=True)
    with pytest.raises(ValueError, match="loftq"):
        nn.apply_lora(depthwise, 2, targets="1", init_lora_weights="loftq")


def test_loftq_leaves_what_is_not_rounded():
    model = nn.Sequential(nn.Linear(256, 64), nn.Linear(64, 8))
    original = model[0].weight.numpy()
    model[0].weight = pg.tensor(original, "q4_K")
    nn.apply_lora(
        model, 4, targets="all-linear", init_lora_weights="loftq", originals={"0": original}
    )
    assert model[0].lora_B.weight.numpy().any()
    assert not model[1].lora_B.weight.numpy().any()


def test_the_norms_of_dora_are_copied_with_the_matrices():
    model = nn.Sequential(nn.Linear(8, 6))
    nn.apply_lora(model, 2, targets="0", use_dora=True)
    filled(model[0])
    state, x = nn.lora_state_dict(model), pg.tensor(ROWS[:, :8].copy())
    want = model(x).numpy()
    assert sorted(state) == [
        "0.lora_A.weight", "0.lora_B.weight", "0.lora_magnitude_vector.weight",
    ]  # fmt: skip
    nn.remove_lora(model)
    nn.apply_lora(model, 2, targets="0", use_dora=True)
    nn.load_lora_state_dict(model, state)
    np.testing.assert_array_equal(model(x).numpy(), want)


def test_patterns_give_layers_other_ranks_and_scales():
    model = nn.Sequential(nn.Linear(8, 8), SwiGLUMLP(8, 16), nn.Linear(8, 8))
    nn.apply_lora(
        model, 2, 4.0, targets="all-linear", rank_pattern={"up_proj": 5, "1.*": 3},
        alpha_pattern={"2": 10.0},
    )  # fmt: skip
    found = {path: (layer.rank, layer.scale) for path, layer in adapters_of(model).items()}
    assert found["0"] == (2, 2.0)
    assert found["1.up_proj"] == (5, 4 / 5)
    assert found["1.gate_proj"] == found["1.down_proj"] == (3, 4 / 3)
    assert found["2"] == (2, 5.0)


@pytest.mark.parametrize("way", ["cat", "linear", "svd"])
@pytest.mark.parametrize("name", ["linear", "embedding"])
def test_several_adapters_are_one_as_in_peft(way, name):
    model, there = twin(name)
    torch, peft = pytest.importorskip("torch"), pytest.importorskip("peft")
    layer, theirs = model[0], there.base_model.model[0]
    there.add_adapter("other", peft.LoraConfig(r=RANK, lora_alpha=12, target_modules=["0"]))
    adapters = []
    for seed, (key, scale) in enumerate((("default", ALPHA / RANK), ("other", 12 / RANK))):
        filled(layer, seed)
        a, b = layer.lora_A.weight.numpy(), layer.lora_B.weight.numpy()
        adapters.append({"0": Factors(a, b, scale)})
        if name == "embedding":
            theirs.lora_embedding_A[key].data = torch.tensor(np.ascontiguousarray(a.T))
            theirs.lora_embedding_B[key].data = torch.tensor(b)
        else:
            theirs.lora_A[key].weight.data = torch.tensor(a)
            theirs.lora_B[key].weight.data = torch.tensor(b)
    there.base_model.add_weighted_adapter(
        ["default", "other"], [0.7, -0.4], "both", combination_type=way
    )
    nn.remove_lora(model)
    found = combine_lora({"0": model[0]}, adapters, [0.7, -0.4], way)["0"]
    kind = type(layer)
    left, right = kind.split(found.a, found.b)
    want = theirs.get_delta_weight("both").detach().numpy()
    np.testing.assert_allclose(found.scale * left @ right, want, rtol=1e-4, atol=1e-5)
    assert left.shape[-1] == {"cat": min(2 * RANK, max(want.shape))}.get(way, RANK)


def test_adapters_that_do_not_combine():
    layer = nn.Linear(4, 4)
    one = {"0": Factors(np.ones((1, 4), "f4"), np.ones((4, 1), "f4"), 1.0)}
    two = {"0": Factors(np.ones((2, 4), "f4"), np.ones((4, 2), "f4"), 1.0)}
    with pytest.raises(ValueError, match="weights"):
        combine_lora({"0": layer}, [one, two], [1.0])
    with pytest.raises(ValueError, match="rank"):
        combine_lora({"0": layer}, [one, two], [1.0, 1.0], "linear")
    dora = {"0": Factors(np.ones((1, 4), "f4"), np.ones((4, 1), "f4"), 1.0, np.ones(4, "f4"))}
    with pytest.raises(ValueError, match="DoRA"):
        combine_lora({"0": layer}, [dora], [1.0])


def test_a_merge_that_rounding_destroys_is_told(caplog):
    """A small change is below half a step of tq1_0, whose numbers are -d, 0 and d."""
    model, _ = rounded("tq1_0")
    nn.apply_lora(model, 2, targets="0")
    model[0].lora_B.weight.copy_(np.full((64, 2), 1e-3, np.float32))
    with caplog.at_level(logging.WARNING, "pyggml.nn"):
        nn.merge_lora(model, importance={"0": np.ones(256, np.float32)})
    assert "1 of 1 layers" in caplog.text
    caplog.clear()
    model, _ = rounded("q8_0")
    nn.apply_lora(model, 2, targets="0")
    model[0].lora_B.weight.copy_(np.full((64, 2), 0.1, np.float32))
    with caplog.at_level(logging.WARNING, "pyggml.nn"):
        nn.merge_lora(model)
    assert not caplog.text


def test_importance_weighs_the_columns_of_a_merge():
    """The columns that matter keep more of what was learnt."""
    off = []
    for importance in (None, {"0": np.where(np.arange(256) % 32 < 4, 100.0, 0.01)}):
        model, _ = rounded("q4_K")
        nn.apply_lora(model, 4, targets="0")
        filled(model[0])
        want = model[0].weight.numpy() + model[0].delta()
        nn.merge_lora(model, importance=importance)
        off.append(np.linalg.norm((model[0].weight.numpy() - want)[:, np.arange(256) % 32 < 4]))
    assert off[1] < 0.8 * off[0]
    model, _ = rounded("q4_K")
    nn.apply_lora(model, 4, targets="0")
    with pytest.raises(ValueError, match="importance"):
        nn.merge_lora(model, importance={"0": np.ones(3)})
