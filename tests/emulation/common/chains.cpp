// SPDX-License-Identifier: MIT
// Chains of ops with sums over rows, in the order of a training step, which CUDA computes in few kernels: the gradients of a
// norm with gain and bias, and of the bias of a linear layer, whose gradient is rounded for its matmuls. And rows of nodes that
// Metal may not compute in one.
#include "cases.hpp"

namespace emu {

namespace {

using shape = builder::shape;

// several chunks whose rows 8 does not divide, one chunk, more columns than a block has threads; 37: not in vectors
const std::vector<shape> shapes = { { 36, 1003, 1, 1 }, { 132, 7, 3, 5 }, { 768, 9, 1, 1 }, { 5000, 3, 1, 2 }, { 37, 5, 3, 2 } };

struct norm_back {
    bool bias     = true;
    bool gain     = true;  // that it has a gradient
    bool residual = true;
    bool more     = false; // NORM_BACK has another reader
    bool reversed = false; // the operands of the product and of the sum
    // sources that lie where a result is written
    bool sum_over_gradient = false;
    bool gain_under_result = false;
    layout of_x = layout::contiguous;
};

ggml_tensor * add_norm_back(builder & b, const shape & ne, const norm_back & how) {
    const shape vector = { ne[0], 1, 1, 1 };
    ggml_tensor * dy   = b.real(ne);
    ggml_tensor * x    = b.real(ne, -2.0f, 3.0f, how.of_x);
    ggml_tensor * y    = b.real(ne);
    ggml_tensor * res  = b.real(ne);
    ggml_tensor * w    = how.gain_under_result ? ggml_view_1d(b.ctx, res, ne[0], 0) : b.real(vector);
    ggml_tensor * like = b.real(vector);

    if (how.bias) {
        ggml_tensor * db = ggml_repeat_back(b.ctx, dy, like);
        b.next(db);
        b.also(db);
    }
    ggml_tensor * g = ggml_mul(b.ctx, dy, w);
    b.next(g);
    if (how.gain) {
        ggml_tensor * dw = ggml_repeat_back(b.ctx, how.reversed ? ggml_mul(b.ctx, dy, y) : ggml_mul(b.ctx, y, dy), like);
        if (how.sum_over_gradient) {
            dw->view_src = dy;
        }
        b.next(dw);
        b.also(dw);
    }
    ggml_tensor * dx = ggml_norm_back(b.ctx, g, x, 1e-5f);
    if (!how.residual) {
        return dx;
    }
    b.next(dx);
    ggml_tensor * sum = how.reversed ? ggml_add(b.ctx, dx, res) : ggml_add(b.ctx, res, dx);
    return how.more ? ggml_add(b.ctx, sum, dx) : sum;
}

void norms(table & t) {
    const auto add = [&](const std::string & name, const shape & ne, const norm_back & how) -> op_case & {
        op_case & c = t.add("NORM_BACK", "in-one-" + name, [=](builder & b) { return add_norm_back(b, ne, how); });
        c.only = "CUDA";
        return c;
    };
    norm_back how;
    for (const shape & ne : shapes) {
        add(std::to_string(ne[0]), ne, {}).inplace = 0;
    }
    const shape ne = { 132, 7, 3, 5 };
    how = {}; how.reversed = true;          add("reversed", ne, how);
    how = {}; how.bias = false;             add("no-bias", ne, how);
    how = {}; how.bias = how.gain = false;  add("frozen", ne, how).inplace = 0;
    how = {}; how.gain = false;             add("frozen-gain", ne, how);
    how = {}; how.residual = false;         add("alone", ne, how).inplace = 0;
    how = {}; how.residual = false;         add("alone-over-x", ne, how).inplace = 1;
    how = {}; how.more = true;              add("read-twice", ne, how);
    how = {}; how.sum_over_gradient = true; add("sum-over-gradient", ne, how);
    how = {}; how.gain_under_result = true; add("gain-under-result", ne, how).inplace = 0;
    how = {}; how.of_x = layout::rows;      add("rows-of-x", ne, how);
}

struct bias_back {
    bool rounded   = true;
    bool gelu      = false;
    bool read      = false; // by others than the copy and the sums
    bool copy_over = false; // the copy lies over what GELU was computed of
    int  heads     = 1;     // that the copy has
    layout of_x    = layout::contiguous;
};

ggml_tensor * add_bias_back(builder & b, const shape & ne, const bias_back & how) {
    ggml_tensor * x  = b.real(ne, -1.0f, 1.0f, how.of_x);
    ggml_tensor * dh = x;
    ggml_tensor * h  = nullptr;
    if (how.gelu) {
        h  = b.real(ne, -4.0f, 4.0f);
        dh = ggml_gelu_back(b.ctx, x, h);
        b.next(dh);
    }
    ggml_tensor * copy = nullptr;
    if (how.rounded) {
        copy = how.heads == 1 ? dh : ggml_reshape_4d(b.ctx, dh, ne[0]/how.heads, how.heads, ne[1], ne[2]*ne[3]);
        copy = ggml_cast(b.ctx, copy, GGML_TYPE_BF16);
        if (how.copy_over) {
            copy->view_src = h;
        }
        b.next(copy);
        b.next(ggml_view_1d(b.ctx, copy, ne[0], 0)); // as matmuls read it
    }
    ggml_tensor * db = ggml_repeat_back(b.ctx, dh, b.real({ ne[0], 1, 1, 1 }));
    b.next(db);
    b.also(db);
    ggml_tensor * result = copy ? ggml_cast(b.ctx, copy, GGML_TYPE_F32) : dh;
    return how.read ? ggml_add(b.ctx, dh, ggml_reshape(b.ctx, result, dh)) : result;
}

void biases(table & t) {
    const auto add = [&](const std::string & name, const shape & ne, const bias_back & how) -> op_case & {
        op_case & c = t.add("REPEAT_BACK", name, [=](builder & b) { return add_bias_back(b, ne, how); });
        c.only     = "CUDA";
        c.max_nmse = how.gelu && how.rounded ? 1e-5 : 1e-10; // a number may be rounded the other way
        c.slow     = ne[0] % 4 != 0 || how.of_x == layout::odd_start; // op by op: ggml's copies take long to compile
        return c;
    };
    bias_back how;
    for (const shape & ne : shapes) {
        how = {};                                              add("rounded-" + std::to_string(ne[0]), ne, how);
        how.gelu = true;                                       add("rounded-gelu-" + std::to_string(ne[0]), ne, how);
    }
    const shape ne = { 132, 7, 3, 5 };
    how = {}; how.heads = 3;                                   add("rounded-heads", { 132, 70, 2, 1 }, how);
    how = {}; how.of_x = layout::rows;                         add("rounded-rows", ne, how);
    how = {}; how.of_x = layout::odd_start;                    add("rounded-odd", ne, how);
    how = {}; how.gelu = true; how.rounded = false;            add("gelu", ne, how).inplace = 0;
    how = {}; how.gelu = how.read = true;                      add("rounded-gelu-read", ne, how);
    how = {}; how.gelu = how.copy_over = true;                 add("rounded-gelu-over", ne, how);
    how = {}; how.gelu = true; how.of_x = layout::rows;        add("rounded-gelu-rows", ne, how);
}

// x + b, and that with r: a matmul, its bias and what goes around the layer
void residuals(table & t) {
    const auto add = [&](const std::string & name, const shape & ne, bool reversed, bool twice, layout l) -> op_case & {
        op_case & c = t.add("ADD", "in-one-residual-" + name, [=](builder & b) {
            ggml_tensor * x   = b.real(ne);
            ggml_tensor * r   = b.real(ne, -1.0f, 1.0f, l);
            ggml_tensor * h   = ggml_add(b.ctx, x, b.real({ ne[0], 1, 1, 1 }));
            ggml_tensor * sum = reversed ? ggml_add(b.ctx, h, r) : ggml_add(b.ctx, r, h);
            return twice ? ggml_mul(b.ctx, sum, h) : sum;
        });
        c.only = "CUDA";
        return c;
    };
    for (const shape & ne : shapes) {
        add(std::to_string(ne[0]), ne, false, false, layout::contiguous);
    }
    const shape ne = { 132, 7, 3, 5 };
    add("reversed",   ne, true,  false, layout::contiguous);
    add("over-r",     ne, false, false, layout::contiguous).inplace = 0;
    add("twice",      ne, false, true,  layout::contiguous);
    add("rows",       ne, false, false, layout::rows);
}

// the kernel writes the last node alone
void rows_of_nodes(table & t) {
    const shape ne = { 36, 5, 3, 2 };
    const auto add = [&](const char * op, const std::string & name, std::function<ggml_tensor * (builder &)> build) {
        t.add(op, "row-" + name, std::move(build)).only = "Metal";
    };
    for (bool twice : { true, false }) {
        add("ADD", twice ? "of-itself" : "of-the-first", [=](builder & b) {
            // what is added lies in one buffer, as the kernel wants it
            ggml_tensor * room  = ggml_new_tensor_4d(b.ctx, GGML_TYPE_F32, ne[0], ne[1], ne[2], 2*ne[3]);
            ggml_tensor * other = ggml_view_4d(b.ctx, room, ne[0], ne[1], ne[2], ne[3], room->nb[1], room->nb[2], room->nb[3], ne[3]*room->nb[3]);
            b.inputs.push_back({ other, std::vector<float>(ggml_nelements(other), 0.5f) });
            ggml_tensor * sum = ggml_add(b.ctx, b.real(ne), other);
            b.lies_over(sum, room);
            return ggml_add(b.ctx, twice ? sum : ggml_add(b.ctx, sum, other), sum);
        });
    }
    add("MUL", "norm-by-itself", [=](builder & b) {
        ggml_tensor * norm = ggml_rms_norm(b.ctx, b.real(ne), 1e-6f);
        return ggml_mul(b.ctx, norm, norm);
    });
    add("SCALE", "norm-and-bias", [=](builder & b) {
        return ggml_scale_bias(b.ctx, ggml_norm(b.ctx, b.real(ne), 1e-6f), 2.0f, -3.0f);
    });
}

} // namespace

void chains(table & t) {
    rows_of_nodes(t);
    norms(t);
    biases(t);
    residuals(t);
}

} // namespace emu
