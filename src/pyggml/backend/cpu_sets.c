// SPDX-License-Identifier: MIT
// The module pyggml._cpu: the instruction sets that ggml is compiled for, and those of this CPU.
// It is compiled for any CPU and needs no library of ggml's, so that it can be asked before these
// are loaded. The names are those of Linux in /proc/cpuinfo, but lzcnt, which is "abm" there.

#include <Python.h>

#include <stdint.h>

// PYGGML_CPUS(F) is F(name) for each CPU library's line (see cpu_built_for.c).
#include "cpu_libraries.h"
#define DECLARE(name) extern const char name[];
PYGGML_CPUS(DECLARE)

#if defined(__x86_64__) || defined(_M_X64)
#ifdef _MSC_VER
#include <intrin.h>
#else
#include <cpuid.h>
#endif

enum { EAX, EBX, ECX, EDX };

// The parts of the state that the system must save when it switches threads: bits of XCR0.
#define XMM_YMM 0x6
#define ZMM     0xe6
#define TILES   0x60000

// Source: Intel, Software Developer's Manual, volume 2A, CPUID; AMD, publication 24594, appendix E.
static const struct {
    const char * name;
    uint32_t     leaf, subleaf;
    int          reg, bit;
    uint64_t     state;
} sets[] = {
    { "sse3",             1,          0, ECX, 0,  0       },
    { "ssse3",            1,          0, ECX, 9,  0       },
    { "fma",              1,          0, ECX, 12, XMM_YMM },
    { "sse4_1",           1,          0, ECX, 19, 0       },
    { "sse4_2",           1,          0, ECX, 20, 0       },
    { "movbe",            1,          0, ECX, 22, 0       },
    { "popcnt",           1,          0, ECX, 23, 0       },
    { "avx",              1,          0, ECX, 28, XMM_YMM },
    { "f16c",             1,          0, ECX, 29, XMM_YMM },
    { "bmi1",             7,          0, EBX, 3,  0       },
    { "avx2",             7,          0, EBX, 5,  XMM_YMM },
    { "bmi2",             7,          0, EBX, 8,  0       },
    { "avx512f",          7,          0, EBX, 16, ZMM     },
    { "avx512dq",         7,          0, EBX, 17, ZMM     },
    { "avx512ifma",       7,          0, EBX, 21, ZMM     },
    { "avx512cd",         7,          0, EBX, 28, ZMM     },
    { "avx512bw",         7,          0, EBX, 30, ZMM     },
    { "avx512vl",         7,          0, EBX, 31, ZMM     },
    { "avx512vbmi",       7,          0, ECX, 1,  ZMM     },
    { "avx512_vbmi2",     7,          0, ECX, 6,  ZMM     },
    { "gfni",             7,          0, ECX, 8,  0       },
    { "avx512_vnni",      7,          0, ECX, 11, ZMM     },
    { "avx512_bitalg",    7,          0, ECX, 12, ZMM     },
    { "avx512_vpopcntdq", 7,          0, ECX, 14, ZMM     },
    { "amx_bf16",         7,          0, EDX, 22, TILES   },
    { "avx512_fp16",      7,          0, EDX, 23, ZMM     },
    { "amx_tile",         7,          0, EDX, 24, TILES   },
    { "amx_int8",         7,          0, EDX, 25, TILES   },
    { "avx_vnni",         7,          1, EAX, 4,  XMM_YMM },
    { "avx512_bf16",      7,          1, EAX, 5,  ZMM     },
    { "lzcnt",            0x80000001, 0, ECX, 5,  0       },
    { "sse4a",            0x80000001, 0, ECX, 6,  0       },
    { "xop",              0x80000001, 0, ECX, 11, XMM_YMM },
    { "fma4",             0x80000001, 0, ECX, 16, XMM_YMM },
};

static void cpuid(uint32_t leaf, uint32_t subleaf, uint32_t found[4]) {
    found[EAX] = found[EBX] = found[ECX] = found[EDX] = 0;
#ifdef _MSC_VER
    int most[4];
    __cpuid(most, (int) (leaf & 0x80000000));
    if ((uint32_t) most[0] >= leaf) {
        __cpuidex((int *) found, (int) leaf, (int) subleaf);
    }
#else
    __get_cpuid_count(leaf, subleaf, &found[EAX], &found[EBX], &found[ECX], &found[EDX]);
#endif
}

