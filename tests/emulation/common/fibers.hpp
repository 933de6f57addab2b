// SPDX-License-Identifier: MIT
// The threads of one block (CUDA) or threadgroup (Metal) as cooperative fibers of one thread of the CPU.
//
// A fiber runs until it waits: at the barrier of the block, or at a collective of its warp (SIMD-group). Nothing runs at
// the same time, so a kernel that lacks a barrier is seen by its results: they depend on the order in which the fibers
// are run. A harness runs every kernel in several orders and wants the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>

namespace emu {

// what a kernel did wrong, with the place in the grid
struct kernel_error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

enum class schedule {
    forward,  // thread 0 first
    backward, // the last thread, the last warp, the last block first
    shuffled, // by a fixed pseudo-random order, another one for each block
};

const char * schedule_name(schedule s);

// Runs body(i) for i in [0, n_threads), each as a fiber; warps are of warp_size consecutive threads.
// on_switch(i) is called whenever thread i goes on: it sets what the kernel sees as its indices.
// Throws kernel_error when a thread reports a mistake, or when threads wait for others that never come.
void run_block(
        int n_threads, int warp_size, schedule order, uint32_t seed,
        void (* on_switch)(int), const std::function<void(int)> & body);

// inside of a fiber:

// all threads of the block; what: the name of the barrier, for messages
void block_barrier(const char * what);

constexpr size_t MAX_EXCHANGE = 16; // bytes of a thread's value

// All threads of the warp whose bits are set in mask come here with a value of size bytes, and each then sees the values
// of all: out has 32 entries of size bytes, those of threads outside of mask are undefined.
// what: the name of the collective, the same for all of its threads.
void warp_exchange(const char * what, uint64_t mask, const void * value, void * out, size_t size);

// threads of this warp that have not returned
uint64_t warp_live();

int  thread_in_block();
bool in_kernel();

// ends the kernel: run_block throws kernel_error
[[noreturn]] void fail(const std::string & message);

} // namespace emu
