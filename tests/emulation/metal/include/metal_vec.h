// SPDX-License-Identifier: MIT
// Scalar and vector types. half is the compiler's _Float16; bfloat rounds to the nearest even, as the hardware does.
#pragma once

using half   = _Float16;
using uint   = unsigned int;
using ushort = unsigned short;
using uchar  = unsigned char;
using ulong  = unsigned long;

struct bfloat {
    uint16_t bits;

    bfloat() = default;
    bfloat(float f) {
        uint32_t u;
        memcpy(&u, &f, 4);
        bits = (u & 0x7fffffff) > 0x7f800000 ? (u >> 16) | 64 : (u + (0x7fff + ((u >> 16) & 1))) >> 16;
    }
    // to float and nothing else: of b ? x : 0 the type is bfloat
    template <class F, class = std::enable_if_t<std::is_same<F, float>::value>> operator F() const {
        const uint32_t u = (uint32_t) bits << 16;
        float f;
        memcpy(&f, &u, 4);
        return f;
    }
    explicit operator half() const { return (half) (float) *this; }
};

// arithmetic of bfloat is that of float
#define METAL_BFLOAT(op) \
    inline float operator op(bfloat a, bfloat b) { return (float) a op (float) b; } \
    inline float operator op(float  a, bfloat b) { return         a op (float) b; } \
    inline float operator op(bfloat a, float  b) { return (float) a op         b; }
METAL_BFLOAT(+)
METAL_BFLOAT(-)
METAL_BFLOAT(*)
METAL_BFLOAT(/)
#undef METAL_BFLOAT

namespace metal {

template <class T> struct is_scalar_t : std::integral_constant<bool, std::is_arithmetic<T>::value ||
    std::is_same<T, half>::value || std::is_same<T, bfloat>::value> {};

template <class T> struct promote { using type = T; };
template <> struct promote<bfloat> { using type = float; };
template <class A, class B> using common = decltype(typename promote<A>::type() + typename promote<B>::type());

template <class T, int N> struct vec;
template <class T, int N> struct vec_data;
template <class T> struct alignas(2*sizeof(T)) vec_data<T, 2> { T x, y; };
template <class T> struct alignas(4*sizeof(T)) vec_data<T, 3> { T x, y, z, padding; };
template <class T> struct alignas(4*sizeof(T)) vec_data<T, 4> {
    union {
        struct { T x, y, z, w; };
        struct { vec<T, 2> xy, zw; };
    };

    // copied whole, as one access to memory
    typedef unsigned char whole __attribute__((vector_size(4*sizeof(T)), may_alias));

    vec_data() = default;
    vec_data(const vec_data & o) { *(whole *) this = *(const whole *) &o; }
    vec_data & operator=(const vec_data & o) {
        *(whole *) this = *(const whole *) &o;
        return *this;
    }
};

// without the alignment of a vector
template <class T, int N> struct packed {
    T v[N];

    packed & operator=(const vec<T, N> & o) {
        for (int i = 0; i < N; ++i) {
            v[i] = o[i];
        }
        return *this;
    }
};

template <class T, int N> struct vec : vec_data<T, N> {
    vec() = default;

    template <class S, class = std::enable_if_t<is_scalar_t<S>::value>>
    vec(S s) {
        for (int i = 0; i < N; ++i) {
            (*this)[i] = (T) s;
        }
    }
    template <class A, class B, class... R, class = std::enable_if_t<sizeof...(R) + 2 == N>>
    vec(A a, B b, R... r) {
        const T v[N] = { (T) a, (T) b, (T) r... };
        for (int i = 0; i < N; ++i) {
            (*this)[i] = v[i];
        }
    }
    // by value, as in arithmetic: what is in memory is read whole
    template <class U> explicit vec(vec<U, N> o) {
        for (int i = 0; i < N; ++i) {
            (*this)[i] = (T) o[i];
        }
    }

    template <class U> explicit vec(const packed<U, N> & o) {
        for (int i = 0; i < N; ++i) {
            (*this)[i] = (T) o.v[i];
        }
    }

    T       & operator[](int i)       { return (&this->x)[i]; }
    const T & operator[](int i) const { return (&this->x)[i]; }

    vec operator-() const {
        vec r;
        for (int i = 0; i < N; ++i) {
            r[i] = -(*this)[i];
        }
        return r;
    }
};

#define METAL_BINARY(op) \
    template <class A, class B, int N> vec<common<A, B>, N> operator op(vec<A, N> a, vec<B, N> b) { \
        vec<common<A, B>, N> r; for (int i = 0; i < N; ++i) { r[i] = a[i] op b[i]; } return r; \
    } \
    template <class A, class S, int N, class = std::enable_if_t<is_scalar_t<S>::value>> \
    vec<common<A, S>, N> operator op(vec<A, N> a, S s) { \
        vec<common<A, S>, N> r; for (int i = 0; i < N; ++i) { r[i] = a[i] op s; } return r; \
    } \
    template <class A, class S, int N, class = std::enable_if_t<is_scalar_t<S>::value>> \
    vec<common<A, S>, N> operator op(S s, vec<A, N> a) { \
        vec<common<A, S>, N> r; for (int i = 0; i < N; ++i) { r[i] = s op a[i]; } return r; \
    } \
    template <class A, class B, int N> vec<A, N> & operator op##=(vec<A, N> & a, const B & b) { \
        return a = vec<A, N>(a op b); \
    }
