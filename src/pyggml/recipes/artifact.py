# SPDX-License-Identifier: MIT
"""The folder of a run's results, and its lock."""

from __future__ import annotations

import json
import os
import shutil
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..errors import ConfigError, FormatError
from ..io import atomic_write, clean_stale, make_dirs, read_regular
from ..io.atomic import is_leftover
from ..io.names import original, portable
from ..io.runs import RUN_KIND
from ..train.checkpoints.folders import CHECKPOINTS
from ..train.checkpoints.folders import clear as clear_checkpoints

__all__ = ["ArtifactDir", "check_outputs"]

# What a run, and the libraries of the logs, write into its folders.
_INSIDE = {
    "adapter": ("adapter_config.json", "adapter_model.safetensors"),
    "model": (
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "generation_config.json",
        "chat_template.jinja",
    ),
    "tensorboard": ("events.out.tfevents.*",),
    "wandb": ("run-*", "offline-run-*", "latest-run", "debug*.log", "wandb-resume.json"),
}
_FORMAT = 1


def check_outputs(who: str, paths: Iterable[Path]) -> None:
    """Raise before a training where its results could not be written after it.

    Args:
        who: the option that the message begins with.
        paths: of the results; names of files have an ending, those of folders have none.

    Raises:
        ConfigError: a pipe, a device, a folder or a loop of links has the name of a file, or
            something else that of a folder; or a link leads to a folder that is missing.
    """
    for path in paths:
        what = "file" if path.suffix else "folder"
        if path.exists():
            good = path.is_file() if path.suffix else path.is_dir()
        elif path.is_symlink():  # a file is made where the link leads to
            real = Path(os.path.realpath(path))
            good = bool(path.suffix) and real.parent.is_dir() and not os.path.lexists(real)
        else:
            good = True
        if not good:
            raise ConfigError(
                f"{who}: {path} must be a {what} of the run and is none: move it away"
            )


