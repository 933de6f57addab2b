# SPDX-License-Identifier: MIT
"""The options of a script that trains, and one line for each of its failures."""

from __future__ import annotations

import os
import sys
import traceback
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from types import TracebackType

from ..errors import FormatError, printable
from .report.plot import check_plot

__all__ = ["script_options"]

# Errors that a user mends: a file, a package. Others are mistakes in the script, whose line counts.
_MENDED_OUTSIDE = (OSError, ImportError, FormatError)


def script_options(parser: ArgumentParser, *, plot: str = "the losses") -> Namespace:
    """Parse a script's options, and check now what would fail after the training.

    Adds `--plot FILE`, whose folder and package are looked for at once, and `--seed N`. From then
    on a file or package that is missing or damaged ends the script with one line and status 1;
    with PYGGML_DEBUG=1 the traceback is shown as well.

    Args:
        parser: with the script's own options.
        plot: the content of the picture, in words.

    Returns:
        The options; `plot` is None or the file, `seed` a whole number.

    Raises:
        TypeError: parser is not an `argparse.ArgumentParser`.
        SystemExit: an option cannot be used.

    Example:
        >>> script_options(ArgumentParser()).seed  # doctest: +SKIP
        0
    """
    if not isinstance(parser, ArgumentParser):
        raise TypeError(
            f"script_options: parser must be an argparse.ArgumentParser; got {parser!r:.60}"
        )
    parser.add_argument("--plot", metavar="FILE", help=f"draw {plot} as PNG")
    parser.add_argument(
        "--seed", metavar="N", type=_seed, default=0, help="of what is drawn by chance; 0"
    )
    options = parser.parse_args()
    sys.excepthook = _tell
    if options.plot is not None:
        try:
            check_plot(options.plot)
        except (ImportError, OSError, ValueError) as error:
            sys.exit(f"error: {error}")
    return options


def _seed(text: str) -> int:
    """Return a whole number from 0."""
    if not text.isdecimal():
        raise ArgumentTypeError(f"must be a whole number from 0; got {text!r:.60}")
    return int(text)


def _tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an exception that nobody caught; for `sys.excepthook`."""
    debug = os.environ.get("PYGGML_DEBUG", "") not in ("", "0")
    mended_outside = isinstance(error, _MENDED_OUTSIDE)
    if debug or not mended_outside:
        traceback.print_exception(kind, error, trace)
    if mended_outside:
        print(printable(f"error: {error}", "\n\t"), file=sys.stderr)
