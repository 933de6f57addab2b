# SPDX-License-Identifier: MIT
"""An extension of griffe: show the examples of docstrings as code.

The docstrings head them with "Example:", griffe knows "Examples:"; examples in the running text get
a fence.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

BARE = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)


class Examples(griffe.Extension):
    """Rewrite each docstring before it is parsed."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring is not None:
            text = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
            obj.docstring.value = BARE.sub(r"```pycon\n\g<0>\n```", text)
