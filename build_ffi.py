# SPDX-License-Identifier: MIT
"""Write the C++ source of the module pyggml._ggml; CMake compiles it."""

from __future__ import annotations

import re
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

#include <cstdlib>
#include <exception>
#include <new>
#ifndef _WIN32
#include <pthread.h>
#endif
"""

# cffi puts these two around each call of a function. Ours raise MemoryError where ggml has no
# memory and cannot return a failure: it throws std::bad_alloc, which must not reach Python's C.
CALLS = """
static PyObject * no_memory(void) {
    PyErr_SetString(PyExc_MemoryError,
        "ggml: the system must grant memory; got none; use a smaller model or batch");
    return NULL;
}

// To throw, a thread needs storage of libstdc++'s; the process ends where it cannot be allocated.
// The thread's first call has it allocated. False: there is no memory for it.
#ifdef __GNUC__
__attribute__((noinline)) // once for all functions
#endif
static bool can_throw(void) {
#ifndef _WIN32
    static pthread_key_t key;
    static const bool    made = pthread_key_create(&key, NULL) == 0;
    if (!made || pthread_getspecific(key)) {
        return true;
    }
    // The C library keeps what is freed here for this thread: a piece of each size it may want.
    void * volatile pieces[65] = { NULL };
    bool   all        = (pieces[0] = malloc(8192)) != NULL;
    for (size_t i = 1; i < 65 && all; ++i) {
        all = (pieces[i] = malloc(16 * i)) != NULL;
    }
    for (void * piece : pieces) {
        free(piece);
    }
    if (!all) {
        return false;
    }
    // volatile: the compiler leaves out a call whose result nobody wants
    volatile int exceptions = std::uncaught_exceptions();
    (void) exceptions;
    return pthread_setspecific(key, &key) == 0;
#else
    return true;
#endif
}

#undef Py_BEGIN_ALLOW_THREADS
#undef Py_END_ALLOW_THREADS
#define Py_BEGIN_ALLOW_THREADS                         \\
    {                                                  \\
        if (!can_throw()) {                            \\
            return no_memory();                        \\
        }                                              \\
        PyThreadState * _save = PyEval_SaveThread();   \\
        try {
#define Py_END_ALLOW_THREADS                           \\
        } catch (const std::bad_alloc &) {             \\
            PyEval_RestoreThread(_save);               \\
            return no_memory();                        \\
        }                                              \\
        PyEval_RestoreThread(_save);                   \\
    }
"""

# What is ours and not ggml's; CMake defines the constants from the stamp of vendor/ggml.
OURS = """
extern "Python" void pyggml_log(enum ggml_log_level level, const char * text, void * user_data);
extern "Python" void pyggml_abort(const char * message);
extern "Python" bool pyggml_watch(struct ggml_tensor * tensor, bool ask, void * user_data);
const char * pyggml_other_build(void);
const char * pyggml_other_ggml(void);
const char * pyggml_load_cpu(const char * path);
const char * pyggml_load_backend(const char * path);
void pyggml_enter_block(uint64_t handled);
void pyggml_leave_block(void);
void pyggml_end_blocks(void);
#define PYGGML_PATCH_COUNT ...
"""


def cpu_calls(header: str) -> str:
    """Return the C++ that calls the functions of ggml-cpu.h through the table of cpu_table.h."""
    names = re.findall(r"^\s*GGML_BACKEND_API\b[^;(]*?\b(\w+)\s*\(", header, re.MULTILINE)
    every = " ".join(f"F({name})" for name in names)
    defines = "".join(f"#define {name} (*pyggml_cpu.{name})\n" for name in names)
    included = '#include "cpu_table.h"\n#include "held_signals.h"\n'
    return f"#define PYGGML_CPU_FUNCTIONS(F) {every}\n{included}{defines}"


def main(cdef: Path, cpu_header: Path, target: Path) -> None:
    """Emit `target` from the declarations in `cdef`; those of `cpu_header` go through a table."""
    ffi = cffi.FFI()
    ffi.cdef(cdef.read_text(encoding="utf-8") + OURS)
    source = INCLUDES + cpu_calls(cpu_header.read_text(encoding="utf-8")) + CALLS
    ffi.set_source("pyggml._ggml", source, source_extension=".cpp")
    ffi.emit_c_code(str(target))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