// The state that the system saves; XGETBV exists where it said so by OSXSAVE.
static uint64_t saved_state(void) {
    uint32_t found[4];
    cpuid(1, 0, found);
    if (!(found[ECX] >> 27 & 1)) {
        return 0;
    }
#ifdef _MSC_VER
    return _xgetbv(0);
#else
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t) high << 32 | low;
#endif
}

static int has(size_t i) {
    uint32_t found[4];
    cpuid(sets[i].leaf, sets[i].subleaf, found);
    return (found[sets[i].reg] >> sets[i].bit & 1)
        && (saved_state() & sets[i].state) == sets[i].state;
}

#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>

static const struct {
    const char * name;
    const char * key;
} sets[] = {
    { "atomics", "hw.optional.arm.FEAT_LSE"     },
    { "asimdhp", "hw.optional.arm.FEAT_FP16"    },
    { "asimddp", "hw.optional.arm.FEAT_DotProd" },
    { "i8mm",    "hw.optional.arm.FEAT_I8MM"    },
    { "bf16",    "hw.optional.arm.FEAT_BF16"    },
    { "sme",     "hw.optional.arm.FEAT_SME"     },
};

static int has(size_t i) {
    int    value = 0;
    size_t size  = sizeof(value);
    return sysctlbyname(sets[i].key, &value, &size, NULL, 0) == 0 && value;
}

#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>

// Source: the Linux kernel's arch/arm64/include/uapi/asm/hwcap.h.
static const struct {
    const char *  name;
    unsigned long word;
    int           bit;
} sets[] = {
    { "atomics", AT_HWCAP,  8  },
    { "asimdhp", AT_HWCAP,  10 },
    { "asimddp", AT_HWCAP,  20 },
    { "sve",     AT_HWCAP,  22 },
    { "sve2",    AT_HWCAP2, 1  },
    { "i8mm",    AT_HWCAP2, 13 },
    { "bf16",    AT_HWCAP2, 14 },
    { "sme",     AT_HWCAP2, 23 },
};

static int has(size_t i) {
    return getauxval(sets[i].word) >> sets[i].bit & 1;
}

#else // no set is recorded for other machines

static const struct {
    const char * name;
} sets[] = { { "" } };

static int has(size_t i) {
    (void) i;
    return 0;
}
#endif

// Append a text to a list, which becomes NULL if that fails.
static void add(PyObject ** list, const char * text) {
    PyObject * item = PyUnicode_FromString(text);
    if (!item || PyList_Append(*list, item)) {
        Py_CLEAR(*list);
    }
    Py_XDECREF(item);
}

static PyObject * built_for(PyObject * self, PyObject * none) {
    (void) self;
    (void) none;
#define LINE(name) , name
    static const char * const lines[] = { "" PYGGML_CPUS(LINE) };
    PyObject * list = PyList_New(0);
    for (size_t i = 1; list && i < sizeof(lines) / sizeof(lines[0]); i++) {
        add(&list, lines[i]);
    }
    PyObject * newline = PyUnicode_FromString("\n");
    PyObject * text    = list && newline ? PyUnicode_Join(newline, list) : NULL;
    Py_XDECREF(newline);
    Py_XDECREF(list);
    return text;
}

static PyObject * present(PyObject * self, PyObject * none) {
    (void) self;
    (void) none;
    PyObject * list = PyList_New(0);
    for (size_t i = 0; list && i < sizeof(sets) / sizeof(sets[0]); i++) {
        if (has(i)) {
            add(&list, sets[i].name);
        }
    }
    return list;
}

static PyMethodDef functions[] = {
    { "built_for", built_for, METH_NOARGS, NULL },
    { "present",   present,   METH_NOARGS, NULL },
    { NULL,        NULL,      0,           NULL },
};

static struct PyModuleDef module = { PyModuleDef_HEAD_INIT, "pyggml._cpu", NULL, 0, functions,
                                     NULL, NULL, NULL, NULL };

PyMODINIT_FUNC PyInit__cpu(void) {
    return PyModuleDef_Init(&module);
}
