# SPDX-License-Identifier: MIT
"""What docs/training.md shows of losses, optimizers and schedules works, and all are named."""

import re
from pathlib import Path

import pytest

from pyggml import optim
from pyggml.nn import losses

TEXT = (Path(__file__).parents[2] / "docs" / "training.md").read_text("utf-8")
SECTIONS = ("Losses", "Optimizers", "Schedules")


def section(title):
    return re.split(r"^## ", TEXT.split(f"\n## {title}\n")[1], maxsplit=1, flags=re.M)[0]


@pytest.mark.parametrize("last", range(len(SECTIONS)))
def test_the_examples_run(last):
    """Each section goes on from those before it."""
    names: dict = {}
    for title in SECTIONS[: last + 1]:
        for block in re.findall(r"```python\n(.*?)```", section(title), re.DOTALL):
            exec(block, names)


def test_everything_is_named():
    for title, names in [
        ("Losses", losses.__all__),
        ("Optimizers", [kind.__name__ for kind in optim.optimizers().values()]),
        ("Schedules", [*optim.schedule_functions(), "warmup", "join", "ReduceOnPlateau"]),
    ]:
        missing = [name for name in names if f"`{name}" not in section(title)]
        assert not missing, title
