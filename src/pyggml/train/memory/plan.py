# SPDX-License-Identifier: MIT
"""The memory that a training takes, known before its first step."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...backend.sizes import format_bytes
from ...debug.tables import html_table
from ...errors import OutOfMemoryError

__all__ = ["MemoryPlan", "OutOfMemoryError"]


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes by kind.

    Args:
        parameters: weights; of several ranks, those that this one holds at once.
        gradients: one per trained weight; of several ranks, those that this one keeps, and the
            buckets that it sends.
        optimizer: the optimizer's state; of several ranks, this one's part.
        activations: the planned buffers of the training and evaluation graphs.
        device: name of the device.
        device_free: bytes that were free on the device before the run; None when unknown.
        fallbacks: number of ops of a step that the CPU computes for the device, by name. Operands
            are copied to the CPU, results back to the device.
    """

    parameters: int
    gradients: int
    optimizer: int
    activations: int
    device: str
    device_free: int | None = None
    fallbacks: dict[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """All kinds together."""
        return self.parameters + self.gradients + self.optimizer + self.activations

    def rows(self) -> list[tuple[str, int]]:
        """Kinds and their bytes, the total last."""
        return [
            ("parameters", self.parameters),
            ("gradients", self.gradients),
            ("optimizer state", self.optimizer),
            ("activations", self.activations),
            ("total", self.total),
        ]

    def _repr_html_(self) -> str:
        """Return the rows for a notebook."""
        rows = [(name, format_bytes(size)) for name, size in self.rows()]
        if self.device_free is not None:
            rows.append(("free on the device", format_bytes(self.device_free)))
        rows += [(f"{name} on the CPU", str(count)) for name, count in self.fallbacks.items()]
        return html_table(rows, caption=self.device)

    def check(self) -> None:
        """Raise if the device has no room.

        Raises:
            OutOfMemoryError: names the numbers and the ways out.
        """
        if not self.device_free or self.total <= self.device_free:
            return
        kinds = ", ".join(f"{name} {format_bytes(size)}" for name, size in self.rows()[:-1])
        raise OutOfMemoryError(
            f"train: the run needs {format_bytes(self.total)} ({kinds}), but {self.device} has "
            f"{format_bytes(self.device_free)} free: use a smaller `batch_size` with `accumulate`, "
            "a shorter `seq_len`, or a smaller model"
        )
