# SPDX-License-Identifier: MIT
"""The task of a fine-tuning: to write text, or to tell the class of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import shown
from ...options import Options, option
from .preference_options import SFT, check_unread

__all__ = ["CLASSIFY", "TEXT", "TaskOptions", "check_task"]

TEXT, CLASSIFY = "text", "classify"
_CLASSES = "classes"


def _read_labels(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(names) == 1 or len(set(names)) != len(names):
        raise ValueError(f"must be two different names or more; got {shown(names)}")
    return names


@dataclass(frozen=True, kw_only=True)
class TaskOptions(Options):
    """The task of a fine-tuning.

    Example:
        >>> TaskOptions(task="classify", labels=("no", "yes")).labels
        ('no', 'yes')
    """

    task: str = option(
        TEXT,
        "Task: text learns to write; classify puts a head on the base and learns the classes of "
        "rows of text and label, or a reward of rows of prompt, chosen and rejected.",
        choices=(TEXT, CLASSIFY),
        on_resume="same",
    )
    labels: tuple[str, ...] = option(
        (),
        "Names of the classes, in their order. Without them the classes are the labels that occur, "
        "in the order of numbers or of the alphabet.",
        metavar="NAME",
        read=_read_labels,
        needs=(_CLASSES,),
        on_resume="same",
    )

    def missing(self) -> Mapping[str, tuple[str, str]]:
        """Return that there are no classes."""
        if self.task == CLASSIFY:
            return {}
        return {_CLASSES: (f"`task`={self.task}", f"give `task`={CLASSIFY}")}


# Options that texts of classes do not read, with their defaults.
_UNREAD = {
    "method": SFT,
    "train_on": "answers",
    "format": None,
    "unique": False,
    "data_weight": (),
    "packing": True,
    "teacher": None,
    "qat": None,
}


def check_task(config: Any) -> None:
    """Raise for options that do not go with the task of a fine-tuning.

    Args:
        config: a `FinetuneConfig`.

    Raises:
        ConfigError: names the option.
    """
    task = config.task.task
    if task == TEXT:
        return
    check_unread(config, "task", TEXT, _UNREAD, "a text has one label")
