// SPDX-License-Identifier: MIT
// Barriers, SIMD-group functions and 8 x 8 matrices. A thread is a fiber (fibers.h); each of these functions waits for
// the other threads of its group.
#pragma once

#include "../counts.hpp"
#include "fibers.h"

namespace metal {

enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4 };
inline mem_flags operator|(mem_flags a, mem_flags b) { return (mem_flags) ((int) a | (int) b); }

inline void threadgroup_barrier(mem_flags) { emu::barrier(); }
inline void simdgroup_barrier  (mem_flags) { emu::simd_post(nullptr, 0, emu::op_barrier); }

// what the lanes of a SIMD group hold; lanes that have ended take no part
template <class T> struct lanes {
    emu::posted p;
    bool has(int i) const { return p.active >> i & 1; }
    T operator[](int i) const {
        T v;
        memcpy(&v, p.slot[i], sizeof(T));
        return v;
    }
};

template <class T> lanes<T> simd_all_lanes(T v, emu::simd_op op) {
    static_assert(sizeof(T) <= emu::slot_size, "too large for a lane's slot");
    return { emu::simd_post(&v, sizeof(T), op) };
}

// the sum in the order of the hardware is not known; a tree is as good as any
template <class T> T simd_sum(T v) {
    const lanes<T> l = simd_all_lanes(v, emu::op_sum);
    T t[emu::width];
    for (int i = 0; i < emu::width; ++i) {
        t[i] = l.has(i) ? l[i] : T(0);
    }
    for (int k = emu::width/2; k > 0; k /= 2) {
        for (int i = 0; i < k; ++i) {
            t[i] = t[i] + t[i + k];
        }
    }
    return t[0];
}

template <class T> T simd_max(T v) {
    const lanes<T> l = simd_all_lanes(v, emu::op_max);
    for (int i = 0; i < emu::width; ++i) {
        if (l.has(i) && v < l[i]) {
            v = l[i];
        }
    }
    return v;
}

template <class T> T simd_min(T v) {
    const lanes<T> l = simd_all_lanes(v, emu::op_min);
    for (int i = 0; i < emu::width; ++i) {
        if (l.has(i) && l[i] < v) {
            v = l[i];
        }
    }
    return v;
}

template <class T> T simd_prefix_inclusive_sum(T v) {
    const lanes<T> l = simd_all_lanes(v, emu::op_prefix);
    T s = T(0);
    for (int i = 0; i <= emu::lane(); ++i) {
        s = l.has(i) ? s + l[i] : s;
    }
    return s;
}

template <class T> T simd_prefix_exclusive_sum(T v) {
    const lanes<T> l = simd_all_lanes(v, emu::op_prefix);
    T s = T(0);
    for (int i = 0; i < emu::lane(); ++i) {
        s = l.has(i) ? s + l[i] : s;
    }
    return s;
}

// a lane that is not there gives this lane's own value
template <class T> T simd_from(T v, int from, emu::simd_op op) {
    const lanes<T> l = simd_all_lanes(v, op);
    return from >= 0 && from < emu::width && l.has(from) ? l[from] : v;
}
template <class T> T simd_shuffle     (T v, ushort i) { return simd_from(v, i,                 emu::op_shuffle); }
template <class T> T simd_shuffle_xor (T v, ushort m) { return simd_from(v, emu::lane() ^ m,   emu::op_shuffle); }
template <class T> T simd_shuffle_down(T v, ushort d) { return simd_from(v, emu::lane() + d,   emu::op_shuffle); }
template <class T> T simd_shuffle_up  (T v, ushort d) { return simd_from(v, emu::lane() - d,   emu::op_shuffle); }
template <class T> T simd_broadcast   (T v, ushort i) { return simd_from(v, i,                 emu::op_shuffle); }
template <class T> T simd_broadcast_first(T v) {
    const lanes<T> l = simd_all_lanes(v, emu::op_shuffle);
    for (int i = 0; i < emu::width; ++i) {
        if (l.has(i)) {
            return l[i];
        }
    }
    return v;
}

inline bool simd_any(bool b) { return simd_max((int) b) != 0; }
inline bool simd_all(bool b) { return simd_min((int) b) != 0; }

// A lane holds two elements of an 8 x 8 matrix, neighbours in a row. Which ones is not documented; ggml's mul_mv_mma.metal
// has found out, and relies on it.
template <class T, int R, int C> struct simdgroup_matrix {
    static_assert(R == 8 && C == 8, "simdgroup matrices are 8 x 8");
    static constexpr int registers = (2*sizeof(T) + 3)/4; // of a lane

    T e[2];

    simdgroup_matrix() { emu::hold(registers); }
    simdgroup_matrix(const simdgroup_matrix & other) : e { other.e[0], other.e[1] } { emu::hold(registers); }
    ~simdgroup_matrix() { emu::hold(-registers); }
    simdgroup_matrix & operator=(const simdgroup_matrix &) = default;

    T * thread_elements() { return e; }
};

