# SPDX-License-Identifier: MIT
"""The command line: `pyggml train-llm`, `train-image`, `generate`, `infer`, `demo`, and others."""

from __future__ import annotations

import signal
import sys
from contextlib import suppress

__all__ = ["main"]


def main() -> None:
    """Run the command line; the entry point of the script `pyggml`.

    Raises:
        SystemExit: always, with the exit code.
    """
    try:
        from .app import app
        from .ranks import join

        join()
        app()
    except OSError as error:  # of the help and the usage; commands tell their own
        from .errors import EXIT_FAILED, EXIT_PIPE
        from .terminal import say

        if isinstance(error, BrokenPipeError):
            sys.exit(EXIT_PIPE)
        with suppress(OSError):
            say(f"error: {error.filename or 'stdout'}: {error.strerror or error}", error=True)
        sys.exit(EXIT_FAILED)
    except MemoryError as error:  # of reading the command line
        from .errors import explain
        from .terminal import say

        message, code = explain(error)
        say(message, error=True)
        sys.exit(code)
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        print(
            f'error: the command line needs {error.name}: pip install "pyggml[cli]"',
            file=sys.stderr,
        )
        sys.exit(1)
    except KeyboardInterrupt:  # while the commands were imported
        print("interrupted", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
    finally:
        from .terminal import settle

        settle()
