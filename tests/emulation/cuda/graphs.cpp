// SPDX-License-Identifier: MIT
// CUDA graphs of the emulated backend: a graph that is run again and again is captured and launched, sees what its tensors
// hold now, and is not launched with scratch memory that the pool has given back.
#include "../common/fibers.hpp"
#include "runtime.hpp"

#include <ggml-backend.h>
#include <ggml-cuda.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

extern "C" void emu_graph_counts(int * captured, int * launched);

namespace {

int n_failed = 0;

void check(bool ok, const std::string & what) {
    printf("%s %s\n", ok ? "ok" : "FAIL", what.c_str());
    n_failed += !ok;
}

// the sum of the squares of n numbers: its partial sums are in memory of the pool
struct sum_of_squares {
    ggml_backend_t        backend;
    ggml_context        * ctx = ggml_init({ 16*ggml_tensor_overhead() + ggml_graph_overhead(), nullptr, true });
    ggml_tensor         * x;
    ggml_cgraph         * graph = ggml_new_graph(ctx);
    ggml_tensor         * sum;
    ggml_backend_buffer_t buffer;

    sum_of_squares(ggml_backend_t backend, int64_t n) : backend(backend), x(ggml_new_tensor_1d(ctx, GGML_TYPE_F32, n)), sum(ggml_sum_sqr(ctx, x)) {
        ggml_build_forward_expand(graph, sum);
        buffer = ggml_backend_alloc_ctx_tensors(ctx, backend);
    }
    ~sum_of_squares() {
        ggml_backend_buffer_free(buffer);
        ggml_free(ctx);
    }
    sum_of_squares(const sum_of_squares &) = delete;

    // of n numbers, all value
    bool is_right(float value) {
        const std::vector<float> v(ggml_nelements(x), value);
        ggml_backend_tensor_set(x, v.data(), 0, ggml_nbytes(x));
        ggml_backend_graph_compute(backend, graph);
        float got;
        ggml_backend_tensor_get(sum, &got, 0, sizeof(got));
        return got == value*value*(float) ggml_nelements(x);
    }
};

int counted(bool launched) {
    int n_captured;
    int n_launched;
    emu_graph_counts(&n_captured, &n_launched);
    return launched ? n_launched : n_captured;
}

} // namespace

int main() {
    setenv("PYGGML_EMULATED_CC", "80", 1); // graphs are of 7.0 and later
    ggml_set_abort_callback([](const char * message) { throw emu::kernel_error(message); });
    ggml_backend_t backend = ggml_backend_cuda_init(0);
    try {
        sum_of_squares few(backend, 4096);
        sum_of_squares many(backend, 1 << 22);

        check(few.is_right(1.0f) && counted(false) == 0, "the first run is not captured");
        check(few.is_right(2.0f) && counted(false) == 1 && counted(true) == 1, "the second is captured and launched");
        check(few.is_right(3.0f) && counted(false) == 1 && counted(true) == 2, "the third is launched as it is");

        emu::fail_next_malloc();
        check(many.is_right(1.0f), "when memory is short the pool gives back what it holds");
        check(few.is_right(4.0f) && counted(true) == 2, "a graph that was captured before is run as it is");
        check(few.is_right(5.0f) && counted(false) == 2 && counted(true) == 3, "then it is captured anew");
        check(few.is_right(6.0f) && counted(true) == 4, "and launched");
        check(emu::check_allocations().empty(), "nothing is written elsewhere");
    } catch (const emu::kernel_error & e) {
        check(false, e.what());
    }
    ggml_backend_free(backend);
    return n_failed ? 1 : 0;
}
