# SPDX-License-Identifier: MIT
from __future__ import annotations

import colorsys
import functools
import sys
import tracemalloc
from typing import Any

import numpy as np
import pytest

from pyggml.data import (
    ArrayImages,
    CenterCrop,
    ColorJitter,
    HorizontalFlip,
    ImageDataset,
    Normalize,
    RandomCrop,
    RandomResizedCrop,
    Resize,
    ResizedCenterCrop,
)
from pyggml.data.images.pipeline import Pipeline
from pyggml.errors import ShapeError


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def picture(rows: int = 10, columns: int = 14, channels: int = 3) -> np.ndarray:
    return rng(7).random((rows, columns, channels), np.float32)


@pytest.mark.parametrize(
    ("transform", "shape"),
    [
        (Resize(5), (5, 7, 3)),
        (Resize(20), (20, 28, 3)),
        (Resize((4, 9)), (4, 9, 3)),
        (CenterCrop(6), (6, 6, 3)),
        (ResizedCenterCrop(6), (6, 6, 3)),
        (CenterCrop((2, 9)), (2, 9, 3)),
        (RandomCrop((10, 3)), (10, 3, 3)),
        (RandomCrop(12, padding=1), (12, 12, 3)),
        (RandomResizedCrop((3, 4)), (3, 4, 3)),
        (HorizontalFlip(1), (10, 14, 3)),
        (ColorJitter(0.3, 0.3, 0.3, 0.1), (10, 14, 3)),
        (Normalize((0.5,) * 3, (0.5,) * 3), (10, 14, 3)),
    ],
    ids=repr,
)
def test_shapes_and_repetition(transform: Any, shape: tuple[int, ...]) -> None:
    if "Resize" in repr(transform):
        pytest.importorskip("PIL.Image")
    image = picture()
    before = image.copy()
    transforms = Pipeline("test", [transform])
    made = transforms(image, rng(1))
    assert made.shape == shape
    assert made.dtype == np.float32
    np.testing.assert_array_equal(made, transforms(image, rng(1)))
    np.testing.assert_array_equal(image, before)  # the source's own is not written


def test_resizing_keeps_flat_and_linear_pictures() -> None:
    pytest.importorskip("PIL.Image")
    flat = np.full((9, 7, 2), 0.3, np.float32)
    np.testing.assert_allclose(Resize((4, 12))(flat), 0.3, rtol=1e-6)
    ramp = np.broadcast_to(np.linspace(0, 1, 40, dtype=np.float32)[None, :, None], (20, 40, 1))
    half = Resize(10)(np.array(ramp))
    want = ramp[0, :, 0].reshape(20, 2).mean(1)  # pairs of columns
    np.testing.assert_allclose(half[5, 1:-1, 0], want[1:-1], atol=1e-6)


def test_resizing_is_that_of_torch() -> None:
    pytest.importorskip("PIL.Image")
    torch = pytest.importorskip("torch")
    image = picture(16, 24)
    given = torch.tensor(image.transpose(2, 0, 1)[None])
    for size in ((8, 12), (5, 31), (33, 7)):
        want = torch.nn.functional.interpolate(
            given, size, mode="bilinear", antialias=True, align_corners=False
        )
        got = Resize(size)(image).transpose(2, 0, 1)
        np.testing.assert_allclose(got, want[0].numpy(), atol=2e-6)


@pytest.mark.parametrize("shape", [(10, 14), (15, 10), (64, 48), (31, 200), (7, 7), (1, 9)])
@pytest.mark.parametrize("size", [1, 5, 10, 32, 37])
def test_the_middle_is_resized_as_the_whole_is(shape: tuple[int, int], size: int) -> None:
    pytest.importorskip("PIL.Image")
    image = picture(*shape)
    whole = CenterCrop(size)(Resize(size)(image))
    # Pillow takes a box in f32, so that its edges are rounded to 2^-24 of the image's length.
    found = ResizedCenterCrop(size)(image)
    np.testing.assert_allclose(found, whole, atol=max(shape) * 2.0**-22)


def test_a_middle_of_another_shape_covers_both_sides() -> None:
    pytest.importorskip("PIL.Image")
    image = picture(20, 60)
    whole = Resize((10, 30))(image)
    found = ResizedCenterCrop((10, 20))(image)
    np.testing.assert_allclose(found, whole[:, 5:25], atol=60 * 2.0**-22)
    whole = Resize((12, 36))(image)
    found = ResizedCenterCrop((4, 36))(image)
    np.testing.assert_allclose(found, whole[4:8], atol=60 * 2.0**-22)


def test_a_long_strip_takes_no_more_memory_than_its_middle() -> None:
    pytest.importorskip("PIL.Image")
    strip = np.broadcast_to(np.float32(0.25), (1, 1_000_000, 1))
    # Resized as a whole it would have 64 rows and 64 million columns: 15 GiB.
    tracemalloc.start()
    try:
        made = ResizedCenterCrop(64)(strip)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(made, np.full((64, 64, 1), 0.25, np.float32))
    assert peak < 16 * 2**20


