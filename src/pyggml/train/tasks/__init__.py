# SPDX-License-Identifier: MIT
"""Tasks: what goes with a kind of targets, and what a model predicts for many rows."""

from .kinds import TASKS, Metric, Task, find_task, split_metrics

__all__ = ["TASKS", "Metric", "Task", "find_task", "split_metrics"]
