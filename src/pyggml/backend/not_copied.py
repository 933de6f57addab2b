# SPDX-License-Identifier: MIT
"""The base of objects that hold graphs or buffers of ggml, of which there is no copy."""

from __future__ import annotations

from typing import Any, SupportsIndex

__all__ = ["NotCopied"]


class NotCopied:
    """An object on which `copy` and `pickle` raise; the message says what to do instead."""

    __slots__ = ()

    instead = "make another one"

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        raise TypeError(
            f"{type(self).__name__}: an object with memory of a device cannot be copied or"
            f" pickled; {self.instead}"
        )
