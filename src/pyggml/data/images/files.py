# SPDX-License-Identifier: MIT
"""Images in files: a folder for each class, or one by its path."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import numpy as np

from ... import checks
from ...errors import FormatError, OutOfMemoryError, printable
from ..fingerprint import fingerprint
from .crops import pillow

__all__ = ["ImageFolder", "read_image"]

_log = logging.getLogger("pyggml.data")
_NAMED = 20

# Other files beside images: annotations, and those of file managers.
_NOTES = (".txt", ".json", ".jsonl", ".csv", ".tsv", ".xml", ".md", ".yaml", ".yml")
_LEFT = ("thumbs.db", "ehthumbs.db", "desktop.ini", "__macosx")
# Pillow starts Ghostscript for these: a program of its own for a file of unknown origin.
_NEVER = ("EPS",)
# A longer strip has nothing in its middle that would tell what it is.
_MOST_ASPECT = 1000
_BAND_PIXELS = 2**20


class ImageFolder:
    """Images in one folder per class; needs Pillow.

    The class of `pets/cat/1.jpg` in the folder `pets` is "cat". Rotations that a camera noted are
    applied; grey, palette and transparent images become what `channels` says, transparency on
    white.

    Pillow says what an image is: by its content, and by the suffix for formats that have no
    signature. Anything else that lies there is left out and named in `skipped`, with the cause: a
    file that cannot be read, one that belongs to no class, an image of more than
    `PIL.Image.MAX_IMAGE_PIXELS` pixels or a thousand times as long as wide. One whose header can be
    read and whose pixels cannot follows when it is first needed. Hidden files, what file managers
    leave, and notes (text, JSON, CSV, XML, YAML, Markdown) are passed over.

    Args:
        path: folder of the classes' folders; hidden ones are left out.
        channels: 3 for colour, 1 for grey.
        check: "header" reads the beginning of each file now, "full" all pixels.

    Attributes:
        files: paths of the images, sorted.
        labels: class of each, (N,) i32.
        classes: names of the classes, sorted.
        skipped: (path, cause) of what could not be read.

    Raises:
        FormatError: there is no such folder, it has no class, or a class has no image that can be
            read.
        ValueError: an option is out of range.
        ImportError: Pillow is not there.

    Example:
        >>> pets = ImageFolder("pets/")  # doctest: +SKIP
        >>> print(pets.report())  # doctest: +SKIP
        412 images of 2 classes (cat 200, dog 212); 1 skipped: pets/cat/broken.jpg: ...
    """

    def __init__(
        self, path: str | os.PathLike[str], channels: int = 3, check: str = "header"
    ) -> None:
        pillow("ImageFolder")
        if checks.whole("ImageFolder", "channels", channels, 1) not in (1, 3):
            raise ValueError(f"ImageFolder: channels must be 1 or 3; got {channels!r}")
        if not isinstance(check, str) or check not in ("header", "full"):
            raise ValueError(f'ImageFolder: check must be "header" or "full"; got {check!r}')
        self.path = checks.path("ImageFolder", "path", path)
        self.channels = int(channels)
        self.skipped: list[tuple[Path, str]] = []
        self._named: set[Path] = set()
        if not self.path.is_dir():
            raise FormatError(f"ImageFolder: {self.path}: no such folder")
        found = sorted(path for path in self.path.iterdir() if not _is_left(path.name))
        folders = [path for path in found if path.is_dir()]
        strays = [path for path in found if not path.is_dir() and _counts(path.name)]
        self.classes = [folder.name for folder in folders]
        if not self.classes:
            raise FormatError(
                f"ImageFolder: {self.path}: must hold one folder for each class; got none"
                + (f" and {len(strays)} file(s): move each into its class's" if strays else "")
            )
        for folder in folders:
            if printable(folder.name) != folder.name:
                raise FormatError(
                    f"ImageFolder: {printable(str(folder))}: the name of a class must be Unicode"
                    " without control characters, as models' files hold it: rename the folder"
                )
        self.files: list[Path] = []
        labels: list[int] = []
        for file in strays:
            self._skip(file, ValueError("belongs to no class; put it into a class's folder"))
        for label, folder in enumerate(folders):
            before = len(self.skipped)
            good = [file for file in self._files(folder) if self._check(file, check == "full")]
            if not good:
                causes = self.skipped[before:]
                raise FormatError(
                    f"ImageFolder: {folder}: a class must have an image that can be read; got"
                    f" none; {len(causes)} skipped"
                    + "".join(f"; {file.name}: {cause}" for file, cause in causes[:1])
                )
            self.files += good
            labels += [label] * len(good)
        self.labels = np.array(labels, np.int32)

    def __len__(self) -> int:
        """Number of images."""
        return len(self.files)

    def fingerprint(self) -> int:
        """Return a checksum of the files' names and sizes."""
        names = [(str(f.relative_to(self.path)), f.stat().st_size) for f in self.files]
        return fingerprint(repr(names), self.channels)

    def image(self, item: int) -> np.ndarray | None:
        """Read an image (H, W, C) f32 from 0 to 1; None, and an entry in `skipped`, if it fails."""
        file = self.files[checks.whole("ImageFolder.image", "item", item, 0, len(self.files) - 1)]
        try:
            return _read(file, self.channels)
        except Exception as error:  # noqa: BLE001 - decoders raise anything
            self._skip(file, error)
            return None

    def report(self) -> str:
        """Tell how many images there are, and what was left out and why."""
        counts = np.bincount(self.labels, minlength=len(self.classes))
        each = ", ".join(f"{name} {n}" for name, n in zip(self.classes, counts, strict=True))
        text = f"{len(self)} images of {len(self.classes)} classes ({each});"
        text += f" {len(self.skipped)} skipped"
        named = [printable(f"{file}: {cause}") for file, cause in self.skipped[:_NAMED]]
        more = len(self.skipped) - len(named)
        return "\n  ".join(
            [text + (":" if named else ""), *named, *[f"and {more} more"] * (more > 0)]
        )

    def _files(self, folder: Path) -> list[Path]:
        """The files of a folder and those below, sorted; what cannot be listed is noted."""
        files, unlisted = files_below(folder)
        for path, cause in unlisted:
            self._skip(path, ValueError(cause))
        return files

    def _check(self, file: Path, full: bool) -> bool:
        """Return True for a file that can be read; note one that cannot."""
        try:
            if full:
                _read(file, self.channels)
            else:
                with _opened(file) as image:
                    image.verify()
        except Exception as error:  # noqa: BLE001 - decoders raise anything
            self._skip(file, error)
            return False
        return True

    def _skip(self, file: Path, error: Exception) -> None:
        if file not in self._named:
            self._named.add(file)
            cause = _cause(error, file)
            self.skipped.append((file, cause))
            _log.warning("%s", printable(f"ImageFolder: {file} is left out: {cause}"))


