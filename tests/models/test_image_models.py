# SPDX-License-Identifier: MIT
"""MLP, CNN and ResNet beyond parity: sizes, normalisation, probabilities, training, mistakes."""

from __future__ import annotations

import numpy as np
import pytest

import pyggml as pg
from pyggml.data import ArrayImages, ImageDataset, Loader
from pyggml.models import CNN, MLP, CNNConfig, MLPConfig, ResNet, ResNetConfig, build
from pyggml.optim import AdamW
from pyggml.train import Trainer

RNG = np.random.default_rng(4)


def images(*shape):
    return RNG.random(shape).astype(np.float32)


def test_published_sizes():
    """torchvision's resnet18 and resnet34; He et al.'s resnet-20 and -56 to two digits."""
    counts = {"resnet-18": 11_689_512, "resnet-34": 21_797_672}
    for name, count in counts.items():
        assert ResNet(ResNetConfig.preset(name)).num_parameters() == count
    assert ResNet(ResNetConfig.preset("resnet-20")).num_parameters() == pytest.approx(0.27e6, 0.02)
    assert ResNet(ResNetConfig.preset("resnet-56")).num_parameters() == pytest.approx(0.85e6, 0.02)


def test_torchvisions_names():
    state = ResNet(ResNetConfig.preset("resnet-18")).state_dict()
    assert len(state) == 122
    assert state["layer2.0.downsample.1.running_var"].shape == (128,)
    assert state["layer4.1.conv2.weight"].shape == (512, 512, 3, 3)
    assert state["bn1.num_batches_tracked"].shape == ()
    assert state["conv1.weight"].shape == (64, 3, 7, 7)
    assert state["fc.weight"].shape == (1000, 512)


@pytest.mark.parametrize("arch", ["mlp", "cnn", "resnet"])
def test_presets_build(arch):
    from pyggml.models import MODELS

    kind = MODELS[arch].config_class
    for name in kind.PRESETS:
        config = kind.preset(name, classes=3)
        assert config.classes == 3
        assert kind.from_dict(config.to_dict()) == config
        channels = getattr(config, "channels", None)
        if not name.startswith("resnet-") or name == "resnet-8":
            shape = (2, config.inputs) if arch == "mlp" else (2, channels, 8, 8)
            shape = (*shape[:2], *config.shape) if arch == "cnn" else shape
            assert build(arch, config)(pg.tensor(images(*shape))).shape == (2, 3)


@pytest.mark.parametrize(
    "model",
    [
        MLP(MLPConfig(inputs=32, classes=3, mean=0.4, std=0.3)),
        CNN(CNNConfig(channels=2, size=4, widths=(4,), classes=3, mean=(0.4, 0.1), std=(0.3, 2))),
        ResNet(
            ResNetConfig(
                channels=2, widths=(4,), blocks=(1,), classes=3, mean=(0.4, 0.1), std=(0.3, 2)
            )
        ),
    ],
    ids=lambda m: m.arch,
)
def test_the_model_normalises_its_images(model):
    """What it says is what a model without says of images that were normalised before."""
    x = images(3, 2, 4, 4)
    plain = build(model.arch, {**model.config.to_dict(), "mean": None, "std": None})
    plain.load_state_dict(model.state_dict())
    config = model.config
    mean, std = (np.array(v, np.float32) for v in (config.mean, config.std))
    if model.arch == "mlp":
        mean, std = mean[0], std[0]
    else:
        mean, std = mean.reshape(1, -1, 1, 1), std.reshape(1, -1, 1, 1)
    want = plain.predict_proba(pg.tensor((x - mean) / std)).numpy()
    got = model.predict_proba(pg.tensor(x)).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(got.sum(-1), 1, rtol=1e-5)
    assert model.training


def test_dropout_is_off_for_probabilities():
    model = CNN(CNNConfig(size=8, dropout=0.5, norm="none"))
    x = pg.tensor(images(2, 1, 8, 8))
    once, again = (model.predict_proba(x).numpy() for _ in range(2))
    np.testing.assert_array_equal(once, again)
    assert np.abs(model(x).numpy() - model(x).numpy()).max() > 0


def loader(batch_size=8):
    labels = np.arange(48) % 3
    x = np.random.default_rng(0).random((48, 8, 8, 1)) * 0.3 + labels[:, None, None, None] / 3
    data = ImageDataset(ArrayImages((x * 255).clip(0, 255).astype(np.uint8), labels))
    return Loader(data, batch_size, seed=1)