inline int matrix_row(int lane)    { return ((lane/4) & 4) + ((lane/2)%4); }
inline int matrix_column(int lane) { return ((lane/4) & 2)*2 + (lane%2)*2; }
inline int matrix_lane(int row, int column) { return (row & 4)*4 + (row & 3)*2 + (column & 4)*2 + (column & 2)/2; }

// columns, rows; a plain 0 stands for the corner
struct matrix_origin {
    long x = 0;
    long y = 0;
    matrix_origin() = default;
    matrix_origin(int v) : x(v), y(v) {}
    template <class T> matrix_origin(const vec<T, 2> & v) : x(v.x), y(v.y) {}
};

template <class T, int R, int C = R> simdgroup_matrix<T, R, C> make_filled_simdgroup_matrix(T v) {
    simdgroup_matrix<T, R, C> m;
    m.e[0] = m.e[1] = v;
    return m;
}

// Counted here: a lane's two elements are one access where they are neighbours in memory.
#define METAL_MATRIX_ACCESS __attribute__((noinline, no_sanitize("kernel-address")))

template <class P> METAL_MATRIX_ACCESS void count_elements(const P * p, ulong ld, matrix_origin o, bool transpose) {
    const long r = matrix_row(emu::lane());
    const long c = matrix_column(emu::lane());
    if (transpose) {
        emu::count_matrix(p + (c + o.y)*(long) ld + r + o.x, sizeof(P));
        emu::count_matrix(p + (c + 1 + o.y)*(long) ld + r + o.x, sizeof(P));
    } else {
        emu::count_matrix(p + (r + o.y)*(long) ld + c + o.x, 2*sizeof(P));
    }
}

template <class T, class P> METAL_MATRIX_ACCESS
void simdgroup_load(simdgroup_matrix<T, 8, 8> & m, const P * p, ulong ld = 8, matrix_origin o = {}, bool transpose = false) {
    const int r = matrix_row(emu::lane());
    const int c = matrix_column(emu::lane());
    for (int i = 0; i < 2; ++i) {
        const long row = (transpose ? c + i : r) + o.y;
        const long col = (transpose ? r : c + i) + o.x;
        m.e[i] = (T) p[row*(long) ld + col];
    }
    count_elements(p, ld, o, transpose);
    emu::simd_post(nullptr, 0, emu::op_matrix_load);
}

template <class T, class P> METAL_MATRIX_ACCESS
void simdgroup_store(const simdgroup_matrix<T, 8, 8> & m, P * p, ulong ld = 8, matrix_origin o = {}, bool transpose = false) {
    const int r = matrix_row(emu::lane());
    const int c = matrix_column(emu::lane());
    for (int i = 0; i < 2; ++i) {
        const long row = (transpose ? c + i : r) + o.y;
        const long col = (transpose ? r : c + i) + o.x;
        p[row*(long) ld + col] = (P) m.e[i];
    }
    count_elements(p, ld, o, transpose);
    emu::simd_post(nullptr, 0, emu::op_matrix_store);
}

// d = a*b + c, with products and sums in float
template <class D, class A, class B, class C>
void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8> & d, const simdgroup_matrix<A, 8, 8> & a,
        const simdgroup_matrix<B, 8, 8> & b, const simdgroup_matrix<C, 8, 8> & c) {
    const float v[4] = { (float) a.e[0], (float) a.e[1], (float) b.e[0], (float) b.e[1] };
    const emu::posted p = emu::simd_post(v, sizeof(v), emu::op_matrix_multiply);

    const int row = matrix_row(emu::lane());
    const int col = matrix_column(emu::lane());
    float s[2] = { (float) c.e[0], (float) c.e[1] };
    for (int k = 0; k < 8; ++k) {
        const float   ak = ((const float *) p.slot[matrix_lane(row, k)])[k%2];
        const float * bk =  (const float *) p.slot[matrix_lane(k, col)] + 2;
        s[0] += ak*bk[0];
        s[1] += ak*bk[1];
    }
    d.e[0] = (D) s[0];
    d.e[1] = (D) s[1];
}

template <class D, class A, class B>
void simdgroup_multiply(simdgroup_matrix<D, 8, 8> & d, const simdgroup_matrix<A, 8, 8> & a, const simdgroup_matrix<B, 8, 8> & b) {
    simdgroup_multiply_accumulate(d, a, b, make_filled_simdgroup_matrix<D, 8, 8>((D) 0.0f));
}

} // namespace metal

using simdgroup_float8x8  = metal::simdgroup_matrix<float, 8, 8>;
using simdgroup_half8x8   = metal::simdgroup_matrix<half, 8, 8>;
using simdgroup_bfloat8x8 = metal::simdgroup_matrix<bfloat, 8, 8>;
