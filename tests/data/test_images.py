# SPDX-License-Identifier: MIT
from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyggml.data import (
    IGNORE_INDEX,
    ArrayImages,
    ImageDataset,
    ImageFolder,
    Loader,
    Prefetch,
    RandomCrop,
    Resize,
    class_weights,
    read_image,
)
from pyggml.errors import FormatError, ShapeError
from pyggml.models import CNN, CNNConfig
from pyggml.optim import SGD
from pyggml.train import Trainer


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def photo(rows: int = 6, columns: int = 9) -> np.ndarray:
    return rng(3).integers(0, 256, (rows, columns, 3), np.uint8)


@pytest.fixture
def pil() -> Any:
    return pytest.importorskip("PIL.Image")


def save(pil: Any, path: Path, array: np.ndarray, mode: str | None = None, **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = pil.fromarray(array)
    (image.convert(mode) if mode else image).save(path, **options)


def folder(pil: Any, path: Path, counts: dict[str, int]) -> Path:
    for name, count in counts.items():
        for number in range(count):
            save(pil, path / name / f"{number:02}.png", np.full((8, 8, 3), number, np.uint8))
    return path


# Folders


def test_classes_are_folders(pil: Any, tmp_path: Path) -> None:
    folder(pil, tmp_path, {"dog": 2, "cat": 3, ".hidden": 1, "cat/more": 1})
    (tmp_path / "cat" / "notes.txt").write_text("no image")
    save(pil, tmp_path / "cat" / ".thumb.png", photo())
    source = ImageFolder(tmp_path)
    assert source.classes == ["cat", "dog"]
    assert [str(f.relative_to(tmp_path)) for f in source.files] == [
        "cat/00.png", "cat/01.png", "cat/02.png", "cat/more/00.png", "dog/00.png", "dog/01.png",
    ]  # fmt: skip
    assert source.labels.tolist() == [0, 0, 0, 0, 1, 1]
    assert source.report() == "6 images of 2 classes (cat 4, dog 2); 0 skipped"


def grey_of(array: np.ndarray) -> np.ndarray:
    return np.round(array @ np.array([0.299, 0.587, 0.114]))


@pytest.mark.parametrize("channels", [1, 3])
def test_kinds_of_images(pil: Any, tmp_path: Path, channels: int) -> None:
    rgb = photo()
    alpha = np.dstack([rgb, np.zeros(rgb.shape[:2], np.uint8)])
    alpha[0, :, 3] = 255
    grey = rgb[:, :, 0]
    deep = grey.astype(np.uint16) * 257
    two = np.where(grey > 127, 255, 0).astype(np.uint8)
    few = (rgb // 128) * 255
    on_white = np.where(alpha[:, :, 3:] > 0, rgb, 255)
    fixed: dict[str, tuple[Any, np.ndarray]] = {
        "rgb.png": (pil.fromarray(rgb), rgb),
        "grey.png": (pil.fromarray(grey), np.repeat(grey[:, :, None], 3, 2)),
        "deep.png": (pil.fromarray(deep), np.repeat(grey[:, :, None], 3, 2)),
        "alpha.png": (pil.fromarray(alpha), on_white),
        "palette.png": (pil.fromarray(few).convert("P", palette=1, colors=8), few),
        "two.png": (pil.fromarray(two).convert("1", dither=0), np.repeat(two[:, :, None], 3, 2)),
        "greyalpha.png": (
            pil.merge("LA", [pil.fromarray(grey), pil.fromarray(alpha[:, :, 3].copy())]),
            np.where(alpha[:, :, 3:] > 0, grey[:, :, None], 255).repeat(3, 2),
        ),
    }
    for name, (image, _) in fixed.items():
        (tmp_path / "a").mkdir(exist_ok=True)
        image.save(tmp_path / "a" / name)
    # A palette with a transparent colour.
    transparent = pil.fromarray(few).convert("P", palette=1, colors=8)
    clear = transparent.getpixel((0, 0))
    transparent.save(tmp_path / "a" / "clear.png", transparency=clear)
    pixels = np.asarray(transparent)
    fixed["clear.png"] = (None, np.where(pixels[:, :, None] == clear, 255, few))
    source = ImageFolder(tmp_path, channels=channels)
    assert not source.skipped
    for number, file in enumerate(source.files):
        image = source.image(number)
        assert image is not None
        assert image.dtype == np.float32
        assert image.shape == (6, 9, channels)
        want = fixed[file.name][1].astype(np.float64)
        if channels == 1:
            want = grey_of(want)[:, :, None]
        # Pillow rounds grey in fixed point.
        np.testing.assert_allclose(image * 255, want, atol=1.01 if channels == 1 else 1e-3)


def convert_whole(pil: Any, path: Path, channels: int) -> np.ndarray:
    """What `read_image` is to return, without bands."""
    with pil.open(path) as opened:
        image = sys.modules["PIL.ImageOps"].exif_transpose(opened)
    if image.mode.startswith("I"):
        grey = np.clip(np.asarray(image, np.float32) / 65535.0, 0.0, 1.0)
        return np.repeat(grey[:, :, None], channels, axis=2)
    if "A" in image.mode or "transparency" in image.info:
        image = image.convert("RGBA")
        white = pil.new("RGBA", image.size, (255, 255, 255, 255))
        image = pil.alpha_composite(white, image)
    array = np.array(image.convert("L" if channels == 1 else "RGB"), np.float32) / np.float32(255)
    return array.reshape(*array.shape[:2], channels)


@pytest.mark.parametrize("pixels", [1, 50, 2**20])
@pytest.mark.parametrize("kind", ["1", "L", "P", "RGB", "RGBA", "LA", "I;16", "CMYK", "clear"])
def test_bands_change_no_bit(
    pil: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pixels: int, kind: str
) -> None:
    for module in ("files", "crops"):
        monkeypatch.setattr(f"pyggml.data.images.{module}._BAND_PIXELS", pixels)
    path = tmp_path / ("a.tiff" if kind == "CMYK" else "a.png")
    exif = pil.Exif()
    exif[0x112] = 6
    if kind == "I;16":
        pil.fromarray(rng(1).integers(0, 2**16, (23, 17), np.uint16)).save(path)
    elif kind == "clear":
        pil.fromarray(photo(23, 17)).convert("P").save(path, transparency=3)
    else:
        alpha = rng(2).integers(0, 256, (23, 17, 1), np.uint8)
        image = pil.fromarray(np.concatenate([photo(23, 17), alpha], 2))
        (image if kind == "RGBA" else image.convert("RGB").convert(kind)).save(path, exif=exif)
    for channels in (1, 3):
        image = read_image(path, channels)
        np.testing.assert_array_equal(image, convert_whole(pil, path, channels))
        small = Resize((5, 7))(image)
        for channel in range(channels):
            plane = pil.fromarray(np.ascontiguousarray(image[:, :, channel]))
            wanted = np.clip(np.asarray(plane.resize((7, 5), pil.Resampling.BILINEAR)), 0.0, 1.0)
            np.testing.assert_array_equal(small[:, :, channel], wanted)


@pytest.mark.skipif(sys.platform != "linux", reason="needs the peak of /proc")
@pytest.mark.parametrize("mode", ["1", "RGBA"])
def test_a_large_image_is_copied_once(pil: Any, tmp_path: Path, mode: str) -> None:
    pil.new(mode, (4000, 4000)).save(tmp_path / "a.png")
    code = (
        "import resource, sys\n"
        "from pyggml.data import ResizedCenterCrop, read_image\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "import PIL.ImageOps\n"
        "before = peak()\n"
        "ResizedCenterCrop(16)(read_image(sys.argv[1]))\n"
        "print((peak() - before) * 1024 / 4000**2)\n"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "a.png")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert float(done.stdout) < 18  # 12 bytes of the pixel in f32, 4 of Pillow's


def test_images_are_turned_as_the_camera_was_held(pil: Any, tmp_path: Path) -> None:
    rgb = photo()
    exif = pil.Exif()
    exif[0x0112] = 6  # turn by 90 degrees to the right
    save(pil, tmp_path / "a" / "x.png", rgb, exif=exif)
    image = ImageFolder(tmp_path).image(0)
    np.testing.assert_allclose(np.asarray(image) * 255, np.rot90(rgb, -1), atol=1e-3)


def test_what_cannot_be_read_is_named(
    pil: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder(pil, tmp_path, {"a": 2, "b": 1})
    (tmp_path / "a" / "text.png").write_text("no image")
    (tmp_path / "a" / "empty.jpg").write_bytes(b"")
    save(pil, tmp_path / "b" / "cut.jpg", rng().integers(0, 256, (64, 64, 3), np.uint8))
    whole = (tmp_path / "b" / "cut.jpg").read_bytes()
    (tmp_path / "b" / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    with caplog.at_level(logging.WARNING):
        source = ImageFolder(tmp_path)
    assert [file.name for file, _ in source.skipped] == ["empty.jpg", "text.png"]
    assert "cannot identify image file" in source.skipped[0][1]
    assert len(caplog.records) == 2
    assert len(source) == 4
    # Its header is in order; its pixels are not all there.
    cut = [file.name for file in source.files].index("cut.jpg")
    for _ in range(2):
        assert source.image(cut) is None
    assert [file.name for file, _ in source.skipped] == ["empty.jpg", "text.png", "cut.jpg"]
    report = source.report().splitlines()
    assert report[0] == "4 images of 2 classes (a 2, b 2); 3 skipped:"
    assert "cut.jpg: image file is truncated" in report[3]
    full = ImageFolder(tmp_path, check="full")
    assert len(full) == 3
    assert len(full.skipped) == 3


def test_whatever_pillow_reads_is_an_image_and_the_rest_is_named(pil: Any, tmp_path: Path) -> None:
    folder(pil, tmp_path, {"a": 1, "b": 1})
    here = tmp_path / "a"
    save(pil, here / "camera.jfif", photo(), format="JPEG")
    save(pil, here / "no_suffix", photo(), format="PNG")
    save(pil, here / "named.wrongly", photo(), format="PNG")
    save(pil, here / "old.tga", photo())
    if ".avif" in pil.registered_extensions():
        save(pil, here / "new.avif", photo())
    save(pil, tmp_path / "stray.png", photo())
    (here / "phone.heic").write_bytes(b"\0\0\0\x18ftypheic")
    (here / "drawing.svg").write_text("<svg/>")
    (here / "program.eps").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    (here / "program.png").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    (here / "no_image").write_bytes(bytes(range(256)))
    (here / "gone.png").symlink_to(tmp_path / "nowhere")
    (here / "linked").symlink_to(tmp_path / "b", target_is_directory=True)
    os.mkfifo(here / "pipe.png")  # reading it would wait for ever
    for name in ("Thumbs.db", "desktop.ini", ".DS_Store", "notes.txt", "boxes.json"):
        (here / name).write_text("x")
    (tmp_path / "labels.csv").write_text("x")
    source = ImageFolder(tmp_path)
    read = {file.name for file in source.files}
    assert read - {"new.avif"} == {
        "00.png", "camera.jfif", "no_suffix", "named.wrongly", "old.tga",
    }  # fmt: skip
    assert ("new.avif" in read) == (".avif" in pil.registered_extensions())
    assert all(source.image(i) is not None for i in range(len(source)))
    causes = {file.name: cause for file, cause in source.skipped}
    words = {
        "stray.png": "no class",
        "linked": "links",
        "phone.heic": "HEIC",
        "drawing.svg": ".svg",
        "program.eps": "EPS",
        "program.png": "program.png",
        "no_image": "Pillow",
        "gone.png": "broken link",
        "pipe.png": "no regular file",
    }
    assert causes.keys() == words.keys()
    for name, word in words.items():
        assert word in causes[name], name


def test_a_class_may_have_any_name(pil: Any, tmp_path: Path) -> None:
    source = ImageFolder(folder(pil, tmp_path, {"a.txt": 1, "b.json/more.md": 1, "__MACOSX": 1}))
    assert source.classes == ["a.txt", "b.json"]
    assert len(source) == 2


def test_images_of_impossible_sizes_are_named(
    pil: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder(pil, tmp_path, {"a": 1, "b": 1})
    pil.new("L", (400_000, 1)).save(tmp_path / "a" / "strip.png")
    pil.new("L", (2, 1500)).save(tmp_path / "a" / "long.png")
    pil.new("L", (90, 100)).save(tmp_path / "b" / "large.png")
    monkeypatch.setattr(pil, "MAX_IMAGE_PIXELS", 8999)
    with pytest.warns(pil.DecompressionBombWarning):
        source = ImageFolder(tmp_path)
    assert [file.name for file in source.files] == ["00.png", "long.png", "00.png"]
    causes = {file.name: cause for file, cause in source.skipped}
    assert causes.keys() == {"strip.png", "large.png"}
    assert "90 x 100 is more than 8,999 pixels" in causes["large.png"]
    monkeypatch.undo()
    source = ImageFolder(tmp_path)
    assert [file.name for file, _ in source.skipped] == ["strip.png"]
    with pytest.raises(FormatError, match="400000 x 1"):
        read_image(tmp_path / "a" / "strip.png")


def test_an_unreadable_image_has_no_target(pil: Any, tmp_path: Path) -> None:
    folder(pil, tmp_path, {"a": 2, "b": 2})
    source = ImageFolder(tmp_path)
    source.files[1].write_bytes(b"gone")
    x, y = ImageDataset(source).batch(np.arange(4))
    assert y.tolist() == [0, IGNORE_INDEX, 1, 1]
    assert not x[1].any()
    _, soft = ImageDataset(source, mixup=1.0).batch(np.arange(4))
    assert soft[1].tolist() == [0, 0]
    assert [file.name for file, _ in source.skipped] == ["01.png"]
    # Alone in its batch, it has the shape of the others.
    for mixup, target in ((0.0, [IGNORE_INDEX]), (1.0, [[0, 0]])):
        x, y = ImageDataset(source, [RandomCrop(5)], mixup=mixup).batch(np.array([1]))
        assert (x.shape, x.any(), y.tolist()) == ((1, 3, 5, 5), False, target)
    for file in source.files:
        file.write_bytes(b"gone")
    with pytest.raises(FormatError, match="got none of 4"):
        ImageDataset(source).batch(np.array([1]))


@pytest.mark.parametrize("mixup", [0.0, 0.4])
def test_damaged_pixels_do_not_end_a_training(
    pil: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, mixup: float
) -> None:
    for number in range(3):
        for name in "ab":
            save(pil, tmp_path / name / f"{number}.jpg", photo(64, 64))
    file = tmp_path / "a" / "1.jpg"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    source = ImageFolder(tmp_path)
    assert not source.skipped  # the header is in order
    model = CNN(CNNConfig(channels=3, size=8, classes=2, widths=(4,), hidden=4))
    loader = Loader(ImageDataset(source, [RandomCrop(8)], mixup=mixup), 1)
    optimizer = SGD(model.parameters(), lr=0.1)
    trainer = Trainer(model, loader, None, optimizer, epochs=2, lr=1e-2, prefetch=0)
    trainer.fit()
    assert trainer.step == 12
    assert source.skipped[0][0] == file
    # Twice it is drawn, and by mixup others may be mixed with it.
    assert trainer.tokens <= 10 if mixup else trainer.tokens == 10
    assert "a step without a target that counts is skipped" in caplog.text


def test_bad_folders(pil: Any, tmp_path: Path) -> None:
    for path, match in [
        (tmp_path / "no", "no: no such folder"),
        (tmp_path, "must hold one folder for each class"),
    ]:
        with pytest.raises(FormatError, match=match):
            ImageFolder(path)
    (tmp_path / "flat.png").write_bytes(b"")
    with pytest.raises(FormatError, match=r"1 file\(s\)"):
        ImageFolder(tmp_path)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.png").write_text("text")
    with pytest.raises(
        FormatError, match=r"a: a class must have .*got none; 1 skipped; x\.png: ca"
    ):
        ImageFolder(tmp_path)
    with pytest.raises(ValueError, match="channels must be 1 or 3; got 4"):
        ImageFolder(tmp_path, channels=4)
    with pytest.raises(ValueError, match='check must be "header" or "full"'):
        ImageFolder(tmp_path, check="some")


def test_pillow_is_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(ImportError, match=r'pip install "pyggml\[images\]"'):
        ImageFolder(tmp_path)


# Arrays


def test_arrays() -> None:
    pixels = rng().integers(0, 256, (4, 5, 6, 3), np.uint8)
    source = ArrayImages(pixels, [0, 1, 1, 0], ["no", "yes"])
    np.testing.assert_allclose(source.image(2), pixels[2] / 255, rtol=1e-6)
    grey = ArrayImages((pixels[..., 0] / 255).astype(np.float32), [0, 1, 1, 2])
    assert grey.image(1).shape == (5, 6, 1)
    assert grey.classes == ["0", "1", "2"]
    x, y = ImageDataset(source).batch(np.array([3, 1]))
    np.testing.assert_allclose(x, pixels[[3, 1]].transpose(0, 3, 1, 2) / 255, rtol=1e-6)
    assert (y.tolist(), y.dtype, x.dtype) == ([0, 1], np.int32, np.float32)


@pytest.mark.parametrize(
    ("images", "labels", "error", "match"),
    [
        (np.zeros((3, 4)), [0, 1, 2], ShapeError, r"needs images \(N, H, W\)"),
        (np.zeros((3, 4, 4)), [0, 1], ShapeError, r"labels \(N,\); got \(3, 4, 4\), \(2,\)"),
        (np.zeros((0, 4, 4)), [], ShapeError, "needs images"),
        (np.zeros((1, 4, 4), int), [0], ValueError, "must be u8 or floats; got int64"),
        (np.zeros((1, 4, 4)), [-1], ValueError, "labels must be integers >= 0"),
        (np.zeros((1, 4, 4)), [0.5], ValueError, "labels must be integers >= 0"),
        (np.zeros((1, 4, 4)), [2], ValueError, "labels must be below the 2 classes; got 2"),
    ],
)
def test_bad_arrays(images: Any, labels: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        ArrayImages(images, labels, ["a", "b"])


def test_pixels_out_of_range_are_refused() -> None:
    source = ArrayImages(np.full((1, 2, 2), 255.0), [0])
    with pytest.raises(ValueError, match=r"image 0 has 255.0"):
        source.image(0)


# Batches


def arrays(count: int = 12) -> ArrayImages:
    return ArrayImages(rng().integers(0, 256, (count, 8, 8, 3), np.uint8), np.arange(count) % 3)


@pytest.mark.parametrize("mixup", [0.0, 0.4])
@pytest.mark.parametrize("weights", [None, "balanced"])
@pytest.mark.parametrize("taken", [0, 3, 5])
def test_resumes_exactly(mixup: float, weights: str | None, taken: int) -> None:
    def make() -> Loader:
        data = ImageDataset(arrays(), [RandomCrop(8, padding=3)], mixup=mixup, weights=weights)
        return Loader(data, 4, seed=6)

    loader = make()
    for _ in range(taken):
        next(loader)
    with Prefetch(make()) as other:
        other.load_state_dict(json.loads(json.dumps(loader.state_dict())))
        for _ in range(5):
            for ours, theirs in zip(next(loader), next(other), strict=True):
                np.testing.assert_array_equal(ours, theirs)


def test_epochs_differ_and_evaluation_does_not() -> None:
    data = ImageDataset(arrays(), [RandomCrop(8, padding=3)])
    loader = Loader(data, 12, shuffle=False)
    np.testing.assert_array_equal(next(loader)[0], next(loader)[0])
    loader = Loader(data, 12)
    sums = [np.sort(next(loader)[0].sum(axis=(1, 2, 3))) for _ in range(2)]
    assert (sums[0] != sums[1]).any()


def test_mixup_mixes_images_and_targets() -> None:
    # Image i is all i / 12, so that its pixels tell its share.
    values = np.repeat(np.arange(12, dtype=np.float32) / 12, 4).reshape(12, 2, 2)
    data = ImageDataset(ArrayImages(values, np.arange(12)), mixup=0.7)
    x, y = data.batch(data.order(rng()))
    assert y.dtype == np.float32
    np.testing.assert_allclose(y.sum(axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(y @ (np.arange(12) / 12), x[:, 0, 0, 0], rtol=1e-5, atol=1e-6)
    assert ((y > 0).sum(axis=1) == 2).sum() > 6
    shares = np.concatenate([data.batch(data.order(rng(s)))[1].max(axis=1) for s in range(40)])
    want = np.random.default_rng(1).beta(0.7, 0.7, 20000)
    assert shares.mean() == pytest.approx(np.maximum(want, 1 - want).mean(), abs=0.04)


def test_a_filled_up_batch_of_distributions() -> None:
    loader = Loader(ImageDataset(arrays(5), mixup=1.0), 4, shuffle=False, pad_last=True)
    *_, (x, y) = loader.once()
    assert x.shape == (4, 3, 8, 8)
    assert not y[1:].any()


def test_balanced_classes_are_drawn_alike() -> None:
    labels = np.repeat([0, 1, 2], [90, 9, 1])
    data = ImageDataset(ArrayImages(np.zeros((100, 1, 1), np.uint8), labels), weights="balanced")
    drawn = np.concatenate([labels[data.order(rng(s)) % 100] for s in range(60)])
    np.testing.assert_allclose(np.bincount(drawn) / drawn.size, 1 / 3, atol=0.03)
    # An image that is drawn twice is transformed anew.
    assert len(set(data.order(rng()).tolist())) == 100
    assert data.order(None).tolist() == list(range(100))
    one = np.zeros(100)
    one[7] = 2
    data = ImageDataset(data.source, weights=one)
    assert set((data.order(rng()) % 100).tolist()) == {7}


def test_class_weights() -> None:
    weights = class_weights([0, 0, 0, 1, 2, 2])
    np.testing.assert_allclose(weights, [6 / 9, 2, 1], rtol=1e-6)
    assert weights.dtype == np.float32
    for labels, classes, match in [
        ([0, 2], None, "class 1 has no image"),
        ([0, 1], 3, "class 2 has no image"),
        ([0, 3], 2, "must be below classes=2; got 3"),
        ([], None, "at least one"),
        ([-1], None, "integers >= 0"),
    ]:
        with pytest.raises(ValueError, match=match):
            class_weights(labels, classes)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"mixup": -1.0}, "mixup"),
        ({"mixup": float("nan")}, "mixup"),
        ({"weights": "fair"}, 'weights must be "balanced" or numbers'),
        ({"weights": [1.0]}, "weights must be 12 numbers >= 0"),
        ({"weights": [-1.0] * 12}, "weights must be 12 numbers >= 0"),
        ({"weights": [0.0] * 12}, "not all 0"),
    ],
)
def test_bad_arguments(options: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        ImageDataset(arrays(), **options)


def test_images_of_several_shapes_are_refused(pil: Any, tmp_path: Path) -> None:
    save(pil, tmp_path / "a" / "0.png", photo(4, 4))
    save(pil, tmp_path / "a" / "1.png", photo(4, 5))
    source = ImageFolder(tmp_path)
    with pytest.raises(ShapeError, match=r"\(4, 5, 3\)"):
        ImageDataset(source).batch(np.arange(2))
    x, _ = ImageDataset(source, [RandomCrop(4)]).batch(np.arange(2))
    assert x.shape == (2, 3, 4, 4)
