// SPDX-License-Identifier: MIT
// Inline PTX of tensor cores and asynchronous copies, as the PTX ISA describes the fragments of each thread.
#include "runtime.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstring>
#include <string_view>
#include <vector>

namespace emu {

namespace {

struct copy {
    unsigned     to;
    const void * from;
    size_t       size;
};

// of each thread of the block; they are done when the thread waits, so that a kernel that does not wait reads poison
std::vector<copy> copies[1024];

float as_f32(uint16_t bits, bool bf16) {
    return bf16 ? __uint_as_float((uint32_t) bits << 16) : emu_f16_to_f32(bits);
}

// D = A*B + C, 16x8 of 16 terms: products are exact, sums are f32
void mma_m16n8k16(const char * text, const ptx_place * d, const uint64_t * in, bool bf16) {
    uint32_t a[4];
    uint32_t b[2];
    for (int i = 0; i < 4; ++i) {
        a[i] = (uint32_t) in[i];
    }
    for (int i = 0; i < 2; ++i) {
        b[i] = (uint32_t) in[4 + i];
    }
    uint32_t all_a[32][4];
    uint32_t all_b[32][2];
    warp_exchange(text, 0xffffffff, a, all_a, sizeof(a));
    warp_exchange(text, 0xffffffff, b, all_b, sizeof(b));

    const int lane = thread_in_block()%32;
    for (int e = 0; e < 4; ++e) {
        const int row = lane/4 + e/2*8;
        const int col = lane%4*2 + e%2;
        float sum;
        memcpy(&sum, d[e].p, 4);
        for (int k = 0; k < 16; ++k) {
            // thread 4*(row%8) + k/2%4 has it, in the registers of its rows and of the half of the terms
            const uint32_t pa = all_a[row%8*4 + k/2%4][row/8 + k/8*2];
            const uint32_t pb = all_b[col*4 + k/2%4][k/8];
            sum += as_f32((uint16_t) (pa >> k%2*16), bf16)*as_f32((uint16_t) (pb >> k%2*16), bf16);
        }
        memcpy(d[e].p, &sum, 4);
    }
}

// n matrices of 8x8 elements of 16 bits; thread 8*i + r has the address of row r of matrix i
void ldmatrix(const char * text, const ptx_place * d, int n, uint64_t address, bool trans) {
    uint64_t rows[32];
    warp_exchange(text, 0xffffffff, &address, rows, sizeof(address));
    const int lane = thread_in_block()%32;
    for (int i = 0; i < n; ++i) {
        uint16_t v[2];
        for (int e = 0; e < 2; ++e) {
            const int row = trans ? lane%4*2 + e : lane/4;
            const int col = trans ? lane/4 : lane%4*2 + e;
            const uint64_t p = rows[8*i + row];
            if (p%16) {
                fail("ldmatrix: the address of a row is no multiple of 16 bytes");
            }
            shared_address((const void *) p); // fails if it is elsewhere
            v[e] = ((const uint16_t *) p)[col];
        }
        memcpy(d[i].p, v, 4);
    }
    // nobody goes on and overwrites what others have not read
    char all[32];
    const char c = 0;
    warp_exchange(text, 0xffffffff, &c, all, 1);
}

} // namespace

void drop_async_copies() {
    for (auto & c : copies) {
        c.clear();
    }
}

void ptx(const char * text, std::initializer_list<ptx_place> out, std::initializer_list<uint64_t> in) {
    const std::string_view t = text;
    const auto is = [&](std::string_view name, size_t n_out, size_t n_in) {
        return t.substr(0, name.size()) == name && out.size() == n_out && in.size() == n_in;
    };
    const ptx_place * o = out.begin();
    const uint64_t  * i = in.begin();

    if (is("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};", 4, 6)) {
        mma_m16n8k16(text, o, i, true);
    } else if (is("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};", 4, 6)) {
        mma_m16n8k16(text, o, i, false);
    } else if (is("ldmatrix.sync.aligned.m8n8.x2.b16 {%0, %1}, [%2];", 2, 1)) {
        ldmatrix(text, o, 2, i[0], false);
    } else if (is("ldmatrix.sync.aligned.m8n8.x4.b16 {%0, %1, %2, %3}, [%4];", 4, 1)) {
        ldmatrix(text, o, 4, i[0], false);
    } else if (is("ldmatrix.sync.aligned.m8n8.x4.trans.b16 {%0, %1, %2, %3}, [%4];", 4, 1)) {
        ldmatrix(text, o, 4, i[0], true);
    } else if (is("cp.async.cg.shared.global", 0, 2)) {
        if (i[0]%16 || i[1]%16) {
            fail("cp.async: an address is no multiple of 16 bytes");
        }
        shared_pointer((unsigned) i[0], 16);
        copies[thread_in_block()].push_back({ (unsigned) i[0], (const void *) i[1], 16 });
    } else if (is("cp.async.wait_all;", 0, 0)) {
        for (const copy & c : copies[thread_in_block()]) {
            memcpy(shared_pointer(c.to, c.size), c.from, c.size);
        }
        copies[thread_in_block()].clear();
    } else {
        fail(std::string("not emulated: ") + text);
    }
}

} // namespace emu