def test_crops() -> None:
    image = picture()
    np.testing.assert_array_equal(CenterCrop(4)(image), image[3:7, 5:9])
    corners = set()
    for seed in range(300):
        made = RandomCrop(8)(image, rng(seed))
        at = np.argwhere(np.isclose(image, made[0, 0]).all(axis=2))
        found = [(r, c) for r, c in at.tolist() if (image[r : r + 8, c : c + 8] == made).all()]
        assert len(found) == 1
        corners |= set(found)
    assert len(corners) == 3 * 7
    padded = np.pad(image, ((2, 2), (2, 2), (0, 0)))
    made = RandomCrop((14, 18), padding=2)(image, rng())
    np.testing.assert_array_equal(made, padded)
    for crop in (CenterCrop(11), RandomCrop(11)):
        with pytest.raises(ShapeError, match=r"at least \(11, 11\); got \(10, 14\)"):
            Pipeline("test", [crop])(image, rng())


def test_resized_crops_have_the_area_and_shape_asked_for() -> None:
    pytest.importorskip("PIL.Image")
    # Coordinates as colours: the crop's corners are seen in the result.
    rows, columns = np.mgrid[0:200, 0:200] / 200
    image = np.dstack([rows, columns]).astype(np.float32)
    crop = RandomResizedCrop(50, scale=(0.2, 0.5), ratio=(0.5, 2.0))
    spans = []
    for seed in range(200):
        made = crop(image, rng(seed))
        spans.append([np.ptp(made[:, 25, 0]), np.ptp(made[25, :, 1])])
    high, wide = np.array(spans).T * 50 / 49
    assert 0.18 < (high * wide).min() < 0.25
    assert 0.45 < (high * wide).max() < 0.53
    assert 0.48 < (wide / high).min() < 0.6
    assert 1.7 < (wide / high).max() < 2.1


@pytest.mark.parametrize(
    ("height", "width", "ratio", "part"),
    [
        (4, 40, (1, 1), (slice(None), slice(18, 22))),
        (41, 4, (1, 1), (slice(18, 22), slice(None))),
        (4, 40, (0.5, 2), (slice(None), slice(16, 24))),
        (40, 6, (0.75, 1), (slice(16, 24), slice(None))),
        (10, 12, (0.5, 2), (slice(None), slice(None))),
    ],
)
def test_where_no_crop_fits_it_is_the_middle(
    height: int, width: int, ratio: Any, part: tuple[slice, slice]
) -> None:
    """As wide or as high as the ratios permit: what torchvision documents."""
    pytest.importorskip("PIL.Image")
    image = picture(height, width)
    # The whole area in another shape never fits.
    found = RandomResizedCrop(4, scale=(1, 1), ratio=ratio)(image, rng())
    np.testing.assert_array_equal(found, Resize((4, 4))(image[part]))


def test_flips() -> None:
    image = picture()
    flip = HorizontalFlip(0.3)
    flipped = [bool((flip(image, rng(s)) == image[:, ::-1]).all()) for s in range(2000)]
    assert np.mean(flipped) == pytest.approx(0.3, abs=0.04)


def test_jitter() -> None:
    image = picture(3, 5)
    for name in ("brightness", "contrast", "saturation"):
        seen = []
        for seed in range(300):
            jitter = ColorJitter(**{name: 0.4})
            made = jitter(image, rng(seed)).astype(np.float64)
            grey = image.astype(np.float64) @ [0.299, 0.587, 0.114]
            around = {
                "brightness": 0.0,
                "contrast": grey.mean(),
                "saturation": grey[:, :, None],
            }[name]
            inside = (made > 0) & (made < 1) & (np.abs(image - around) > 0.05)
            factors = ((made - around) / (image - around))[inside]
            assert np.ptp(factors) < 1e-5  # one for the whole image
            seen.append(factors[0])
        assert 0.6 <= min(seen) < 0.62
        assert 1.38 < max(seen) <= 1.4
    np.testing.assert_array_equal(ColorJitter()(image, rng()), image)
    grey = picture(3, 5, 1)
    np.testing.assert_allclose(ColorJitter(saturation=1.0)(grey, rng()), grey, rtol=1e-6)
    orders = {
        ColorJitter(0.9, 0.9, 0.9)(image, rng(s)).tobytes() == image.tobytes() for s in range(5)
    }
    assert orders == {False}


def test_hues() -> None:
    image = picture(4, 5)
    image[0, 0] = 0.5  # grey has no hue
    image[0, 1] = (1.0, 0.0, 0.0)
    turns = []
    for seed in range(100):
        made = ColorJitter(hue=0.25)(image, rng(seed))
        pairs = zip(image.reshape(-1, 3).tolist(), made.reshape(-1, 3).tolist(), strict=True)
        found = [(colorsys.rgb_to_hsv(*a), colorsys.rgb_to_hsv(*b)) for a, b in pairs]
        np.testing.assert_allclose(made[0, 0], 0.5, atol=1e-6)
        for (_, s, v), (_, s2, v2) in found[1:]:
            assert (s2, v2) == pytest.approx((s, v), abs=1e-5)
        turn = {round((b[0] - a[0] + 0.5) % 1 - 0.5, 4) for a, b in found[1:]}
        assert max(turn) - min(turn) <= 2e-4  # one for the whole image
        turns.append(max(turn))
    assert -0.2501 < min(turns) < -0.23
    assert 0.23 < max(turns) < 0.2501
    grey = picture(3, 5, 1)
    np.testing.assert_array_equal(ColorJitter(hue=0.5)(grey, rng()), grey)


