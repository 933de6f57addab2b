# SPDX-License-Identifier: MIT
"""The checkpoints that a run writes, prunes and goes back to."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from typing import Any

from ...backend.device import alone
from ...backend.scopes import Scope, Scopes
from ...backend.undivided import Undivided
from ..run import Run
from .best import bring_best, keep_best
from .checkpoint import load_checkpoint, make_latest, save_checkpoint
from .folders import BEST, STATE, clear_ahead, latest_checkpoint, make_folder, read_best
from .manifest import is_whole
from .restore import optimizer_state, rank_state, restore, state_of
from .state import TrainState
from .whole import WholeSteps

__all__ = ["Checkpoints"]

_log = logging.getLogger("pyggml.train")


class Checkpoints:
    """Writes the checkpoints of a run, and brings the run back to one.

    Args:
        run: the run.
        directory: folder of the checkpoints; None keeps none.

    Attributes:
        directory: the folder.
        last: the last checkpoint written or resumed from, or None.
        best: the checkpoint of the lowest validation loss, or None.
        whole: the place of the last whole step.
    """

    def __init__(self, run: Run, directory: Path | None):
        self.directory = directory
        self.last: Path | None = None
        self.best: Path | None = None
        self.whole = WholeSteps(run, directory is not None)
        self._run, self._saved = run, (-1, 0)
        self._files = threading.Lock()
        self._here = Scopes()

    def changing(self) -> Scope:
        """Refuse a save of this thread inside the block, as from the handler of a signal."""
        return Scope(self._here, True)

    def _need_rest(self, method: str) -> None:
        """Raise in the middle of a step or of another save of this thread."""
        if self._here.entries:
            raise RuntimeError(
                f"Trainer.{method}: the handler of a signal came in the middle of a step, or of a"
                " save, which must end first: return from it; fit() writes a checkpoint when a"
                " signal asks for its end, and a callback's on_step may save between two steps"
            )

    def _need_average(self) -> None:
        """Raise where the ranks' weights differ, of which a checkpoint has those of one."""
        run = self._run
        if run.is_apart:
            raise RuntimeError(
                f"Trainer.save: the run must be at an average of the ranks' weights, one of every"
                f" {run.options.sync_every} steps, as `sync_every` says; it is at step {run.step}"
            )

    @property
    def is_saved(self) -> bool:
        """True if the last checkpoint holds all that the run has done."""
        return self._saved == self._done

    @property
    def _done(self) -> tuple[int, int]:
        """The steps of the run, and the step of its last evaluation."""
        return self._run.step, self._run.evaluated or 0

    def begin(self) -> None:
        """Make the folder, and put checkpoints aside that are ahead of the run.

        It also finishes a save that a kill left before `latest` or the removal of older ones.

        Raises:
            CheckpointError: the folder cannot be used, or holds another run's checkpoints.
        """
        if self.directory is None:
            return
        if not self._run.group.is_first:
            return
        make_folder(self.directory)
        clear_ahead(self.directory, self._run.step)
        last = self.last
        if last is not None and last.parent == self.directory and (last / STATE).is_file():
            make_latest(last, self._run.options.value("keep"))
        if self._run.step:
            self.find_best()

    def save(self) -> Path:
        """Write a checkpoint of the run on rank 0, for which the others wait.

        Raises:
            ValueError: the run keeps no checkpoints.
            CheckpointError: it could not be written; the earlier ones are whole.
            RuntimeError: a signal's handler calls it in the middle of a step or of a save; or the
                ranks have not averaged their weights yet.
        """
        self._need_rest("save")
        self._need_average()
        self._gather()
        path = self._run.shards.lend(self.write)
        if not self._run.group.is_first:
            self.last, self._saved = path, self._done
        return path

    def write(self) -> Path:
        """Write a checkpoint of the run on this rank, of the last whole step.

        Raises:
            ValueError: the run keeps no checkpoints.
            CheckpointError: it could not be written; the earlier ones are whole.
        """
        self._need_rest("save")
        folder, run = self._folder("save"), self._run
        with self.changing():
            with alone():  # between two steps of a training in another thread
                self.whole.need("save")
                self._need_average()
                done, contents = self._done, self._contents()
            with self._files:  # whoever holds it computes nothing, so that none waits for `alone`
                if self.last is not None and self._saved > done:
                    return self.last  # another thread has saved a later step since
                path = save_checkpoint(folder, *contents, run.options.value("keep"))
                self.last, self._saved = path, done
        run.tell("on_checkpoint", path)
        return path

    def _contents(self) -> tuple[TrainState, dict[str, Any], dict[str, Any]]:
        """Return what a checkpoint holds: where the run stands, weights, and the optimizer."""
        run = self._run
        self.whole.put_back()  # a step of another thread has failed, which goes back just now
        return self._state(), run.shards.weights(run.weights), optimizer_state(run)

    def _state(self) -> TrainState:
        """Return where the run stands."""
        position = self.whole.position
        loader = self.whole.loader_state() if position is None else position
        return state_of(self._run, loader, self.whole.generator_state())

    def save_best(self) -> None:
        """Keep the checkpoint of this step apart, as the best; rank 0 writes, and all call it.

        Raises:
            ValueError: the run keeps no checkpoints.
            CheckpointError: it could not be written; the best before is as it was.
        """
        group = self._run.group
        if group.any(group.is_first and not self.is_saved):
            self._gather()
            self._run.shards.lend(self._write_best)
        elif group.is_first:
            self._write_best()

    def _write_best(self) -> None:
        """Keep the checkpoint of this step apart, as the best."""
        run, folder = self._run, self._folder("save_best")
        saved = self.last if self.is_saved else None
        with self.changing():
            with alone():
                contents = (self._state(), {}, {}) if saved else self._contents()
            with self._files:
                self.best = keep_best(folder, *contents, saved)
        if saved is None:
            self.last = self.best
        run.tell("on_best", self.best)

    def _gather(self) -> None:
        """Bring to rank 0 what each rank has by itself."""
        if self._run.local is not None:
            self._run.local.gather(rank_state(self._run))

    def _folder(self, method: str) -> Path:
        if self.directory is None:
            raise ValueError(f"Trainer.{method}: a checkpoint_dir is needed; got none")
        return self.directory

    def find_best(self) -> None:
        """Take note of the best checkpoint on the disk, so that no worse one replaces it.

        It is written where the run was killed before it could be. One that is ahead of the run's
        step is of another course and left alone; `begin` puts it aside.

        Raises:
            CheckpointError: it could not be written.
        """
        run, folder = self._run, self._folder("resume")
        kept, best, keeps = read_best(folder), run.best, run.options.value("keep_best")
        self.best, place = None, folder / BEST
        if kept is not None and kept["step"] > run.step:
            return
        is_damaged = os.path.lexists(place) and not is_whole(place)
        if is_damaged:
            _log.warning("checkpoint: %s is damaged; the run goes on without it", place)
            kept = None
        if kept is not None and (best is None or kept["loss"] < best["loss"]):
            # The checkpoint that the run goes on from does not know of it.
            run.lowest.record = {"stale": 0, **(best or {}), **kept}
        elif run.is_best and keeps and (kept or {}).get("step") != run.step:
            self._write_best()
        elif kept is None and best is not None and keeps and bring_best(folder, self.last, best):
            is_damaged = False
        if place.is_dir() and not is_damaged:
            self.best = place

    def resume(self, path: Path | None) -> int:
        """Bring the run back to a checkpoint.

        Args:
            path: its directory; None takes the newest of the folder, which may be the best.

        Returns:
            The step it was written at; 0 where there is none yet.

        Raises:
            FormatError: the checkpoint is damaged or of another run; nothing has changed then.
        """
        if path is None:
            path = latest_checkpoint(self._folder("resume"))
            if path is None:
                return 0
        checkpoint = load_checkpoint(path)
        with alone(), Undivided():  # other threads, and handlers, see all of it, or none
            restore(self._run, checkpoint)
            self.whole.forget()
            self.last, self._saved = path, self._done
        if self.directory is not None:
            self.find_best()
        return self._run.step