def trainer(folder, steps, model=None):
    pg.seed(2)
    model = model or CNN(CNNConfig(size=8, widths=(4,), hidden=8, classes=3))
    return Trainer(
        model,
        loader(),
        None,
        AdamW(model.parameters(), lr=1e-2),
        checkpoint_dir=folder,
        schedule=lambda step: 1e-2,
        steps=steps,
        save_every=0,
    )


def test_a_resumed_run_has_the_same_running_statistics(tmp_path):
    whole = trainer(tmp_path / "a", 6)
    whole.fit()
    trainer(tmp_path / "b", 3).fit()
    resumed = trainer(tmp_path / "b", 6)
    assert resumed.resume() == 3
    resumed.fit()
    state = whole.model.state_dict()
    assert state["stages.0.norm.num_batches_tracked"] == 6
    for key, array in resumed.model.state_dict().items():
        np.testing.assert_array_equal(array, state[key], err_msg=key)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: CNN(CNNConfig(size=8))(pg.ones((1, 8, 8))), pg.ShapeError, "must be .B, C, H, W."),
        (lambda: CNN(CNNConfig(size=8))(pg.ones((1, 3, 8, 8))), pg.ShapeError, "with C=1 channels"),
        (lambda: CNN(CNNConfig(size=8))(pg.ones((1, 1, 9, 8))), pg.ShapeError, "size .8, 8.; got"),
        (
            lambda: CNN(CNNConfig(size=8))(pg.zeros((1, 1, 8, 8), dtype="i32")),
            pg.DTypeError,
            "must be f32",
        ),
        (lambda: CNN(CNNConfig(size=8))([1.0]), TypeError, "x must be a Tensor; got list"),
        (lambda: CNNConfig(size=8, widths=(1, 1, 1, 1)), ValueError, "4 stages halve the image as"),
        (lambda: CNNConfig(size=(8, 8, 8)), ValueError, "size must be one number or two"),
        (lambda: CNNConfig(kernel=2), ValueError, "kernel must be odd"),
        (lambda: CNNConfig(widths=()), ValueError, "widths must have 1 or more"),
        (lambda: CNNConfig(hidden=-1), ValueError, "hidden must be a whole number >= 0"),
        (lambda: CNNConfig(norm="layer"), ValueError, "norm must be one of batch, group, none"),
        (lambda: CNNConfig(labels=("a", "b")), ValueError, "labels must be 10 names, as many as"),
        (lambda: CNNConfig(classes=3, labels=("a", "b", "a")), ValueError, "got a more than once"),
        (lambda: CNNConfig(labels="0123456789"), ValueError, "labels must be 10 names"),
        (lambda: CNNConfig(mean=(0.5,)), ValueError, "give mean and std both, or neither"),
        (
            lambda: CNNConfig(mean=(0.5,), std=(0,)),
            ValueError,
            r"std\[0\] must be a finite number > 0",
        ),
        (lambda: MLPConfig(inputs=0), ValueError, "inputs must be a whole number >= 1"),
        (lambda: MLPConfig(hidden=8), TypeError, "hidden must be a list"),
        (lambda: MLPConfig(hidden=(8, 0)), ValueError, r"hidden\[1\] must be a whole number >= 1"),
        (lambda: MLPConfig(activation="swish"), ValueError, "activation must be one of relu, gelu"),
        (
            lambda: MLP(MLPConfig(inputs=9))(pg.ones((2, 8))),
            pg.ShapeError,
            "with 9 numbers in each",
        ),
        (lambda: MLPConfig(dropout=1.0), ValueError, "p must be a finite number >= 0 and < 1"),
        (lambda: ResNetConfig(blocks=(1,)), ValueError, "widths and blocks must be as many"),
        (lambda: ResNetConfig(stem="none"), ValueError, "stem must be one of small, large"),
        (lambda: ResNet(ResNetConfig())(pg.ones((1, 1, 8, 8))), pg.ShapeError, "with C=3 channels"),
        (lambda: build("cnn", "huge"), ValueError, "preset must be one of tiny, digits, mnist"),
        (lambda: build("cnn", {"depth": 3}), ValueError, "keys must be among .*; got .'depth'."),
    ],
)
def test_mistakes_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make()
