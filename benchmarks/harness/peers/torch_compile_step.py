# SPDX-License-Identifier: MIT
"""A training step of GPT-2 in PyTorch, the model compiled."""

from __future__ import annotations

from . import torch_step


class Step(torch_step.Step):
    compiled = True
