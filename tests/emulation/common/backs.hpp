// SPDX-License-Identifier: MIT
// Cases of gradients of one operand. Shapes: all extents different, rows longer than a block of threads and shorter than a
// warp, sizes of one, operands that are views of larger tensors, permuted or broadcast.
#pragma once

#include "cases.hpp"

namespace emu {

inline std::string name_of(builder::shape ne) {
    std::string s = std::to_string(ne[0]);
    for (int i = 1; i < 4; ++i) {
        s += "x" + std::to_string(ne[i]);
    }
    return s;
}

// f(grad, x) -> dx, elementwise or along rows
using back = std::function<ggml_tensor * (ggml_context *, ggml_tensor *, ggml_tensor *)>;

inline void back_cases(table & t, const char * op, const std::string & name, float lo, float hi, std::vector<builder::shape> shapes,
        std::vector<layout> layouts, back f) {
    for (builder::shape ne : shapes) {
        t.add(op, name + name_of(ne), [=](builder & b) {
            ggml_tensor * grad = b.real(ne);
            return f(b.ctx, grad, b.real(ne, lo, hi));
        });
    }
    const builder::shape ne = { 37, 5, 3, 2 };
    for (layout l : layouts) {
        t.add(op, name + "x-" + name_of(l), [=](builder & b) {
            ggml_tensor * grad = b.real(ne);
            return f(b.ctx, grad, b.real(ne, lo, hi, l));
        });
        t.add(op, name + "grad-" + name_of(l), [=](builder & b) {
            ggml_tensor * grad = b.real(ne, -1.0f, 1.0f, l);
            return f(b.ctx, grad, b.real(ne, lo, hi));
        });
    }
    for (int k = 0; k < 2; ++k) {
        t.add(op, name + "over-src" + std::to_string(k), [=](builder & b) {
            ggml_tensor * grad = b.real({ 300, 3, 2, 1 });
            return f(b.ctx, grad, b.real({ 300, 3, 2, 1 }, lo, hi));
        }).inplace = k;
    }
}

inline const std::vector<builder::shape> elementwise_shapes = { { 37, 5, 3, 2 }, { 1, 1, 1, 1 }, { 1024, 3, 1, 1 }, { 513, 2, 1, 1 } };
inline const std::vector<builder::shape> row_shapes = { { 37, 5, 3, 2 }, { 1, 7, 1, 1 }, { 1024, 3, 1, 1 }, { 1500, 2, 1, 2 }, { 4097, 1, 1, 1 } };
inline const std::vector<layout>         any_strides = { layout::rows, layout::permuted, layout::transposed, layout::odd };
inline const std::vector<layout>         any_rows    = { layout::rows, layout::permuted, layout::odd };

} // namespace emu
