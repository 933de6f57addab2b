// SPDX-License-Identifier: MIT
// What stands between the emulated device (device.cpp), the generated wrappers of the kernels, and the context.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace emu {

struct uint3_pos {
    unsigned x, y, z;
};

// what a thread of a kernel is given
struct launch {
    void *    buffer[31];
    void *    threadgroup[4];
    uint3_pos groups;           // threadgroups_per_grid
    uint3_pos threads;          // threads_per_threadgroup
    uint3_pos group;            // threadgroup_position_in_grid
    uint3_pos thread;           // thread_position_in_threadgroup
    unsigned  index;            // thread_index_in_threadgroup
};

inline uint3_pos position_in_grid(const launch & l) {
    return { l.group.x*l.threads.x + l.thread.x, l.group.y*l.threads.y + l.thread.y, l.group.z*l.threads.z + l.thread.z };
}

// a function constant's value by its number; the wrappers write it into the kernel file's variable
struct constant_value {
    int     index;
    int64_t value;
};

struct kernel_entry {
    const char * name; // host_name
    void (*invoke)(const launch & l);
    void (*set_constants)(const std::vector<constant_value> & values);
};

void                 add_kernel (const kernel_entry & entry);
const kernel_entry * find_kernel(const char * name);

// converts to the type of the parameter it is passed for
struct pointer_argument {
    void * p;
    template <class T> operator T * () const { return (T *) p; }
};
struct reference_argument {
    void * p;
    template <class T> operator T & () const { return *(T *) p; }
};

struct argument {
    std::vector<char> bytes;          // set_bytes
    char *            data = nullptr; // set_buffer
    bool              set  = false;
};

// a dispatch as the encoder recorded it, or a barrier between dispatches
struct command {
    bool                        is_barrier = false;
    const kernel_entry *        kernel     = nullptr;
    std::vector<constant_value> constants;
    std::vector<argument>       arguments;
    std::vector<size_t>         threadgroup_sizes;
    uint3_pos                   groups;
    uint3_pos                   threads;
};

// those recorded since the last call
std::vector<command> take_commands();

} // namespace emu
