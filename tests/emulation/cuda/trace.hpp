// SPDX-License-Identifier: MIT
// A device that computes nothing and notes what it is asked for: the backend's own host code chooses the kernels, their
// grids, what cuBLAS multiplies and what scratch memory holds. PYGGML_EMULATED_TRACE names the file, a JSON object a line:
//
//     {"node": "MUL_MAT", ...}  an op of the graph; what follows up to the next node is launched for it
//     {"fused": "ADD", ...}     an op that the launches of the node compute, too
//     {"kernel": ...}, {"product": ...}, {"copy": ...}, {"fill": ...}, {"graph launch": 1}, {"scratch": ...}
//
// Memory has addresses only, which the system does not back before they are written.
#pragma once

#include <cuda_runtime.h>

#include <initializer_list>

namespace emu {

bool traced();

// addresses of n bytes that may be read and written; null: there are none
void * unbacked(size_t n);
void   free_unbacked(void * p, size_t n);

// of (m, k) and (k, n): types of the sources and of the result; whether tensor cores may round f32 to TF32, what is
// computed is added to what is there, and all that is read and written is whole vectors of 16 bytes
struct product {
    const char * name;
    int64_t      m, n, k, batch;
    const char * type;
    const char * type_result;
    bool         tf32, adds, aligned;
};

void note_kernel(const char * kernel, const launch_config & c, std::initializer_list<operand> operands);
void note_product(const product & p);
void note_bytes(const char * what, size_t n);

} // namespace emu
