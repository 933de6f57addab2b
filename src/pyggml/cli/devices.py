# SPDX-License-Identifier: MIT
"""`pyggml devices`: the devices of this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from .errors import friendly_errors

__all__ = ["devices"]


def devices(
    ops: Annotated[
        bool,
        typer.Option("--ops", help="Tell which ops of a training step the CPU computes, by model."),
    ] = False,
) -> None:
    """List the devices that --device can name."""
    with friendly_errors():
        from ..backend.device import device
        from ..backend.device import devices as all_devices
        from ..backend.library import cpu_variant
        from ..train import format_bytes, step_fallbacks
        from ..train.fallbacks import tell_fallbacks

        best = device("auto").name
        rows = [("name", "free", "total", "description")]
        for each in all_devices():
            variant = cpu_variant() if each.kind == "cpu" else ""
            rows.append(
                (
                    each.name + (" (auto)" if each.name == best else ""),
                    format_bytes(each.memory_free),
                    format_bytes(each.memory_total),
                    each.description + (f", variant {variant}" if variant else ""),
                )
            )
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        for name, free, total, description in rows:
            print(f"{name:<{widths[0]}}  {free:>{widths[1]}}  {total:>{widths[2]}}  {description}")
        if not ops:
            return
        for each in (d for d in all_devices() if d.kind != "accel"):
            print(f"\nops of a training step that {each.name} leaves to the CPU")
            fallbacks = step_fallbacks(each)
            width = max(map(len, fallbacks))
            for model, found in fallbacks.items():
                print(f"  {model:<{width}}  {tell_fallbacks(found)}")
