// SPDX-License-Identifier: MIT
// An op of a graph as a line of JSON, for the traces of emulated devices (cuda/trace.hpp, metal/trace.hpp).
#pragma once

#include <ggml.h>

#include <cstdio>
#include <string>

namespace emu {

// the name of a kernel as it stands in the source, which has no control characters
std::string quoted(const char * s);

// {what: the op, "name": ..., "result": ..., "sources": [...]}, each tensor with its address and bytes
void note_node(FILE * file, const char * what, const ggml_tensor * t);

// the file that the variable of the environment names, written line by line; null without one
FILE * trace_file(const char * variable);

} // namespace emu