def test_normalising() -> None:
    image = picture()
    made = Normalize((0.1, 0.2, 0.3), (1.0, 2.0, 4.0))(image)
    np.testing.assert_allclose(made, (image - [0.1, 0.2, 0.3]) / [1, 2, 4], rtol=1e-5, atol=1e-7)
    with pytest.raises(ShapeError, match="mean"):
        Normalize((0.1, 0.2, 0.3), (1.0, 2.0, 4.0))(picture(2, 2, 1))


def test_resizing_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(ImportError, match=r'pip install "pyggml\[images\]"'):
        Resize(3)(picture())


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Resize(0), "Resize: size"),
        (lambda: Resize((3, 4, 5)), "Resize: size"),
        (lambda: RandomCrop((3, -1)), "RandomCrop: size"),
        (lambda: RandomCrop(3, padding=-1), "RandomCrop: padding"),
        (lambda: RandomResizedCrop(3, scale=(0.5, 0.2)), "RandomResizedCrop: scale"),
        (lambda: RandomResizedCrop(3, scale=(0.5, 1.2)), "RandomResizedCrop: scale"),
        (lambda: RandomResizedCrop(3, ratio=(0, 1)), "RandomResizedCrop: ratio"),
        (lambda: HorizontalFlip(1.5), "HorizontalFlip: p"),
        (lambda: ColorJitter(contrast=2), "ColorJitter: contrast"),
        (lambda: ColorJitter(hue=0.6), "ColorJitter: hue"),
        (lambda: Normalize((1.0,), (0.0,)), "Normalize: std"),
        (lambda: Normalize((1.0,), (1.0, 1.0)), "Normalize: mean and std"),
    ],
)
def test_bad_arguments(make: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        make()


def test_any_function_is_a_transform() -> None:
    """Of an image alone, or of an image and a generator; its own defaults stay."""
    image = picture()

    def darker(image: np.ndarray, by: float = 0.5) -> np.ndarray:
        return image * by

    def noisy(image: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        return image + generator.random(image.shape, np.float32)

    class Shift:
        def __call__(self, image: np.ndarray, rng: np.random.Generator | None = None) -> np.ndarray:
            assert rng is not None
            return image + np.float32(rng.random())

    transforms = [
        darker,
        noisy,
        Shift(),
        np.sqrt,
        functools.partial(np.clip, a_min=0, a_max=1),
        HorizontalFlip(1),
    ]
    draw = rng(3)
    want = image * np.float32(0.5) + draw.random(image.shape, np.float32)
    want = np.clip(np.sqrt(want + np.float32(draw.random())), 0, 1)[:, ::-1]
    np.testing.assert_allclose(Pipeline("test", transforms)(image, rng(3)), want, rtol=1e-6)
    data = ImageDataset(ArrayImages(image[None], [0]), [lambda image: image[:4, :5]])
    assert data.batch(np.array([0])).x.shape == (1, 3, 4, 5)


def test_transforms_as_those_of_torchvision() -> None:
    """Modules with `forward(image)` that take and return tensors (C, H, W)."""
    torch = pytest.importorskip("torch")

    class ToTensor:
        def __call__(self, image: np.ndarray) -> Any:
            return torch.from_numpy(image.transpose(2, 0, 1).copy())

    class Flip(torch.nn.Module):
        def forward(self, image: Any) -> Any:
            return image.flip(-1)

    image = picture()
    transforms = [ToTensor(), Flip(), CenterCrop(4)]  # one of ours takes what a tensor holds
    found = Pipeline("test", transforms)(image, rng())
    np.testing.assert_array_equal(found, image[3:7, ::-1][:, 5:9])
    found = ImageDataset(ArrayImages(image[None], [0]), transforms[:2]).batch(np.array([0])).x[0]
    np.testing.assert_array_equal(found, image[:, ::-1].transpose(2, 0, 1))


def test_transforms_that_return_pictures_of_pillow() -> None:
    images = pytest.importorskip("PIL.Image")

    def picture_of(image: np.ndarray) -> Any:
        return images.fromarray((image * 255).astype(np.uint8))

    image = np.round(picture() * 255) / np.float32(255)
    found = Pipeline("test", [picture_of, lambda image: image.rotate(180)])(image, rng())
    np.testing.assert_allclose(found, image[::-1, ::-1], atol=1.01 / 255)


@pytest.mark.parametrize("transforms", [HorizontalFlip(), [HorizontalFlip], ["flip"], 5])
def test_other_things_are_no_transforms(transforms: Any) -> None:
    with pytest.raises(TypeError, match=r"ImageDataset: .*transform"):
        ImageDataset(ArrayImages(picture()[None], [0]), transforms)