def _cause(error: Exception, file: Path) -> str:
    """Return what is said of a file that cannot be read; an error of Pillow may hold bytes."""
    first = error.args[0] if error.args else None
    said = first.decode("utf-8", "replace") if isinstance(first, bytes) else str(error)
    return said.replace(str(file), file.name) or type(error).__name__


def files_below(folder: Path) -> tuple[list[Path], list[tuple[Path, str]]]:
    """The files that may be images, in a folder and those below.

    Args:
        folder: hidden files, what file managers leave and notes in it are passed over.

    Returns:
        The files, sorted; and what was not looked into, with the cause.
    """
    found, unlisted = list[Path](), list[tuple[Path, str]]()

    def note(error: OSError) -> None:
        unlisted.append((Path(error.filename), error.strerror or type(error).__name__))

    for parent, folders, names in os.walk(folder, onerror=note):
        folders[:] = sorted(name for name in folders if not _is_left(name))
        links = [Path(parent, name) for name in folders if Path(parent, name).is_symlink()]
        unlisted += [(link, "links to folders are not followed") for link in links]
        found += [Path(parent, name) for name in names if _counts(name)]
    return sorted(found), unlisted


def _is_left(name: str) -> bool:
    """Return True for a name that is hidden, or a file manager's."""
    return name.startswith(".") or name.lower() in _LEFT


def _counts(name: str) -> bool:
    """Return True for the name of a file to read, or to name in `skipped`."""
    return not _is_left(name) and not name.lower().endswith(_NOTES)


