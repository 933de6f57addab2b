# SPDX-License-Identifier: MIT
"""Choose ggml's CPU library: compare the instruction sets of each with those of this CPU."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from .library_files import check_module, not_imported

__all__ = ["built_for", "choose_cpu", "present"]

check_module("_cpu")
try:
    from .._cpu import built_for as _compiled
    from .._cpu import present as _found
except ImportError as error:
    raise not_imported(error) from error


def built_for() -> dict[str, frozenset[str]]:
    """Return the instruction sets of each CPU library of this build, by the name of its variant.

    A build for one CPU has one library, under the name "". The sets that every CPU of the
    architecture has are left out.

    Example:
        >>> len(built_for()) > 0
        True
    """
    found = {}
    for line in _compiled().split("\n"):
        name, _, sets = line.rpartition(":")
        found[name] = frozenset(sets.split())
    return found


def present() -> frozenset[str]:
    """Return the names of the instruction sets that this CPU has and the system supports.

    Example:
        >>> any(present() >= sets for sets in built_for().values())
        True
    """
    return frozenset(_found())


def choose_cpu(
    wanted: str = "",
    built: Mapping[str, Collection[str]] | None = None,
    found: Collection[str] | None = None,
) -> str:
    """Return the name of the variant to load: the one with most instruction sets, all of them here.

    Without this check the first instruction that the CPU lacks ends the process (SIGILL).

    Args:
        wanted: the variant's name, as PYGGML_CPU gives it; "" means the best.
        built: instruction sets by variant; None means `built_for()`.
        found: names of instruction sets; None means `present()`.

    Raises:
        ImportError: there is no such variant, or the CPU lacks a set that it uses.

    Example:
        >>> built = {"x64": [], "haswell": ["avx", "avx2"], "skylakex": ["avx", "avx2", "avx512f"]}
        >>> choose_cpu("", built, found=["avx", "avx2", "fma"])
        'haswell'
        >>> choose_cpu("skylakex", built, found=["avx", "avx2", "fma"])
        Traceback (most recent call last):
            ...
        ImportError: pyggml: ... got one without avx512f; ...
    """
    built = built_for() if built is None else built
    here = set(present() if found is None else found)
    names = sorted(filter(None, built), key=lambda name: len(built[name]))
    if wanted and wanted not in names:
        known = (
            f"name a variant of this build: {', '.join(names)}"
            if names
            else ("be unset, as this build has no variants")
        )
        raise ImportError(f"pyggml: PYGGML_CPU must {known}; got {wanted!r}; unset it")
    asked = [wanted] if wanted else list(built)
    fitting = [name for name in asked if here.issuperset(built[name])]
    if fitting:
        return max(fitting, key=lambda name: len(built[name]))
    fewest = min([sorted(set(built[name]) - here) for name in asked], key=len)
    missing = ", ".join(fewest)
    if wanted:
        raise ImportError(
            f"pyggml: the CPU must have the instruction sets of PYGGML_CPU={wanted}; got one"
            f" without {missing}; unset it"
        )
    raise ImportError(
        "pyggml: the CPU must have the instruction sets that this build uses; got one without"
        f" {missing}; build it on this machine: `pip cache remove pyggml`, then `pip install .` in"
        " the project's folder"
    )