class ArtifactDir:
    """A run's folder: model, tokenizer, configuration, metrics, picture, checkpoints.

    `config.json` marks a folder as a run's. Nothing else is ever written into or removed.

    Args:
        path: the folder; it need not exist yet.

    Raises:
        ConfigError: the path is empty, or is none.
    """

    def __init__(self, path: str | Path):
        if not isinstance(path, (str, Path)):
            raise ConfigError(f"`artifact_dir` must be a path; got {path!r:.60}: give a folder")
        if not str(path):
            raise ConfigError("`artifact_dir` must not be empty: give a folder, or . for this one")
        self.path = Path(path)
        self._unlock: weakref.finalize[[int], ArtifactDir] | None = None
        self.model = self.path / "model.gguf"
        self.tokenizer = self.path / "tokenizer.json"
        self.config = self.path / "config.json"
        self.options = self.path / "config.toml"
        self.metrics = self.path / "metrics.jsonl"
        self.samples = self.path / "samples.jsonl"
        self.plot = self.path / "loss.png"
        self.report = self.path / "report.html"
        self.comparison_page = self.path / "comparison.html"
        self.tensorboard = self.path / "tensorboard"
        self.wandb = self.path / "wandb"
        self.checkpoints = self.path / CHECKPOINTS

    def places(self) -> list[Path]:
        """Return all that a run may write into the folder, in the order of its making."""
        return [
            self.model,
            self.tokenizer,
            # Beside tokenizer.json when that alone does not tell which tokens start and end a text.
            self.path / "tokenizer_config.json",
            self.config,
            self.options,
            self.metrics,
            self.samples,
            self.plot,
            self.report,
            self.comparison_page,
            self.tensorboard,
            self.wandb,
            self.checkpoints,
        ]

    def files(self) -> list[Path]:
        """Return the files and folders of the run that exist, in the order of their making."""
        return [path for path in self.places() if path.exists()]

    @property
    def holds_run(self) -> bool:
        """True if the folder has a run's configuration."""
        return self.config.exists() and self._is_run()

    def _is_run(self) -> bool:
        try:
            return self.read_config().get("kind") == RUN_KIND
        except FormatError:
            return False

    def check_new(self, overwrite: bool = False) -> None:
        """Raise if a new run may not go into the folder; change nothing.

        Args:
            overwrite: replace the files of an earlier run.

        Raises:
            ConfigError: the place is a file, is not writable, holds a run, or holds other files;
                or something else has the name of a file of the run.
        """
        self.check_place()
        if not self.path.exists():
            return
        if self.holds_run:
            if not overwrite:
                raise ConfigError(
                    f"`artifact_dir`={self.path} holds another run: continue it with `resume`, "
                    "replace it with `overwrite`, or give another `artifact_dir`"
                )
            check_outputs("`overwrite`", self.places())
            return
        self._need_config()
        others = sorted(p.name for p in self.path.iterdir() if not is_leftover(p.name))
        if others:
            shown = ", ".join(others[:3]) + (", …" if len(others) > 3 else "")
            raise ConfigError(
                f"`artifact_dir`={self.path} holds files that are no run of pyggml ({shown}): "
                "give a new or empty folder"
            )

    def check_resume(self) -> None:
        """Raise if the folder has no run to continue.

        Raises:
            ConfigError: there is no run, or it cannot be written to, as where a pipe has the name
                of a file of the run.
            FormatError: the run's configuration is damaged.
        """
        self.check_place()
        self._need_config()
        if not self.config.exists():
            raise ConfigError(
                f"`resume`: `artifact_dir`={self.path} holds no run: leave out `resume` to start "
                "one, or give the folder of a run"
            )
        if self.read_config().get("kind") != RUN_KIND:
            raise ConfigError(
                f"`resume`: {self.config} is not of a run of pyggml: give the folder of a run"
            )
        check_outputs("`resume`", self.places())

    def _need_config(self) -> None:
        """Raise where a run has lost its configuration."""
        if not self.config.exists() and self.checkpoints.is_dir():
            raise ConfigError(
                f"`artifact_dir`={self.path} holds checkpoints, but no {self.config.name}: put that"
                " file back from a copy, remove the folder if nothing in it is needed, or give"
                " another `artifact_dir`"
            )

    def check_place(self) -> None:
        """Raise unless the folder, or the nearest that exists above it, can be written to.

        Raises:
            ConfigError: it cannot, is a file, or lies below one.
        """
        place = self.path
        try:
            while not place.exists() and place != place.parent:
                if place.is_symlink():
                    raise ConfigError(
                        f"`artifact_dir`={self.path}: {place} is a link to nothing: remove it"
                    )
                place = place.parent
            is_folder = place.is_dir()
        except OSError as error:
            raise ConfigError(
                f"`artifact_dir`={self.path} cannot be reached ({error.strerror}): "
                "give another folder"
            ) from error
        if not is_folder:
            what = "is a file" if place == self.path else f"lies below {place}, which is a file"
            raise ConfigError(f"`artifact_dir`={self.path} {what}: give a folder")
        if not os.access(place, os.W_OK | os.X_OK):
            raise ConfigError(
                f"`artifact_dir`={self.path} is not writable (no permission in {place}, or"
                " its disk is read-only): give another folder, or change its permissions"
            )

    def create(self, config: dict[str, Any], overwrite: bool = False, hold: bool = False) -> None:
        """Make the folder, remove the files of an earlier run, and write the configuration.

        Args:
            config: the values that `read_config` returns.
            overwrite: replace an earlier run.
            hold: keep other processes out from then on, until `release`.

        Raises:
            ConfigError: the folder cannot be made or written to, another process trains in it,
                or `check_new` raises.
        """
        self.make()
        try:
            self.hold()
            try:
                # Another run may have come and gone since the caller looked.
                self.check_new(overwrite)
                self._clear()
                self.write_config(config)
            except BaseException:
                self.release()
                raise
            if not hold:
                self.release()
        except OSError as error:
            raise self._refusal(error) from error

    def make(self) -> None:
        """Make the folder and those above it.

        Raises:
            ConfigError: one cannot be made.
        """
        try:
            make_dirs(self.path)
        except OSError as error:
            raise self._refusal(error) from error

    def _refusal(self, error: OSError) -> ConfigError:
        """Return the error for a folder that cannot be written to."""
        return ConfigError(
            f"`artifact_dir`={self.path} cannot be written to ({error.strerror}): "
            "give another folder"
        )

    def _clear(self) -> None:
        """Remove the files of an earlier run, and no others: folders of it may hold some."""
        clean_stale(self.path)
        for path in self.files():
            # The mark stays: a kill on the way leaves a folder that is still a run's.
            if not path.is_dir():
                if path != self.config:
                    path.unlink()
                continue
            if path == self.checkpoints:
                clear_checkpoints(path)
            if path.is_symlink():  # to a folder that is not the run's
                continue
            for pattern in _INSIDE.get(path.name, ()):
                for own in path.glob(pattern):
                    if own.is_dir() and not own.is_symlink():
                        shutil.rmtree(own)
                    else:
                        own.unlink()
            with suppress(OSError):  # others' files are in it
                path.rmdir()

    def write_config(self, config: dict[str, Any]) -> None:
        """Replace `config.json`.

        Args:
            config: JSON-ready values.
        """
        with atomic_write(self.config, "w") as file:
            json.dump({"kind": RUN_KIND, "format": _FORMAT, **portable(config)}, file, indent=1)
            file.write("\n")

    def read_config(self) -> dict[str, Any]:
        """Return the content of `config.json`.

        Raises:
            FormatError: it is missing, damaged, or of another format.
        """
        try:
            record = original(json.loads(read_regular(self.config)))
        except OSError as error:
            raise FormatError(f"{self.config}: cannot be read ({error.strerror})") from error
        except (ValueError, RecursionError) as error:
            raise FormatError(
                f"{self.config}: cannot be read as JSON ({error}): restore it from a copy, or move "
                "the folder away"
            ) from error
        if not isinstance(record, dict):
            raise FormatError(
                f"{self.config}: must hold a JSON object; got {type(record).__name__}: "
                "restore it from a copy, or move the folder away"
            )
        if record.get("kind") == RUN_KIND and record.get("format") != _FORMAT:
            raise FormatError(
                f"{self.config}: format must be {_FORMAT}; got {record.get('format')!r}: "
                "was it written by another version of pyggml?"
            )
        return dict(record)

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Add the folder's name to errors of the disk that name no file.

        Raises:
            OSError: as it came, with a name.
        """
        try:
            yield
        except OSError as error:
            if error.filename is not None or not error.errno:
                raise
            raise OSError(error.errno, error.strerror, str(self.path)) from error

    def hold(self) -> None:
        """Keep other processes out of the run until `release`; the folder must exist.

        Raises:
            ConfigError: another process is training here.
        """
        try:
            import fcntl
        except ImportError:  # no such locks outside POSIX
            return
        if self._unlock is not None:
            return
        fd = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise ConfigError(
                f"`artifact_dir`={self.path} is in use by another process that trains: "
                "wait for it, or give another folder"
            ) from None
        except OSError:
            # Some network file systems cannot lock folders: the run goes on without a lock.
            os.close(fd)
            return
        self._unlock = weakref.finalize(self, os.close, fd)

    def release(self) -> None:
        """Let other processes in again."""
        if self._unlock is not None:
            self._unlock()
            self._unlock = None

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes out of the run for a while; within `hold`, until `release`.

        Raises:
            ConfigError: another process is training here.
        """
        if self._unlock is not None:
            yield
            return
        try:
            self.hold()
            yield
        finally:
            self.release()
