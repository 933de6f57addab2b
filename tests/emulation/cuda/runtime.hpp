// SPDX-License-Identifier: MIT
// What the harness asks of the emulated runtime.
#pragma once

#include "../common/fibers.hpp"

#include <cuda_runtime.h>

namespace emu {

void set_schedule(schedule s);

// does it, or keeps it when the stream is captured; fails in another stream than the captured one
void in_stream(cudaStream_t stream, std::function<void()> work);

// fails when a stream is captured: on a device the capture would end with an error
void not_while_captured(const char * what);

// what kernels have written of the dynamic shared memory that they asked for, a line each
void print_shared();

// clocks.cpp: what is called after each block of a kernel, and whether it is the first of its launch
void watch_blocks(void (* after)(const char * kernel, bool is_first));
bool is_shared(const void * p);

// kernels and products of cuBLAS launched so far
uint64_t launches();
void     count_launch();

// forgets the copies that the threads of the last block have not waited for
void drop_async_copies();

// cudaMalloc says once that there is no memory
void fail_next_malloc();

// whether the device has no memory for what asks now
bool malloc_is_refused();

// what says so each time, or, of the host, throws; until `refuse` is called again
enum class memory { all_there, of_mallocs, of_cublas, of_graphs, of_the_host };
void refuse(memory what);

// what a backend that has computed nothing yet takes scratch memory from: ggml's pool of virtual memory, as on most GPUs,
// which must be given back in reverse order, or buffers of cudaMalloc, which are guarded
void use_virtual_memory(bool on);

// what messages call it
void name_allocation(void * p, const char * name);

// what was written outside of memory from cudaMalloc, or ""
std::string check_allocations();

} // namespace emu
