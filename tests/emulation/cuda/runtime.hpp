// SPDX-License-Identifier: MIT
// What the harness asks of the emulated runtime.
#pragma once

#include "../common/fibers.hpp"

#include <cuda_runtime.h>

namespace emu {

void set_schedule(schedule s);

// kernels and products of cuBLAS launched so far
uint64_t launches();
void     count_launch();

// forgets the copies that the threads of the last block have not waited for
void drop_async_copies();

// what messages call it
void name_allocation(void * p, const char * name);

// what was written outside of memory from cudaMalloc, or ""
std::string check_allocations();

} // namespace emu
