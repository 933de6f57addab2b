// SPDX-License-Identifier: MIT
// Functions of the kernels, in float: the hardware has nothing wider.
#pragma once

#define MAXHALF ((half) 65504.0f)
#define M_PI_F 3.14159265358979323846f

namespace metal {

using std::enable_if_t;
using std::is_same;
using std::is_same_v;
using std::remove_reference_t;

// a float function for float, half and their vectors
#define METAL_UNARY(name) \
    inline float name(float x) { return __builtin_##name##f(x); } \
    inline half  name(half  x) { return (half) __builtin_##name##f((float) x); } \
    template <class T, int N> vec<T, N> name(const vec<T, N> & x) { \
        vec<T, N> r; for (int i = 0; i < N; ++i) { r[i] = name(x[i]); } return r; \
    }
METAL_UNARY(exp)
METAL_UNARY(exp2)
METAL_UNARY(log)
METAL_UNARY(log2)
METAL_UNARY(sin)
METAL_UNARY(cos)
METAL_UNARY(tanh)
METAL_UNARY(sqrt)
METAL_UNARY(fabs)
METAL_UNARY(floor)
METAL_UNARY(ceil)
METAL_UNARY(round)
METAL_UNARY(rint)
METAL_UNARY(trunc)
#undef METAL_UNARY

inline float rsqrt(float x) { return 1.0f/__builtin_sqrtf(x); }
inline float sign(float x)  { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : 0.0f; }
template <class T, int N> vec<T, N> sign(const vec<T, N> & x) {
    vec<T, N> r;
    for (int i = 0; i < N; ++i) {
        r[i] = sign(x[i]);
    }
    return r;
}

inline int   abs(int x)   { return x < 0 ? -x : x; }
inline float abs(float x) { return __builtin_fabsf(x); }
template <class T, int N> vec<T, N> abs(const vec<T, N> & x) { return fabs(x); }

inline float pow(float x, float y)            { return __builtin_powf(x, y); }
inline float fma(float x, float y, float z)   { return __builtin_fmaf(x, y, z); }
inline float fmod(float x, float y)           { return __builtin_fmodf(x, y); }
inline bool  isnan(float x)                   { return __builtin_isnan(x); }
inline bool  isinf(float x)                   { return __builtin_isinf(x); }
inline bool  isfinite(float x)                { return __builtin_isfinite(x); }

template <class T, class = enable_if_t<is_scalar_t<T>::value>> T max(T a, T b) { return a < b ? b : a; }
template <class T, class = enable_if_t<is_scalar_t<T>::value>> T min(T a, T b) { return b < a ? b : a; }
inline float fmax(float a, float b) { return __builtin_fmaxf(a, b); }
inline float fmin(float a, float b) { return __builtin_fminf(a, b); }

#define METAL_LANES(name) \
    template <class T, int N> vec<T, N> name(const vec<T, N> & a, const vec<T, N> & b) { \
        vec<T, N> r; for (int i = 0; i < N; ++i) { r[i] = name(a[i], b[i]); } return r; \
    } \
    template <class T, int N, class S, class = enable_if_t<is_scalar_t<S>::value>> \
    vec<T, N> name(const vec<T, N> & a, S b) { return name(a, vec<T, N>(b)); } \
    template <class T, int N, class S, class = enable_if_t<is_scalar_t<S>::value>> \
    vec<T, N> name(S a, const vec<T, N> & b) { return name(vec<T, N>(a), b); }
METAL_LANES(max)
METAL_LANES(min)
METAL_LANES(fmax)
METAL_LANES(fmin)
METAL_LANES(pow)
#undef METAL_LANES

template <class T, class = enable_if_t<is_scalar_t<T>::value>> T clamp(T x, T lo, T hi) { return min(max(x, lo), hi); }
template <class T, int N> vec<T, N> clamp(const vec<T, N> & x, T lo, T hi) { return min(max(x, lo), hi); }

template <class T> T select(T a, T b, bool c) { return c ? b : a; }
template <class T, int N> vec<T, N> select(const vec<T, N> & a, const vec<T, N> & b, const vec<bool, N> & c) {
    vec<T, N> r;
    for (int i = 0; i < N; ++i) {
        r[i] = c[i] ? b[i] : a[i];
    }
    return r;
}

template <class A, class B, int N> common<A, B> dot(const vec<A, N> & a, const vec<B, N> & b) {
    common<A, B> s = 0;
    for (int i = 0; i < N; ++i) {
        s += a[i]*b[i];
    }
    return s;
}

inline uint mulhi(uint a, uint b) { return (uint) (((uint64_t) a*b) >> 32); }

template <class To, class From> To as_type(From v) {
    static_assert(sizeof(To) == sizeof(From), "as_type: sizes differ");
    To r;
    memcpy(&r, &v, sizeof(To));
    return r;
}

// threads are fibers of one thread
using atomic_int  = int;
using atomic_uint = unsigned;
constexpr int memory_order_relaxed = 0;
template <class T, class V> T atomic_fetch_add_explicit(T * p, V v, int) {
    const T old = *p;
    *p += v;
    return old;
}
template <class T> T atomic_load_explicit(const T * p, int) { return *p; }
template <class T, class V> void atomic_store_explicit(T * p, V v, int) { *p = v; }

namespace precise {
using metal::exp;
using metal::log;
using metal::sqrt;
using metal::tanh;
using metal::pow;
using metal::sin;
using metal::cos;
}
namespace fast = precise;

// not in the language
float erf(float)    = delete;
float erfc(float)   = delete;
float expm1(float)  = delete;
float log1p(float)  = delete;
float cbrt(float)   = delete;
float tgamma(float) = delete;
float lgamma(float) = delete;

} // namespace metal
