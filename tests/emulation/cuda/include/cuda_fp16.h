// SPDX-License-Identifier: MIT
// half and half2: arithmetic in f32, rounded to f16 after each operation, as the device does.
#pragma once

#include <cuda_runtime.h>

uint16_t emu_f32_to_f16(float x);
float    emu_f16_to_f32(uint16_t x);

struct __half_raw { unsigned short x; };

struct __half {
    uint16_t bits;
    __half() = default;
    __half(float x)  : bits(emu_f32_to_f16(x)) {}
    __half(double x) : bits(emu_f32_to_f16((float) x)) {}
    __half(int x)    : bits(emu_f32_to_f16((float) x)) {}
    __half(__half_raw r) : bits(r.x) {}
    operator float() const { return emu_f16_to_f32(bits); }
    __half & operator+=(__half o) { return *this = __half((float) *this + (float) o); }
    __half & operator*=(__half o) { return *this = __half((float) *this*(float) o); }
};
typedef __half half;

static inline half operator+(half a, half b) { return half((float) a + (float) b); }
static inline half operator-(half a, half b) { return half((float) a - (float) b); }
static inline half operator*(half a, half b) { return half((float) a*(float) b); }
static inline half operator/(half a, half b) { return half((float) a/(float) b); }
static inline half operator-(half a)         { return half(-(float) a); }

struct alignas(4) __half2 {
    half x, y;
    __half2() = default;
    __half2(half x, half y) : x(x), y(y) {}
    __half2 & operator+=(__half2 o) { x += o.x; y += o.y; return *this; }
    __half2 & operator*=(__half2 o) { x *= o.x; y *= o.y; return *this; }
};
typedef __half2 half2;

static inline half2 operator+(half2 a, half2 b) { return { a.x + b.x, a.y + b.y }; }
static inline half2 operator-(half2 a, half2 b) { return { a.x - b.x, a.y - b.y }; }
static inline half2 operator*(half2 a, half2 b) { return { a.x*b.x, a.y*b.y }; }

static inline half   __float2half(float x)      { return half(x); }
static inline half   __float2half_rn(float x)   { return half(x); }
static inline float  __half2float(half x)       { return (float) x; }
static inline half2  make_half2(half x, half y) { return { x, y }; }
static inline half2  __floats2half2_rn(float x, float y) { return { half(x), half(y) }; }
static inline half2  __float22half2_rn(float2 v) { return { half(v.x), half(v.y) }; }
static inline half2  __float2half2_rn(float x)  { return { half(x), half(x) }; }
static inline half2  __half2half2(half x)       { return { x, x }; }
static inline half2  __halves2half2(half x, half y) { return { x, y }; }
static inline float2 __half22float2(half2 v)    { return { (float) v.x, (float) v.y }; }
static inline half   __low2half(half2 v)        { return v.x; }
static inline half   __high2half(half2 v)       { return v.y; }
static inline float  __low2float(half2 v)       { return (float) v.x; }
static inline float  __high2float(half2 v)      { return (float) v.y; }
static inline half   __hadd(half a, half b)     { return a + b; }
static inline half   __hmul(half a, half b)     { return a*b; }
static inline half2  __hadd2(half2 a, half2 b)  { return a + b; }
static inline half2  __hsub2(half2 a, half2 b)  { return a - b; }
static inline half2  __hmul2(half2 a, half2 b)  { return a*b; }
static inline half   __hfma(half a, half b, half c) { return half(fmaf(a, b, c)); }
static inline half2  __hfma2(half2 a, half2 b, half2 c) { return { __hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y) }; }
static inline half   __hmax(half a, half b)     { return (float) a > (float) b ? a : b; }
static inline half2  __hmax2(half2 a, half2 b)  { return { __hmax(a.x, b.x), __hmax(a.y, b.y) }; }
static inline bool   __hisinf(half a)           { return std::isinf((float) a); }
static inline half   hexp(half x)               { return half(expf(x)); }
static inline half2  h2exp(half2 x)             { return { hexp(x.x), hexp(x.y) }; }
static inline half   hsqrt(half x)              { return half(sqrtf(x)); }
static inline half   hrsqrt(half x)             { return half(1.0f/sqrtf(x)); }
static inline half   __habs(half x)             { return half(fabsf(x)); }
static inline uint32_t __hgt2_mask_emu(half2 a, half2 b) { return ((float) a.x > (float) b.x ? 0xffffu : 0) | ((float) a.y > (float) b.y ? 0xffff0000u : 0); }
static inline half   __ushort_as_half(unsigned short x) { half h; h.bits = x; return h; }
