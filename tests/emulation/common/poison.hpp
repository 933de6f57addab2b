// SPDX-License-Identifier: MIT
// What memory holds that nobody wrote: a NaN in f32, f16 and bf16. In f32 and bf16 it is a signalling one: what is added to
// it makes it quiet, so that a sum which is written back beyond a tensor is seen.
#pragma once

#include <cstddef>
#include <cstdint>

namespace emu {

inline unsigned char poison_at(const void * p) {
    return (uintptr_t) p % 4 == 2 ? 0xBF : 0xFF; // 0xFFBFFFFF
}

inline void poison(void * p, size_t size) {
    unsigned char * bytes = (unsigned char *) p;
    for (size_t i = 0; i < size; ++i) {
        bytes[i] = poison_at(bytes + i);
    }
}

inline bool is_poison(const void * p, size_t size) {
    const unsigned char * bytes = (const unsigned char *) p;
    for (size_t i = 0; i < size; ++i) {
        if (bytes[i] != poison_at(bytes + i)) {
            return false;
        }
    }
    return true;
}

} // namespace emu
