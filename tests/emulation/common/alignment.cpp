// SPDX-License-Identifier: MIT
// What -fsanitize=alignment calls, by both compilers' interface of UBSan, in place of its runtime: a float4 at an address
// that is no multiple of 16 is an error on a device, and nothing on a CPU.
#include "alignment.hpp"

#include <cstdint>
#include <cstring>

namespace {

struct type_name {
    uint16_t kind;
    uint16_t info;
    char     name[1];
};

struct mismatch {
    const char *      file;
    uint32_t          line;
    uint32_t          column;
    const type_name * type;
    unsigned char     log_alignment;
    unsigned char     what;
};

} // namespace

extern "C" void __ubsan_handle_type_mismatch_v1(const mismatch * m, uintptr_t address);

void __ubsan_handle_type_mismatch_v1(const mismatch * m, uintptr_t address) {
    const char * slash = strrchr(m->file, '/');
    emu::misaligned(std::string(slash ? slash + 1 : m->file) + ":" + std::to_string(m->line) + ": " + m->type->name +
        " at an address that is no multiple of " + std::to_string(1u << m->log_alignment), (const void *) address);
}
