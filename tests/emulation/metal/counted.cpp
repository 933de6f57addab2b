// SPDX-License-Identifier: MIT
// What counts.hpp counts of a SIMD group's accesses that are known: a line of JSON for each.
#include "counts.hpp"
#include "emulated.h"

#include <metal_stdlib>

#include <cstdio>

namespace {

using namespace metal;

alignas(256) float shared[4096];
alignas(256) float buffer[4096];

simdgroup_float8x8 filled() { return make_filled_simdgroup_matrix<float, 8>(1.0f); }

void load(int ld, bool transpose) {
    simdgroup_float8x8 m;
    simdgroup_load(m, shared, ld, 0, transpose);
}

struct pattern {
    const char * name;
    void (*body)(void *, int i);
};

const pattern patterns[] = {
    { "neighbours",                 [](void *, int i) { shared[i] = buffer[i]; } },
    { "one number",                 [](void *, int i) { buffer[i/32] = shared[i/32]; } },
    { "rows of 32",                 [](void *, int i) { shared[32*i] = 1.0f; } },
    { "rows of 33",                 [](void *, int i) { shared[33*i] = 1.0f; } },
    { "vectors",                    [](void *, int i) { ((float4 *) shared)[i] = ((float4 *) buffer)[i]; } },
    { "half of the lanes",          [](void *, int i) { if (i%2) { shared[i] = 1.0f; } } },
    { "matrix",                     [](void *, int)   { load(8, false); } },
    { "matrix, transposed",         [](void *, int)   { load(8, true); } },
    { "matrix in rows of 32",       [](void *, int)   { load(32, false); } },
    { "product",                    [](void *, int) {
        simdgroup_float8x8 m = filled();
        simdgroup_multiply_accumulate(m, filled(), filled(), m);
    } },
};

} // namespace

int main() {
    for (const pattern & p : patterns) {
        emu::begin_counts({ { (const char *) shared, sizeof(shared) } }, { { (const char *) buffer, sizeof(buffer) } });
        emu::run_threadgroup(emu::width, p.body, nullptr, false);
        const emu::counts n = emu::end_counts();
        printf("{\"name\": \"%s\", \"counts\": [%g, %g, %g]}\n", p.name, n.products, n.banks, n.segments);
    }
}
