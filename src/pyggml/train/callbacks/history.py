# SPDX-License-Identifier: MIT
"""The steps and evaluations of a training as a table."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np

from ...debug.tables import html_table
from ..metrics.records import EvalMetrics, StepMetrics
from .progress import units_of
from .writers import Callback

__all__ = ["History"]

_FIELDS = ("step", "loss", "lr", "grad_norm", "tokens", "tokens_per_s", "elapsed_s")
_ROWS = 20


class History(Callback):
    """A table with a row for each step of a training, its evaluations among them.

    The columns of a step are `step`, `loss`, `lr`, `grad_norm`, `tokens`, `tokens_per_s` and
    `elapsed_s`; a task that does not count tokens has its own units instead, as `examples` and
    `examples_per_s`. Those of an evaluation have the name of the set before them, as
    `validation/loss` and `validation/accuracy`. What a row lacks is NaN. A resumed training has the
    rows of what this `Trainer` computed. `Trainer.history` is one.

    Attributes:
        evaluations: all of them, in order.

    Example:
        >>> history = History()
        >>> history.on_step(None, StepMetrics(1, 2.5, 1e-3, 0.5, 64, 100.0, 0.64))
        >>> history["loss"]
        array([2.5])
    """

    undivided = True  # a row is there with all its columns, or not

    def __init__(self) -> None:
        self._steps = {name: array("d") for name in _FIELDS}
        self._units = "tokens"
        self.evaluations: list[EvalMetrics] = []

    def on_start(self, trainer: Any) -> None:
        """Drop what comes after the step at which the training begins."""
        self._units = units_of(trainer)
        kept = sum(step <= trainer.step for step in self._steps["step"])
        for values in self._steps.values():
            del values[kept:]
        self.evaluations = [each for each in self.evaluations if each.step <= trainer.step]

    def on_step(self, trainer: Any, metrics: StepMetrics) -> None:
        """Add a row."""
        for name, values in self._steps.items():
            values.append(getattr(metrics, name))

    def on_evaluation(self, trainer: Any, metrics: EvalMetrics) -> None:
        """Add the columns of an evaluation."""
        self.evaluations.append(metrics)

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    def __iter__(self) -> Iterator[str]:
        """Go through the names of the columns, as a data frame does."""
        return iter(self.columns)

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._rows())

    def _rows(self) -> np.ndarray:
        """Return the steps of the rows."""
        evaluated = [each.step for each in self.evaluations]
        return np.union1d(np.array(self._steps["step"]), np.array(evaluated, np.float64))

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        found = dict.fromkeys(map(self._column, _FIELDS))
        for each in self.evaluations:
            found.update(dict.fromkeys(f"{each.name}/{name}" for name in _scores(each)))
        return list(found)

    def _column(self, field: str) -> str:
        """Return the name of a field of the steps as a column."""
        return field.replace("tokens", self._units)

    def __getitem__(self, name: str) -> np.ndarray:
        """Return a column.

        Args:
            name: one of `columns`.

        Returns:
            Its numbers, one for each row; `step` has integers.

        Raises:
            KeyError: there is no such column.
        """
        if name not in self.columns:
            raise KeyError(f"History: no column {name!r:.60}; there are {', '.join(self.columns)}")
        rows = self._rows()
        if name == "step":
            return rows.astype(np.int64)
        found = np.full(len(rows), np.nan)
        for field, values in self._steps.items():
            if name == self._column(field):
                found[np.searchsorted(rows, np.array(self._steps["step"]))] = np.array(values)
                return found
        for each in self.evaluations:
            value = {f"{each.name}/{key}": score for key, score in _scores(each).items()}.get(name)
            if value is not None:
                found[np.searchsorted(rows, each.step)] = value
        return found

    def keys(self) -> list[str]:
        """Return the names of the columns, so that `dict(history)` is `to_dict()`."""
        return self.columns

    @property
    def history(self) -> dict[str, np.ndarray]:
        """The columns by name, as Keras has them; `to_dict()`."""
        return self.to_dict()

    def items(self) -> list[tuple[str, np.ndarray]]:
        """Return the columns with their names."""
        return list(self.to_dict().items())

    def to_dict(self) -> dict[str, np.ndarray]:
        """Return the columns by name.

        Example:
            >>> list(History().to_dict())[:2]
            ['step', 'loss']
        """
        return {name: self[name] for name in self.columns}

    def to_pandas(self) -> Any:
        """Return a data frame with these columns.

        Raises:
            ImportError: pandas is not installed.
        """
        try:
            pandas: Any = import_module("pandas")
        except ModuleNotFoundError as error:
            raise ImportError(
                "History.to_pandas: needs the package pandas; pip install pandas, or take to_dict()"
            ) from error
        return pandas.DataFrame(self.to_dict())

    def plot(self, *columns: str, ax: Any = None) -> Any:
        """Draw columns over the steps.

        Args:
            columns: their names; none draws the losses.
            ax: matplotlib's axes to draw into; None makes a figure.

        Returns:
            The axes; `.figure.savefig(FILE)` writes the picture.

        Raises:
            ImportError: matplotlib is not installed.
            KeyError: there is no such column.
        """
        names = columns or [each for each in self.columns if each.split("/")[-1] == "loss"]
        drawn = {name: self[name] for name in names}
        if ax is None:
            try:
                import matplotlib.pyplot as plt
            except ModuleNotFoundError as error:
                raise ImportError(
                    "History.plot: needs the package matplotlib; pip install matplotlib"
                ) from error
            _, ax = plt.subplots()
        steps = self["step"]
        for name, values in drawn.items():
            known = ~np.isnan(values)
            mark = "o" if "/" in name else ""
            ax.plot(steps[known], values[known], marker=mark, markersize=3, label=name)
        ax.set_xlabel("step")
        if drawn:
            ax.legend()
        return ax

    def _texts(self) -> list[list[str]]:
        """Return at most twenty rows, the first and the last among them."""
        table = list(self.to_dict().values())
        places = np.unique(np.linspace(0, max(len(self) - 1, 0), _ROWS).round().astype(int))
        rows = places[: len(self)]
        return [["" if np.isnan(c[i]) else f"{c[i]:.6g}" for c in table] for i in rows]

    def __repr__(self) -> str:
        rows = [self.columns, *self._texts()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ("  ".join(map(str.rjust, row, widths)) for row in rows)
        return "\n".join([*lines, f"{len(self)} rows"])

    def _repr_html_(self) -> str:
        """Return the table for a notebook."""
        return html_table(self._texts(), self.columns, f"{len(self)} rows")


def _scores(metrics: EvalMetrics) -> dict[str, float]:
    """Return the numbers of an evaluation."""
    known = {
        "loss": metrics.loss,
        "perplexity": metrics.perplexity,
        "bits_per_byte": metrics.bits_per_byte,
        **metrics.metrics,
    }
    return {name: value for name, value in known.items() if value is not None}
