# SPDX-License-Identifier: MIT
"""The command line: `pyggml train-llm`, `train-image`, `generate`, `infer`, `demo`, and others."""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from typing import NoReturn

import numpy as np

from .cures import cure_of

__all__ = ["main"]

# What a command imports and reads takes up to 66 MB of addresses. Where they end in the middle of
# it, pydantic's Rust or the C library ends the process.
_IMPORTS = 96 << 20


def main() -> None:
    """Run the command line; the entry point of the script `pyggml`.

    Raises:
        SystemExit: always, with the exit code.
    """
    try:
        np.empty(_IMPORTS, np.uint8)
        from .app import app
        from .ranks import join

        join()
        app()
    except BrokenPipeError:
        from .errors import EXIT_PIPE

        sys.exit(EXIT_PIPE)
    except MemoryError:  # of reading the command line, as the others here; nothing is imported now
        _fail("out of memory: raise the limit of the process (ulimit -v), or close other programs")
    except OSError as error:
        _fail(f"{error.filename or 'stdout'}: {error.strerror or error}{cure_of(error)}")
    except ImportError as error:
        if error.name in ("typer", "rich") and isinstance(error, ModuleNotFoundError):
            _fail(f'the command line needs {error.name}: pip install "pyggml[cli]"')
        if not cure_of(error):
            raise
        _fail(f"{error}{cure_of(error)}")
    except KeyboardInterrupt:  # while the commands were imported
        print("interrupted", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
    finally:
        with suppress(ImportError, MemoryError, OSError):
            from .terminal import settle

            settle()


def _fail(message: str) -> NoReturn:
    """End with one line."""
    with suppress(OSError):
        print(f"error: {message}", file=sys.stderr)
    sys.exit(1)
