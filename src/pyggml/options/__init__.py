# SPDX-License-Identifier: MIT
"""Options as dataclass fields: each is written once, with its type, default, range and help.

The checks, the command line, configuration files and the reference page derive from the fields. A
class of options is a frozen dataclass below `Options`; `pyggml.recipes` puts several together.
Messages set the names of options in backticks.

    @dataclass(frozen=True, kw_only=True)
    class MachineOptions(Options):
        threads: int | None = option(None, "CPU threads", least=1, chosen="all cores")
"""

from .agreement import check_known, check_needs
from .fields import Option, option, options_of, plain
from .options import Options

__all__ = [
    "Option",
    "Options",
    "check_known",
    "check_needs",
    "option",
    "options_of",
    "plain",
]
