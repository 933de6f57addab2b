# SPDX-License-Identifier: MIT
"""Checks of several options together: all are known, and each that is given is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from ..errors import ConfigError, ConfigTypeError, shown
from .fields import Option

__all__ = ["check_known", "check_needs"]

# How alike a name must be to be a hint: of options, of which there are many, and of tables.
_ALIKE = {False: 0.75, True: 0.6}


def check_needs(
    who: str,
    options: Mapping[str, Option],
    values: Mapping[str, Any],
    missing: Mapping[str, tuple[str, str]],
) -> None:
    """Raise where an option is given that nothing reads.

    An option is given where its value is not the default; see `otherwise` of `Option`.

    Args:
        who: the class or function that reads them.
        options: by name.
        values: of the options, by name.
        missing: by the name of a need that is not met, what there is instead and the cure. A need
            that is an option is not met where this is 0, False or empty, or None with no value
            chosen for it.

    Raises:
        ConfigError: names the option, the need and the cure.

    Example:
        >>> keep = Option(name="keep", default=2, needs=("files",))
        >>> check_needs("Loop", {"keep": keep}, {"keep": 1}, {"files": ("none", "save")})
        Traceback (most recent call last):
            ...
        pyggml.errors.ConfigError: Loop: `keep` needs files; got none: save, or leave `keep` out
    """
    missing = dict(missing)
    for name, value in values.items():
        stands = options[name].otherwise if value is None else value
        if stands in (0, (), "") or (stands is None and not options[name].chosen):
            got = f"no `{name}`" if stands in (None, (), "") else f"`{name}`={stands}"
            missing[f"`{name}`"] = got, f"give `{name}`"
    for name, each in options.items():
        value = values[name]
        if not value or value == each.default:  # what is switched off needs nothing
            continue
        for needed in each.needs:
            only, need = (value, needed) if isinstance(needed, str) else needed
            need = f"`{need}`" if need in options else need
            if value == only and need in missing:
                got, cure = missing[need]
                told = f"`{name}`" if isinstance(needed, str) else f"`{name}`={value}"
                raise ConfigError(
                    f"{who}: {told} needs {need}; got {got}: {cure}, or leave `{name}` out"
                )


def check_known(
    who: str, known: Iterable[str], given: Mapping[Any, Any], tables: Iterable[str] = ()
) -> None:
    """Raise if there is no option of a name; the message has the nearest name.

    Args:
        who: the class whose options they are.
        known: the names of its options, or the options by name, whose flags are then hints too.
        given: values by name.
        tables: the names under which a dict is allowed.

    Raises:
        ConfigTypeError: `given` is not a dict.
        ConfigError: a name is unknown.

    Example:
        >>> check_known("TrainerOptions", ["steps", "lr"], {"steps": 3})
    """
    if not isinstance(given, Mapping):
        raise ConfigTypeError(f"{who}: options must be a dict; got {shown(given)}")
    flags = {o.flag: n for n, o in known.items() if o.flag} if isinstance(known, Mapping) else {}
    names, tables, told = {n: n for n in known} | flags, list(tables), []
    for name in sorted((n for n in given if n not in known), key=str):
        is_table = isinstance(given[name], Mapping)
        told.append(f"the table [{name}]" if is_table else repr(name))
        if name in tables:
            told[-1] += f" (which is a table: write [{name}])"
            continue
        alike = tables if is_table else names
        near = get_close_matches(str(name).replace("-", "_"), alike, 1, _ALIKE[is_table])
        told[-1] += f" (did you mean {names.get(near[0], near[0])}?)" if near else ""
    if told:
        more = f"; the tables are {', '.join(f'[{t}]' for t in tables)}" if tables else ""
        if not tables and not any("did you mean" in each for each in told):
            more = f"; the options are {', '.join(names)}"
        is_table = any(isinstance(value, Mapping) for value in given.values())
        raise ConfigError(
            f"{who}: every option must be known; got {', '.join(told)}"
            f"{more if is_table or not tables else ''}"
        )
