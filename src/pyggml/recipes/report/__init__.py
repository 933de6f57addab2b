# SPDX-License-Identifier: MIT
"""The plots and the HTML report of a run."""

from .comparison import write_comparison
from .examples import ClassResults, WorstExamples
from .plot import check_plot, plot_curves, plot_matrix
from .report import system_info, write_report
from .training_curves import plot_loss

__all__ = [
    "ClassResults",
    "WorstExamples",
    "check_plot",
    "plot_curves",
    "plot_loss",
    "plot_matrix",
    "system_info",
    "write_comparison",
    "write_report",
]
