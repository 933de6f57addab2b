# SPDX-License-Identifier: MIT
"""Compare the instruction sets that ggml is compiled for with those of this CPU."""

from __future__ import annotations

from collections.abc import Collection

__all__ = ["built_for", "check_cpu", "present"]

try:
    from .._cpu import built_for as _compiled
    from .._cpu import present as _found
except ImportError:  # nothing is built; the import of ggml raises and names the cure

    def _compiled() -> str:
        """No sets."""
        return ""

    def _found() -> list[str]:
        """No sets."""
        return []


def built_for() -> list[str]:
    """Return the names of the instruction sets that ggml's CPU backend is compiled for.

    Those that every CPU of the architecture has are left out.

    Example:
        >>> built_for() == sorted(built_for())
        True
    """
    return sorted(_compiled().split())


def present() -> frozenset[str]:
    """Return the names of the instruction sets that this CPU has and the system supports.

    Example:
        >>> present() >= set(built_for())
        True
    """
    return frozenset(_found())


def check_cpu(needed: Collection[str] | None = None, found: Collection[str] | None = None) -> None:
    """Raise unless this CPU has the instruction sets that ggml is compiled for.

    Without this check the first instruction that the CPU lacks ends the process (SIGILL).

    Args:
        needed: names of instruction sets; None means `built_for()`.
        found: names of instruction sets; None means `present()`.

    Raises:
        ImportError: a set is missing.

    Example:
        >>> check_cpu()
        >>> check_cpu(needed=["avx2", "avx512f"], found=["avx2"])
        Traceback (most recent call last):
            ...
        ImportError: pyggml: ... got one without avx512f; ...
    """
    needed = built_for() if needed is None else needed
    found = present() if found is None else found
    missing = sorted(set(needed) - set(found))
    if missing:
        raise ImportError(
            "pyggml: the CPU must have the instruction sets that this build uses; got one without"
            f" {', '.join(missing)}; build it on this machine: `pip cache remove"
            " pyggml`, then `pip install .` in the project's folder"
        )
