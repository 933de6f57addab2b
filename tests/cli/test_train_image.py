# SPDX-License-Identifier: MIT
"""`pyggml train-image` and `pyggml infer`, and what people give them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pyggml.io import read_gguf
from pyggml.models import build
from pyggml.recipes import ImageConfig, read_config

from ..data.test_idx import idx

Image = pytest.importorskip("PIL.Image")

FAST = ("--epochs", "2", "--size", "8", "--batch-size", "4", "--threads", "1", "--augment", "none",
        "--no-report")  # fmt: skip


def paint(folder: Path, count: int = 6) -> Path:
    """Two classes that differ in colour, in many sizes, modes and formats; and what is none."""
    rng = np.random.default_rng(0)
    modes = ("RGB", "L", "P", "RGBA", "1", "CMYK", "I;16")
    for name, level in (("bright", 200), ("dark", 40)):
        (folder / name).mkdir(parents=True)
        for number in range(count):
            shape = (int(rng.integers(9, 40)), int(rng.integers(9, 40)))
            noise = (level + rng.integers(-30, 30, shape)).astype(np.uint8)
            mode = modes[number % len(modes)]
            grey = Image.fromarray(noise)
            made = Image.fromarray(noise.astype(np.uint16) * 257) if mode == "I;16" else grey
            made = made if mode == "I;16" else made.convert(mode)
            made.save(folder / name / f"{number}.{'tif' if mode == 'CMYK' else 'png'}")
        turned = Image.fromarray(np.full((10, 20), level, np.uint8))
        exif = Image.Exif()
        exif[0x0112] = 6  # to be turned by a quarter
        turned.save(folder / name / "turned.jpg", exif=exif)
    (folder / "dark" / "text.png").write_text("no image")
    (folder / "dark" / "phone.heic").write_bytes(b"\0\0\0\x18ftypheic")
    Image.new("L", (400_000, 1), 40).save(folder / "dark" / "strip.png")
    Image.new("L", (9, 9), 40).save(folder / "stray.png")
    (folder / "dark" / "empty.jpg").write_bytes(b"")
    noise = Image.effect_noise((64, 64), 90)
    noise.save(folder / "bright" / "cut.jpg")
    whole = (folder / "bright" / "cut.jpg").read_bytes()
    (folder / "bright" / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    return folder


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return paint(tmp_path_factory.mktemp("images") / "pictures")


@pytest.fixture(scope="module")
def run(images: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    from typer.testing import CliRunner

    from pyggml.cli.app import app

    folder = tmp_path_factory.mktemp("run") / "run"
    arguments = [
        "train-image",
        "--data",
        str(images),
        "--artifact-dir",
        str(folder),
        *FAST,
        "--report",
    ]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.stderr
    return folder, done.stdout


def test_a_run_leaves_all_that_it_says(run: tuple[Path, str]) -> None:
    folder, said = run
    names = {path.name for path in folder.iterdir()}
    assert names >= {"model.gguf", "config.json", "metrics.jsonl", "results.json", "skipped.txt"}
    assert names >= {"confusion.png", "loss.png", "report.html", "checkpoints"}
    config = read_config(folder / "config.toml", ImageConfig)
    assert ImageConfig(**config)["size"] == 8
    results = json.loads((folder / "results.json").read_text())
    assert np.sum(results["confusion"]) == results["images"]
    assert list(results["classes"]) == ["bright", "dark"]
    assert f"validation: {results['accuracy']:.2%} of {results['images']} images right" in said
    assert "confusion matrix, true classes down" in said


def test_what_could_not_be_read_is_counted_and_named(run: tuple[Path, str]) -> None:
    folder, said = run
    named = (folder / "skipped.txt").read_text().splitlines()
    assert sorted(Path(line.split(": ")[0]).name for line in named) == [
        "cut.jpg",
        "empty.jpg",
        "phone.heic",
        "stray.png",
        "strip.png",
        "text.png",
    ]
    assert all(line.split(": ", 1)[1] for line in named)
    assert "6 file(s) could not be read" in said
    assert json.loads((folder / "config.json").read_text())["skipped"] == 6


def test_any_name_of_a_file_is_one_line_of_what_was_skipped(cli, tmp_path: Path) -> None:
    for name, level in (("a", 40), ("b", 200)):
        (tmp_path / "data" / name).mkdir(parents=True)
        for number in range(2):
            Image.new("L", (9, 9), level).save(tmp_path / "data" / name / f"{number}.png")
    names = [b"two\nlines.png", b"no letters \xff.png", "名.png".encode()]
    for name in names:
        Path(os.fsdecode(os.fsencode(tmp_path / "data" / "a") + b"/" + name)).write_bytes(b"")
    run = ("--data", tmp_path / "data", "--artifact-dir", tmp_path / "run", *FAST)
    code, _, errors = cli("train-image", *run)
    assert code == 0, errors
    lines = (tmp_path / "run" / "skipped.txt").read_text("utf-8").splitlines()
    assert len(lines) == 3
    for name in (r"two\nlines.png", r"no letters \xff.png", "名.png"):
        assert any(f"/{name}: cannot identify" in line for line in lines), lines


def test_the_file_has_all_that_infer_needs(run: tuple[Path, str]) -> None:
    with read_gguf(run[0] / "model.gguf") as file:
        assert file.metadata["pyggml.image.size"] == 8
        assert file.metadata["pyggml.image.channels"] == 3
        assert list(file.metadata["cnn.labels"]) == ["bright", "dark"]
        assert len(file.metadata["cnn.mean"]) == 3


def test_infer(cli, run: tuple[Path, str], tmp_path: Path) -> None:
    for level, name in ((210, "bright"), (35, "dark")):
        Image.new("L", (33, 21), level).save(tmp_path / f"{name}.png")
        code, said, errors = cli("infer", "--model", run[0], "--image", tmp_path / f"{name}.png")
        assert code == 0, errors
        first = said.splitlines()[1].split()
        assert first[1] == name
        assert float(first[0].rstrip("%")) > 50
    both = ("--image", tmp_path / "bright.png", "--image", tmp_path / "none.png", "--json")
    code, said, errors = cli("infer", "--model", run[0] / "model.gguf", *both)
    assert code == 1
    assert f"error: --image {tmp_path / 'none.png'}: no such file" in errors
    shares = json.loads(said)[str(tmp_path / "bright.png")]
    assert sum(shares.values()) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.tif", b"II*\0\x08\0\0\0\xff\xff" + b"\xff" * 80, "cannot identify image file 'a.tif'"),
        ("a.ppm", b"P6 99999999999999 1 255", "Token too long in file header: 99999999999"),
    ],
    ids=["tiff", "ppm"],
)
def test_a_damaged_image_is_one_line(
    run: tuple[Path, str], tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    """What Pillow warns of, and bytes in its errors, are not shown as they are."""
    (tmp_path / name).write_bytes(content)
    command = [sys.executable, "-m", "pyggml", "infer", "--model", str(run[0]), "--image"]
    done = subprocess.run(
        [*command, str(tmp_path / name)], capture_output=True, text=True, check=False
    )
    assert done.stderr == f"error: --image {tmp_path / name}: cannot be read: {said}\n"
    assert done.returncode == 1


@pytest.mark.parametrize("model", ["mlp", "resnet"])
def test_other_models_are_saved_with_their_size(cli, images, model, tmp_path) -> None:
    folder = tmp_path / "run"
    more = ("--artifact-dir", folder, "--model", model, "--balance", "--mixup", "0.2", *FAST)
    code, _, errors = cli("train-image", "--data", images, *more)
    assert code == 0, errors
    shown = ("--image", images / "dark" / "0.png")
    assert cli("infer", "--model", folder, *shown)[0] == 0
    code, _, errors = cli("infer", "--model", folder, "--size", "16", *shown)
    # A ResNet takes any size, an MLP its own alone.
    assert (code, "size must be one that the model takes; got 16" in errors) == (
        (0, False) if model == "resnet" else (1, True)
    )


def test_arrays_and_a_test_set_of_its_own(cli, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for prefix, count in (("train", 12), ("t10k", 6)):
        labels = np.arange(count) % 2
        pictures = (rng.integers(0, 60, (count, 8, 8)) + 150 * labels[:, None, None]).astype(
            np.uint8
        )
        (tmp_path / f"{prefix}-images-idx3-ubyte").write_bytes(idx(pictures))
        (tmp_path / f"{prefix}-labels-idx1-ubyte").write_bytes(idx(labels))
    arguments = ("--epochs", "2", "--batch-size", "4", "--artifact-dir", tmp_path / "run")
    code, said, errors = cli("train-image", "--data", f"mnist-idx:{tmp_path}", *arguments)
    assert code == 0, errors
    assert "12 for training, 6 for validation" in said
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx(np.array([0, 1, 0, 1, 0, 7])))
    code, _, errors = cli("train-image", "--data", tmp_path, *arguments, "--overwrite")
    assert code == 1
    assert "labels must be below the 2 classes; got 7 at 5" in errors
    (tmp_path / "train-images-idx3-ubyte").write_bytes(b"\0\0\x08\x03")
    code, _, errors = cli("train-image", "--data", tmp_path, *arguments, "--overwrite")
    assert code == 1
    assert "train-images-idx3-ubyte: extents must be 3 numbers" in errors


def refused(cli, *arguments: object) -> str:
    code, said, errors = cli("train-image", *arguments)
    assert code in (1, 2), said
    assert "Traceback" not in errors
    return errors


def test_folders_that_cannot_be_learned(cli, tmp_path: Path) -> None:
    run = ("--artifact-dir", tmp_path / "run", *FAST)
    assert "--data must be given" in refused(cli, *run)
    assert "does not exist" in refused(cli, "--data", tmp_path / "none", *run)
    (tmp_path / "empty").mkdir()
    assert "one folder for each class; got none" in refused(cli, "--data", tmp_path / "empty", *run)
    one = tmp_path / "one"
    (one / "cat").mkdir(parents=True)
    assert "must have an image that can be read" in refused(cli, "--data", one, *run)
    for number in range(3):
        Image.new("RGB", (9, 9)).save(one / "cat" / f"{number}.png")
    assert "two classes or more; got one (cat)" in refused(cli, "--data", one, *run)
    (one / "dog").mkdir()
    noise = Image.effect_noise((64, 64), 90)
    for number in range(2):  # whole headers, and pixels that end half way
        noise.save(one / "dog" / f"{number}.jpg")
        whole = (one / "dog" / f"{number}.jpg").read_bytes()
        (one / "dog" / f"{number}.jpg").write_bytes(whole[: len(whole) // 2])
    assert "dog: a class must have an image that can be read" in refused(cli, "--data", one, *run)
    assert not (tmp_path / "run").exists()


WRONG = {
    "--model": ("vgg", "--model must be one of mlp, cnn, resnet"),
    "--augment": ("all", "--augment must be one of none, shift, photo"),
    "--channels": ("2", "--channels must be 1 or 3"),
    "--size": ("2", "--size must be"),
    "--epochs": ("0", "--epochs must be"),
    "--val-fraction": ("1", "--val-fraction must be"),
    "--mixup": ("-1", "--mixup must be"),
    "--lr": ("-1", "--lr must be"),
    "--batch-size": ("0", "--batch-size must be"),
    "--optimizer": ("sgdd", "--optimizer must be"),
    "--device": ("cuda:9", "cuda:9"),
    "--threads": ("0", "threads"),
}


@pytest.mark.parametrize("option", WRONG)
def test_options_that_cannot_be(cli, images: Path, option: str, tmp_path: Path) -> None:
    value, message = WRONG[option]
    given = ("--data", images, "--artifact-dir", tmp_path / "run", option, value)
    assert message in refused(cli, *given)
    assert not (tmp_path / "run").exists()


def test_infer_takes_the_size_of_files_that_tell_none(cli, images: Path, tmp_path: Path) -> None:
    shown = ("--image", images / "dark" / "0.png")
    resnet, oblong = tmp_path / "resnet.gguf", tmp_path / "oblong.gguf"
    build("resnet", "tiny").save(resnet)
    code, _, errors = cli("infer", "--model", resnet, *shown)
    assert code == 1
    assert "pyggml.image.size is not there, and a ResNet takes images of several" in errors
    assert "give the --size of its training" in errors
    code, said, errors = cli("infer", "--model", resnet, *shown, "--size", "32")
    assert (code, len(said.splitlines())) == (0, 6), errors
    build("cnn", {"channels": 3, "size": (16, 24), "widths": (4,), "classes": 3}).save(oblong)
    code, said, errors = cli("infer", "--model", oblong, *shown)
    assert (code, len(said.splitlines())) == (0, 4), errors
    code, _, errors = cli("infer", "--model", oblong, *shown, "--size", "16")
    assert "images must have the configured size (16, 24); got (16, 16)" in errors


def test_infer_takes_a_folder(cli, images: Path, run: tuple[Path, str], tmp_path: Path) -> None:
    code, said, errors = cli("infer", "--model", run[0], "--image", images / "dark", "--json")
    read = {Path(name).name for name in json.loads(said)}
    assert read == {*(f"{number}.png" for number in range(5)), "5.tif", "turned.jpg"}
    assert code == 1
    assert sorted(Path(line.split(": ")[1]).name for line in errors.splitlines()) == [
        "empty.jpg",
        "phone.heic",
        "strip.png",
        "text.png",
    ]
    code, _, errors = cli("infer", "--model", run[0], "--image", tmp_path)
    assert (code, "the folder must hold an image; got none" in errors) == (1, True)


def test_models_of_another_kind(cli, trained, run: tuple[Path, str], images: Path) -> None:
    language, _ = trained
    shown = ("--image", images / "dark" / "0.png")
    code, _, errors = cli("infer", "--model", language, *shown)
    assert code == 1
    assert "mlp, cnn or resnet; got 'llama': use pyggml generate" in errors
    code, _, errors = cli("generate", "--model", run[0])
    assert code == 1
    assert "use pyggml infer" in errors


def test_a_run_goes_on(cli, images: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert cli("train-image", "--data", images, "--artifact-dir", folder, *FAST)[0] == 0
    again = ("--resume", "--artifact-dir", folder, "--epochs", "3")
    code, said, errors = cli("train-image", *again)
    assert code == 0, errors
    assert "continuing after step" in said
    assert "--model cannot change" in refused(cli, *again, "--model", "mlp")
    config = ("--config", folder / "config.toml")
    assert "another run" in refused(cli, *config, "--artifact-dir", folder)
    assert "another run" in refused(cli, "--data", images, "--artifact-dir", folder, *FAST)
    Image.new("L", (9, 9)).save(images / "dark" / "more.png")
    try:
        assert "images must be those of the run" in refused(cli, *again)
    finally:
        (images / "dark" / "more.png").unlink()


@pytest.mark.slow
def test_digits_are_learned_to_more_than_97_percent(cli, tmp_path: Path) -> None:
    sklearn = pytest.importorskip("sklearn.datasets")
    folder = tmp_path / "run"
    code, said, errors = cli("train-image", "--data", "digits", "--artifact-dir", folder)
    assert code == 0, errors
    assert json.loads((folder / "results.json").read_text())["accuracy"] > 0.97
    digits = sklearn.load_digits()
    for i in (3, 8):
        picture = (digits.images[i] * 255 / 16).astype(np.uint8)
        Image.fromarray(picture).resize((64, 64), 0).convert("RGB").save(tmp_path / "digit.png")
        code, said, _ = cli("infer", "--model", folder, "--image", tmp_path / "digit.png")
        assert said.splitlines()[1].split()[1] == str(digits.target[i])


def test_the_best_epoch_is_kept_and_exported(images: Path, tmp_path: Path, cli) -> None:
    from pyggml.models import load
    from pyggml.train.checkpoints.checkpoint import load_weights

    folder = tmp_path / "run"
    arguments = ["train-image", "--data", images, "--artifact-dir", folder, *FAST, "--epochs", "4"]
    code, out, err = cli(*arguments, "--lr", "0.5", "--export", "best")
    assert code == 0, err
    said = [line for line in out.splitlines() if line.startswith("model.gguf has the best weights")]
    assert len(said) == 1
    best = folder / "checkpoints" / "best"
    step = json.loads((best / "state.json").read_text())["step"]
    assert f"of step {step}:" in said[0]
    weights = load_weights(best)
    file = tmp_path / "again.gguf"
    code, out, err = cli("export", "--checkpoint", best, "--output", file)
    assert code == 0, err
    assert file.read_bytes() == (folder / "model.gguf").read_bytes()
    for name, array in load(file)[0].state_dict().items():
        assert array.tobytes() == weights[name].tobytes(), name
    # The results are those of the same weights.
    image = images / "dark" / "0.png"
    assert cli("infer", "--model", file, "--image", image)[0] == 0
