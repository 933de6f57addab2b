# SPDX-License-Identifier: MIT
"""`pyggml devices`: what there is to compute on."""

from __future__ import annotations

from .errors import friendly_errors

__all__ = ["devices"]


def devices() -> None:
    """List the devices that --device can name."""
    with friendly_errors():
        from ..device import device
        from ..device import devices as all_devices
        from ..train import format_bytes

        best = device("auto").name
        rows = [("name", "free", "total", "description")]
        for each in all_devices():
            rows.append(
                (
                    each.name + (" (auto)" if each.name == best else ""),
                    format_bytes(each.memory_free),
                    format_bytes(each.memory_total),
                    each.description,
                )
            )
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        for name, free, total, description in rows:
            print(f"{name:<{widths[0]}}  {free:>{widths[1]}}  {total:>{widths[2]}}  {description}")
