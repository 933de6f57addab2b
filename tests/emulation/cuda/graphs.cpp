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
    ggml_status compute(float value) {
        const std::vector<float> v(ggml_nelements(x), value);
        ggml_backend_tensor_set(x, v.data(), 0, ggml_nbytes(x));
        return ggml_backend_graph_compute(backend, graph);
    }

    bool is_right(float value) {
        if (compute(value) != GGML_STATUS_SUCCESS) {
            return false;
        }
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

// a pool of virtual memory only grows: what is captured stays where it is
void with_virtual_memory() {
    emu::use_virtual_memory(true);
    ggml_backend_t backend = ggml_backend_cuda_init(0);
    {
        sum_of_squares few(backend, 4096);
        sum_of_squares many(backend, 1 << 25);
        const int n_captured = counted(false);
        const int n_launched = counted(true);

        check(few.is_right(1.0f) && few.is_right(2.0f) && few.is_right(3.0f) && counted(false) == n_captured + 1 &&
            counted(true) == n_launched + 2, "virtual: the second run is captured, the third launched as it is");
        emu::refuse(emu::memory::of_mallocs);
        check(many.compute(1.0f) == GGML_STATUS_ALLOC_FAILED, "virtual: a graph for which there is no memory fails");
        check(few.is_right(4.0f) && counted(true) == n_launched + 3, "virtual: another is launched as it was captured");
        emu::refuse(emu::memory::all_there);
        check(many.is_right(2.0f) && many.is_right(3.0f), "virtual: when there is memory again it is run");
        check(few.is_right(5.0f) && counted(false) == n_captured + 2, "virtual: the other is still not captured anew");
        check(emu::check_allocations().empty(), "virtual: nothing is written elsewhere");
    }
    ggml_backend_free(backend);
}

} // namespace

int main() {
    setenv("PYGGML_EMULATED_CC", "80", 1); // graphs are of 7.0 and later
    ggml_set_abort_callback([](const char * message) { throw emu::kernel_error(message); });
    emu::use_virtual_memory(false);
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

        sum_of_squares more(backend, 1 << 23);
        emu::refuse(emu::memory::of_mallocs);
        check(more.compute(1.0f) == GGML_STATUS_ALLOC_FAILED, "a graph for which there is no memory fails");
        check(few.compute(1.0f) == GGML_STATUS_ALLOC_FAILED, "so does one whose memory the pool has given back");
        emu::refuse(emu::memory::all_there);
        check(more.is_right(2.0f) && counted(false) == 2, "when there is memory again it is run as it is");
        emu::refuse(emu::memory::of_the_host);
        check(more.compute(3.0f) == GGML_STATUS_ALLOC_FAILED, "what fails while it is captured is no longer captured");
        emu::refuse(emu::memory::all_there);
        check(more.is_right(4.0f) && more.is_right(5.0f) && counted(true) == 6, "it is captured and launched then");
        check(few.is_right(7.0f) && counted(true) == 6, "another, captured before memory was short, is run as it is");
        emu::refuse(emu::memory::of_the_host);
        check(few.compute(8.0f) == GGML_STATUS_ALLOC_FAILED, "it fails when it is captured anew");
        emu::refuse(emu::memory::all_there);
        check(few.is_right(9.0f) && counted(true) == 7, "and is not launched as it was captured before");
        sum_of_squares last(backend, 4096);
        check(last.is_right(1.0f) && counted(true) == 7, "one more is run as it is");
        emu::refuse(emu::memory::of_graphs);
        check(last.compute(2.0f) == GGML_STATUS_ALLOC_FAILED, "it fails when it is captured and can't be made");
        emu::refuse(emu::memory::all_there);
        check(last.is_right(3.0f) && last.is_right(4.0f) && counted(true) == 9, "and is made later");
        check(emu::check_allocations().empty(), "nothing is written elsewhere");

        with_virtual_memory();
    } catch (const emu::kernel_error & e) {
        check(false, e.what());
        fflush(stdout);
        _Exit(1); // a backend that is in the midst of a capture waits for its end
    }
    ggml_backend_free(backend);
    return n_failed ? 1 : 0;
}
