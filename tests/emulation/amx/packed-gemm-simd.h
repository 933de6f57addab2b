// SPDX-License-Identifier: MIT
// In place of ggml's file of this name: the registers of AVX-512 with BF16 as loops, for any CPU.
#pragma once

#include "ggml.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>

#define PG_U  16
#define PG_MR 4
#define PG_MS 16
#define PG_NV 2
#define PG_NR (PG_NV*PG_U)
#define PG_KC 768
#define PG_BF16

struct pg_vec {
    float v[PG_U];
};

template <typename F>
static inline pg_vec pg_each(F f) {
    pg_vec x;
    for (int i = 0; i < PG_U; ++i) {
        x.v[i] = f(i);
    }
    return x;
}

static inline pg_vec pg_zero() { return pg_each([](int) { return 0.0f; }); }
// of any alignment
static inline pg_vec pg_load(const void * p) {
    pg_vec x;
    memcpy(x.v, p, sizeof(x.v));
    return x;
}

static inline pg_vec pg_set1(const float * p) { return pg_each([=](int) { return *p; }); }
static inline pg_vec pg_load_n(const float * p, int n) { return pg_each([=](int i) { return i < n ? p[i] : 0.0f; }); }
static inline pg_vec pg_add(pg_vec a, pg_vec b) { return pg_each([&](int i) { return a.v[i] + b.v[i]; }); }
static inline pg_vec pg_fma(pg_vec a, pg_vec b, pg_vec c) { return pg_each([&](int i) { return std::fma(a.v[i], b.v[i], c.v[i]); }); }
static inline void   pg_store(float * p, pg_vec x) { memcpy(p, x.v, sizeof(x.v)); }
static inline void   pg_store_n(float * p, pg_vec x, int n) { memcpy(p, x.v, n*sizeof(float)); }

static inline void pg_transpose(pg_vec r[PG_U]) {
    for (int i = 0; i < PG_U; ++i) {
        for (int j = 0; j < i; ++j) {
            std::swap(r[i].v[j], r[j].v[i]);
        }
    }
}

// VCVTNEPS2BF16 takes denormals as zero
static inline uint16_t pg_round(float x) {
    return ggml_fp32_to_bf16(std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x).bits;
}
static inline uint16_t pg_round(ggml_bf16_t x) { return x.bits; }

static inline float pg_pair(uint16_t lo, uint16_t hi) {
    const uint32_t u = (uint32_t) hi << 16 | lo;
    float x;
    memcpy(&x, &u, sizeof(x));
    return x;
}

static inline pg_vec pg_pairs(const float * p) {
    return pg_each([=](int i) { return pg_pair(pg_round(p[2*i]), pg_round(p[2*i + 1])); });
}

template <typename T>
static inline pg_vec pg_pairs(const T * lo, const T * hi, int n) {
    return pg_each([=](int i) {
        return i < n ? pg_pair(pg_round(lo[i]), hi ? pg_round(hi[i]) : 0) : 0.0f;
    });
}

// products of pairs are those of tiles
static inline pg_vec pg_dot2(pg_vec, pg_vec, pg_vec) { abort(); }

#undef  _mm512_loadu_si512
#define _mm512_loadu_si512(p)  pg_load(p)
#define _mm512_castsi512_ps(x) (x)
