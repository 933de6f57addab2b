// SPDX-License-Identifier: MIT
// What a threadgroup does, counted as it runs: its kernel is compiled with -fsanitize=kernel-address, which calls a
// function before each access to memory. What the lanes of a SIMD group access between two points where they wait is
// taken side by side: the i-th access of each lane is one instruction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace emu {

struct counts {
    double products = 0; // of 8 x 8 matrices
    double banks    = 0; // clocks of 32 banks of 4 bytes
    double segments = 0; // segments of 64 bytes
};

using memory_range = std::pair<const char *, size_t>;

// what a threadgroup with this memory of its own and these buffers does from here on
void   begin_counts(const std::vector<memory_range> & threadgroup, const std::vector<memory_range> & device);
counts end_counts();

// fibers.cpp: the lanes of a SIMD group wait or have ended; a matrix product among them
void counted_lanes_wait(int first, int last);
void counted_product();

// metal_simd.h: the elements that a lane loads or stores of a matrix, which the compiler is not asked about
void count_matrix(const void * p, size_t size);

} // namespace emu