def read_image(path: str | os.PathLike[str], channels: int = 3) -> np.ndarray:
    """Read an image as `ImageFolder` does; needs Pillow.

    Args:
        path: its file, of any format that Pillow reads; as long and large as in an `ImageFolder`.
        channels: 3 for colour, 1 for grey.

    Shape:
        -> (H, W, C) f32 from 0 to 1

    Raises:
        FormatError: the file is missing or cannot be read.
        OutOfMemoryError: its pixels have no room in the memory.
        ImportError: Pillow is not there.

    Example:
        >>> read_image("pets/cat/1.jpg").shape  # doctest: +SKIP
        (480, 640, 3)
    """
    pillow("read_image")
    if checks.whole("read_image", "channels", channels) not in (1, 3):
        raise ValueError(f"read_image: channels must be 1 or 3; got {channels!r}")
    file = checks.path("read_image", "path", path)
    if not file.exists():
        raise FormatError(f"read_image: {file}: no such file")
    try:
        return _read(file, channels)
    except MemoryError as error:
        raise OutOfMemoryError(
            f"read_image: {file}: no memory for its pixels: make the image smaller"
        ) from error
    except Exception as error:
        cause = _cause(error, file)
        raise FormatError(f"read_image: {file}: cannot be read: {cause}") from error


def _read(file: Path, channels: int) -> np.ndarray:
    """Decode, turn as the camera was held, and convert."""
    library = pillow("ImageFolder")
    with _opened(file) as opened:
        library.ImageOps.exif_transpose(opened, in_place=True)
        if opened.mode == "F":
            raise ValueError("floating pixels have no known range; save it as PNG or JPEG")
        columns, rows = opened.size
        array = np.empty((rows, columns, channels), np.float32)
        # In bands, so that there is one large copy, and not one for each step.
        step = max(1, _BAND_PIXELS // columns)
        for top in range(0, rows, step):
            band = opened.crop((0, top, columns, min(top + step, rows)))
            array[top : top + step] = _floats(band, channels)
    return array


def _floats(image: Any, channels: int) -> np.ndarray:
    """Return the pixels of a picture from 0 to 1, (H, W, channels) or (H, W, 1)."""
    library = pillow("ImageFolder")
    if image.mode.startswith("I"):  # 16 bits; Pillow's own conversion would clip them
        grey: np.ndarray = np.clip(np.asarray(image, np.float32) / 65535.0, 0.0, 1.0)
        return grey[:, :, None]
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        image = image.convert("RGBA")
        white = library.Image.new("RGBA", image.size, (255, 255, 255, 255))
        image = library.Image.alpha_composite(white, image)
    array = np.array(image.convert("L" if channels == 1 else "RGB"), np.float32)
    array /= 255.0
    return array.reshape(*array.shape[:2], channels)


def _opened(file: Path) -> Any:
    """A file whose header says that it is an image of a size that can be."""
    images = pillow("ImageFolder").Image
    if not file.is_file():  # opening a pipe would wait for ever
        raise ValueError("is a broken link" if file.is_symlink() else "is no regular file")
    images.init()
    own = images.registered_extensions().get(file.suffix.lower())
    # Formats without a signature take almost anything; they are tried only by their suffix.
    known = [
        name
        for name, (_, signature) in images.OPEN.items()
        if name not in _NEVER and (signature is not None or name == own)
    ]
    try:
        opened = images.open(file, formats=known)
    except pillow("ImageFolder").UnidentifiedImageError as error:
        cause = _unknown(file, own)
        raise (ValueError(cause) if cause else error) from None
    most, (columns, rows) = images.MAX_IMAGE_PIXELS, opened.size
    cause = ""
    if most is not None and rows * columns > most:
        cause = f"more than {most:,} pixels (PIL.Image.MAX_IMAGE_PIXELS): make it smaller"
    elif max(rows, columns) > _MOST_ASPECT * min(rows, columns):
        cause = f"more than {_MOST_ASPECT} times as long as wide: cut it"
    if cause:
        opened.close()
        raise ValueError(f"{columns} x {rows} is {cause}")
    return opened


def _unknown(file: Path, own: str | None) -> str:
    """Why Pillow does not know a file by its suffix; nothing where it should."""
    suffix = file.suffix.lower()
    if own in _NEVER:
        return f"{own} is a program to be run, not an image; convert it to PNG"
    if own is not None:
        return ""
    if suffix in (".heic", ".heif", ".hif"):
        return "Pillow reads no HEIC; convert it to JPEG or PNG"
    return f"Pillow reads no {suffix or 'such file'}; if it is an image, convert it to PNG or JPEG"
