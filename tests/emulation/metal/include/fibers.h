// SPDX-License-Identifier: MIT
// The threads of a threadgroup as fibers of one thread of the CPU. A fiber runs until it waits for the others of its
// SIMD group or of its threadgroup, so the order between two such points is fixed, and can be reversed: a kernel that
// lacks a barrier gives other results then.
#pragma once

#include <cstddef>
#include <cstdint>

namespace emu {

constexpr int width     = 32; // lanes of a SIMD group
constexpr int slot_size = 64; // bytes that a lane can give to the others

enum simd_op {
    op_barrier = 1, op_sum, op_max, op_min, op_prefix, op_shuffle, op_matrix_load, op_matrix_store, op_matrix_multiply,
};

// what the lanes gave, valid until the next but one of these calls; active: a bit for each lane that took part
struct posted {
    const char (*slot)[slot_size];
    uint32_t active;
};

posted simd_post(const void * data, size_t size, simd_op op);
void   barrier();
int    lane();
int    thread();

// registers of 32 bits that a lane's matrices take, of the 128 that it has; too many are a threadgroup_error
constexpr int max_held = 96;
void          hold(int registers);

struct threadgroup_error {
    const char * what;
};

// runs body(user, i) for each thread i < n of a threadgroup; throws threadgroup_error where the threads diverge
void run_threadgroup(int n, void (*body)(void * user, int i), void * user, bool reverse);

} // namespace emu
