// SPDX-License-Identifier: MIT
// A device that computes nothing and notes what the backend's host code asks for: PYGGML_EMULATED_TRACE names the file,
// a JSON object a line, as of CUDA's (../cuda/trace.hpp):
//
//     {"node": "MUL_MAT", ...}  an op of the graph; what follows up to the next node is launched for it
//     {"fused": "ADD", ...}     an op that the launches of the node compute, too
//     {"kernel": ...}           its grid, threads, threadgroup memory and operands; "counts" where its file is one of
//                               those that are counted (counts.hpp): of a threadgroup in the middle, times the grid
//     {"scratch": ..., "at": ...}, {"command buffer": 1}
//
// Memory has addresses only, which the system does not back before they are written: f32 is not.
#pragma once

#include "emulated.h"

#include <ggml.h>

#include <cstddef>
#include <vector>

namespace emu {

bool traced();

// n bytes of zeros
void * unbacked(size_t n);
void   free_unbacked(void * p, size_t n);

// a kernel with this name and no code
const kernel_entry * named_kernel(const char * name);

void trace_nodes(const std::vector<const ggml_tensor *> & nodes, const std::vector<command> & commands);
void trace_buffer();

} // namespace emu
