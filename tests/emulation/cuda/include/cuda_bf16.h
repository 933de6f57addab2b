// SPDX-License-Identifier: MIT
// __nv_bfloat16: arithmetic in f32, rounded to bf16 after each operation.
#pragma once

#include <cuda_runtime.h>

static inline uint16_t emu_f32_to_bf16(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    if ((u & 0x7fffffff) > 0x7f800000) {
        return (uint16_t) (u >> 16 | 64); // a NaN stays one
    }
    return (uint16_t) ((u + (0x7fff + (u >> 16 & 1))) >> 16);
}

struct __nv_bfloat16 {
    uint16_t bits;
    __nv_bfloat16() = default;
    __nv_bfloat16(float x)  : bits(emu_f32_to_bf16(x)) {}
    __nv_bfloat16(double x) : bits(emu_f32_to_bf16((float) x)) {}
    __nv_bfloat16(int x)    : bits(emu_f32_to_bf16((float) x)) {}
    operator float() const { return __uint_as_float((uint32_t) bits << 16); }
};
typedef __nv_bfloat16 nv_bfloat16;

struct alignas(4) __nv_bfloat162 {
    nv_bfloat16 x, y;
    __nv_bfloat162() = default;
    __nv_bfloat162(nv_bfloat16 x, nv_bfloat16 y) : x(x), y(y) {}
};
typedef __nv_bfloat162 nv_bfloat162;

static inline nv_bfloat16  __float2bfloat16(float x)    { return nv_bfloat16(x); }
static inline nv_bfloat16  __float2bfloat16_rn(float x) { return nv_bfloat16(x); }
static inline float        __bfloat162float(nv_bfloat16 x) { return (float) x; }
static inline nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return { nv_bfloat16(x), nv_bfloat16(y) }; }
static inline nv_bfloat162 __float22bfloat162_rn(float2 v) { return { nv_bfloat16(v.x), nv_bfloat16(v.y) }; }
static inline float2       __bfloat1622float2(nv_bfloat162 v) { return { (float) v.x, (float) v.y }; }
static inline nv_bfloat162 make_bfloat162(nv_bfloat16 x, nv_bfloat16 y) { return { x, y }; }
static inline float        __low2float(nv_bfloat162 v)  { return (float) v.x; }
static inline float        __high2float(nv_bfloat162 v) { return (float) v.y; }