METAL_BINARY(+)
METAL_BINARY(-)
METAL_BINARY(*)
METAL_BINARY(/)
#undef METAL_BINARY

// of whole numbers: the type stays the vector's
#define METAL_BITS(op) \
    template <class A, int N> vec<A, N> operator op(const vec<A, N> & a, const vec<A, N> & b) { \
        vec<A, N> r; for (int i = 0; i < N; ++i) { r[i] = (A) (a[i] op b[i]); } return r; \
    } \
    template <class A, class S, int N, class = std::enable_if_t<std::is_integral<S>::value>> \
    vec<A, N> operator op(const vec<A, N> & a, S s) { return a op vec<A, N>(s); }
METAL_BITS(&)
METAL_BITS(|)
METAL_BITS(^)
METAL_BITS(<<)
METAL_BITS(>>)
#undef METAL_BITS

#define METAL_COMPARE(op) \
    template <class A, class B, int N> vec<bool, N> operator op(const vec<A, N> & a, const vec<B, N> & b) { \
        vec<bool, N> r; for (int i = 0; i < N; ++i) { r[i] = a[i] op b[i]; } return r; \
    } \
    template <class A, class S, int N, class = std::enable_if_t<is_scalar_t<S>::value>> \
    vec<bool, N> operator op(const vec<A, N> & a, S s) { \
        vec<bool, N> r; for (int i = 0; i < N; ++i) { r[i] = a[i] op s; } return r; \
    }
METAL_COMPARE(<)
METAL_COMPARE(<=)
METAL_COMPARE(>)
METAL_COMPARE(>=)
#undef METAL_COMPARE

// columns of rows, as in the language
template <class T, int C, int R> struct matrix {
    vec<T, R> col[C];

    matrix() = default;
    template <class S, class = std::enable_if_t<is_scalar_t<S>::value>> explicit matrix(S diagonal) {
        for (int i = 0; i < C; ++i) {
            col[i] = vec<T, R>(0);
            if (i < R) {
                col[i][i] = (T) diagonal;
            }
        }
    }
    template <class U> explicit matrix(const matrix<U, C, R> & o) {
        for (int i = 0; i < C; ++i) {
            col[i] = vec<T, R>(o[i]);
        }
    }
    template <class... V, class = std::enable_if_t<sizeof...(V) == C && C != 1>> matrix(V... v) : col{ vec<T, R>(v)... } {}

    vec<T, R>       & operator[](int i)       { return col[i]; }
    const vec<T, R> & operator[](int i) const { return col[i]; }
};

template <class T, int C, int R, class S> matrix<T, C, R> operator*(const matrix<T, C, R> & m, S s) {
    matrix<T, C, R> r;
    for (int i = 0; i < C; ++i) {
        r[i] = vec<T, R>(m[i]*s);
    }
    return r;
}

} // namespace metal

#define METAL_VEC(T) \
    using T##2 = metal::vec<T, 2>; \
    using T##3 = metal::vec<T, 3>; \
    using T##4 = metal::vec<T, 4>;
METAL_VEC(float)
METAL_VEC(half)
METAL_VEC(bfloat)
METAL_VEC(int)
METAL_VEC(uint)
METAL_VEC(short)
METAL_VEC(ushort)
METAL_VEC(char)
METAL_VEC(uchar)
#undef METAL_VEC
using bool2    = metal::vec<bool, 2>;
using bool4    = metal::vec<bool, 4>;
using float4x4 = metal::matrix<float, 4, 4>;
using half4x4  = metal::matrix<half, 4, 4>;
using float2x4 = metal::matrix<float, 2, 4>;
using half2x4  = metal::matrix<half, 2, 4>;
using packed_char4  = metal::packed<char, 4>;
using packed_float4 = metal::packed<float, 4>;
