// SPDX-License-Identifier: MIT
// Results that lie in another tensor's memory, as a gradient that is added to what is there. What a kernel of Metal's works
// with lies behind its result, where such a one has no room: the device refuses it. CUDA has memory elsewhere.
#include "cases.hpp"

namespace emu {

namespace {

using shape = builder::shape;

// the result of an op in memory of its size alone
ggml_tensor * into(builder & b, ggml_tensor * op) {
    op->view_src = ggml_new_tensor(b.ctx, op->type, GGML_MAX_DIMS, op->ne);
    return op;
}

} // namespace

void scratch(table & t) {
    const auto refused = [&](const char * op, const char * name, std::function<ggml_tensor * (builder &)> build) {
        op_case & c = t.add(op, name, std::move(build));
        c.supported = false;
        c.only      = "Metal";
    };
    // a small product of long sums, which Metal splits into parts
    const shape x = { 288, 1153, 1, 1 };
    const shape y = { 65,  1153, 1, 1 };
    t.add("OUT_PROD", "long", [=](builder & b) {
        ggml_tensor * a = b.real(x);
        return ggml_out_prod(b.ctx, a, b.real(y));
    });
    const auto long_added = [=](builder & b) {
        ggml_tensor * a = b.real(x);
        ggml_tensor * c = b.real(y);
        return ggml_out_prod_acc(b.ctx, a, c, b.real({ x[0], y[0], 1, 1 }));
    };
    t.add("OUT_PROD", "long-added", long_added).only = "CUDA";
    refused("OUT_PROD", "long-added", long_added);
    refused("OUT_PROD", "long-over", [=](builder & b) {
        ggml_tensor * a = b.real(x);
        return into(b, ggml_out_prod(b.ctx, a, b.real(y)));
    });
    refused("SUM_SQR", "over", [](builder & b) { return into(b, ggml_sum_sqr(b.ctx, b.real({ 5000, 1, 1, 1 }))); });
    refused("CROSS_ENTROPY_LOSS", "over", [](builder & b) {
        ggml_tensor * logits = b.real({ 37, 9, 1, 1 });
        return into(b, ggml_cross_entropy_loss(b.ctx, logits, b.real({ 37, 9, 1, 1 }, 0.0f, 0.05f)));
    });
    refused("MUL_MAT_ID_BACK", "over", [](builder & b) {
        ggml_tensor * g  = b.real({ 37, 2, 9, 1 });
        ggml_tensor * xs = b.real({ 30, 2, 9, 1 });
        ggml_tensor * as = ggml_new_tensor_3d(b.ctx, GGML_TYPE_F32, 30, 37, 4);
        return into(b, ggml_mul_mat_id_back_as(b.ctx, g, as, xs, b.whole({ 2, 9, 1, 1 }, 0, 4)));
    });
    refused("FLASH_ATTN_EXT_BACK", "over", [](builder & b) {
        ggml_tensor * grad = b.real({ 32, 2, 9, 1 });
        ggml_tensor * q    = b.real({ 32, 9, 2, 1 });
        ggml_tensor * k    = b.real({ 32, 9, 2, 1 });
        ggml_tensor * v    = b.real({ 32, 9, 2, 1 });
        ggml_tensor * out  = b.real({ 32, 2, 9, 1 });
        return into(b, ggml_flash_attn_ext_back(b.ctx, grad, q, k, v, nullptr, nullptr, out, 0.2f, 0.0f, 0.0f));
    });
    refused("CUMSUM", "over", [](builder & b) { return into(b, ggml_cumsum(b.ctx, b.real({ 1500, 3, 1, 1 }))); });
}

} // namespace emu
