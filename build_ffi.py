# SPDX-License-Identifier: MIT
"""Write the C source of the module pyggml._ggml; CMake compiles it."""

from __future__ import annotations

import sys
from pathlib import Path

import cffi

INCLUDES = """
#include "ggml.h"
#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml-opt.h"
#include "gguf.h"
"""

# What is ours and not ggml's; CMake defines the constants from the stamp of vendor/ggml.
OURS = """
extern "Python" void pyggml_log(enum ggml_log_level level, const char * text, void * user_data);
extern "Python" void pyggml_abort(const char * message);
extern "Python" bool pyggml_watch(struct ggml_tensor * tensor, bool ask, void * user_data);
#define PYGGML_PATCH_COUNT ...
"""


def main(cdef: Path, target: Path) -> None:
    """Emit `target` from the declarations in `cdef`."""
    ffi = cffi.FFI()
    ffi.cdef(cdef.read_text(encoding="utf-8") + OURS)
    ffi.set_source("pyggml._ggml", INCLUDES)
    ffi.emit_c_code(str(target))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
