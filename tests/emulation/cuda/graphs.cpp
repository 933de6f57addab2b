// SPDX-License-Identifier: MIT
// CUDA graphs of the emulated backend: a graph that is run again and again is captured and launched, sees what its tensors
// hold now, and is not launched with scratch memory that the pool has given back.
#include "../common/fibers.hpp"
#include "runtime.hpp"

#include <ggml-backend.h>
#include <ggml-cuda.h>
#include <ggml-cuda/allreduce.cuh>
#include <ggml-cuda/common.cuh>

#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

// The sum over several GPUs is not built here. This one takes scratch memory as that one does, and adds nothing.
ggml_cuda_ar_pipeline * ggml_cuda_ar_pipeline_init(const int *, size_t) {
    static char none;
    return (ggml_cuda_ar_pipeline *) &none;
}
void ggml_cuda_ar_pipeline_free(ggml_cuda_ar_pipeline *) {}
bool ggml_cuda_ar_allreduce(ggml_cuda_ar_pipeline *, ggml_backend_t * backends, ggml_tensor ** tensors) {
    ggml_cuda_pool_alloc<nv_bfloat16> copies[2];
    for (int i = 0; i < 2; ++i) {
        copies[i].pool = &((ggml_backend_cuda_context *) backends[i]->context)->pool();
        copies[i].alloc(ggml_nelements(tensors[i]));
    }
    return true;
}

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

// Kernels may find no scratch memory while they are captured, such as another kernel than that of the run before. The device
// can't be waited for then, as it must be before the pool gives back what it holds.
void while_captured() {
    emu::use_virtual_memory(false);
    ggml_backend_t backend = ggml_backend_cuda_init(0);
    {
        sum_of_squares few(backend, 4096);
        ggml_cuda_pool & pool = ((ggml_backend_cuda_context *) backend->context)->pool();
        const int n_launched = counted(true);
        size_t    n, m;

        check(few.is_right(1.0f), "captured: the first run is not");
        void * p = pool.alloc(1, &n); // what it has used
        emu::fail_next_malloc();
        check(few.is_right(2.0f) && counted(true) == n_launched, "captured: one for which there is memory afterwards is run as it is");
        pool.free(p, n);
        check(few.is_right(3.0f) && few.is_right(4.0f) && counted(true) == n_launched + 2, "captured: and is captured then");

        sum_of_squares other(backend, 4096);
        check(other.is_right(1.0f), "captured: another's first run is not");
        p = pool.alloc(1, &n);
        void * q = pool.alloc(1, &m); // the pool has two by now
        emu::refuse(emu::memory::of_mallocs);
        check(other.compute(2.0f) == GGML_STATUS_ALLOC_FAILED, "captured: one for which there is none fails");
        pool.free(q, m);
        pool.free(p, n);
        emu::refuse(emu::memory::all_there);
        check(other.is_right(3.0f) && other.is_right(4.0f), "captured: and is run when there is some again");
        check(emu::check_allocations().empty(), "captured: nothing is written elsewhere");
    }
    ggml_backend_free(backend);
}

// The sum of what several GPUs have is asked for through a pointer to a C function: nothing may be thrown there.
void over_several() {
    ggml_backend_reg_t reg = ggml_backend_cuda_reg();
    const auto init = (ggml_backend_comm_init_t) ggml_backend_reg_get_proc_address(reg, "ggml_backend_comm_init");
    const auto sum  = (ggml_backend_comm_allreduce_tensor_t) ggml_backend_reg_get_proc_address(reg, "ggml_backend_comm_allreduce_tensor");
    const auto free = (ggml_backend_comm_free_t) ggml_backend_reg_get_proc_address(reg, "ggml_backend_comm_free");

    for (bool is_virtual : { false, true }) {
        emu::use_virtual_memory(is_virtual);
        ggml_backend_t backends[2] = { ggml_backend_cuda_init(0), ggml_backend_cuda_init(0) };
        {
            sum_of_squares a(backends[0], 4096);
            sum_of_squares b(backends[1], 4096);
            ggml_tensor * tensors[2] = { a.x, b.x };
            void * all = init(backends, 2);
            emu::refuse(emu::memory::of_mallocs);
            bool said = true;
            try {
                said = sum(all, tensors);
            } catch (const std::bad_alloc &) {
            }
            emu::refuse(emu::memory::all_there);
            check(!said, "several: without scratch memory the sum is left to others");
            check(sum(all, tensors), "several: with it, it is not");
            free(all);
        }
        ggml_backend_free(backends[0]);
        ggml_backend_free(backends[1]);
    }
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
        check(more.is_right(3.0f) && counted(true) == 4, "what fails while it is captured is run as it is");
        emu::refuse(emu::memory::all_there);
        check(more.is_right(4.0f) && more.is_right(5.0f) && counted(true) == 6, "it is captured and launched then");
        check(few.is_right(7.0f) && counted(true) == 6, "another, captured before memory was short, is run as it is");
        emu::refuse(emu::memory::of_the_host);
        check(few.is_right(8.0f) && counted(true) == 6, "and again when it fails as it is captured anew");
        emu::refuse(emu::memory::all_there);
        const int n_captured = counted(false);
        check(few.is_right(9.0f) && counted(true) == 7 && counted(false) == n_captured + 1, "and is not launched as it was captured before");
        sum_of_squares last(backend, 4096);
        check(last.is_right(1.0f) && counted(true) == 7, "one more is run as it is");
        emu::refuse(emu::memory::of_graphs);
        check(last.compute(2.0f) == GGML_STATUS_ALLOC_FAILED, "it fails when it is captured and can't be made");
        emu::refuse(emu::memory::all_there);
        check(last.is_right(3.0f) && last.is_right(4.0f) && counted(true) == 9, "and is made later");
        check(emu::check_allocations().empty(), "nothing is written elsewhere");

        with_virtual_memory();
        while_captured();
        over_several();
    } catch (const emu::kernel_error & e) {
        check(false, e.what());
        fflush(stdout);
        _Exit(1); // a backend that is in the midst of a capture waits for its end
    }
    ggml_backend_free(backend);
    return n_failed ? 1 : 0;
}
