// SPDX-License-Identifier: MIT
// The CUDA backend, with its own dispatch, supports_op and launch geometry, on emulated kernels.
#include "../common/cases.hpp"
#include "runtime.hpp"

#include <ggml-cuda.h>
#include <ggml-cuda/common.cuh>

#include <cstdlib>
#include <vector>

namespace {

struct cuda_device : emu::device {
    ggml_backend_t backend = ggml_backend_cuda_init(0);
    ggml_backend_t virt    = ggml_backend_cuda_init(0); // its scratch memory is virtual
    std::vector<ggml_backend_buffer_t> buffers;

    const char * name() override { return "CUDA"; }

    bool supports(const ggml_tensor * op) override { return ggml_backend_supports_op(backend, op); }

    void alloc(ggml_tensor * t) override {
        ggml_backend_buffer_type_t type = ggml_backend_get_default_buffer_type(backend);
        ggml_backend_buffer_t buf = ggml_backend_buft_alloc_buffer(type, ggml_backend_buft_get_alloc_size(type, t));
        ggml_backend_tensor_alloc(buf, t, ggml_backend_buffer_get_base(buf));
        emu::name_allocation(t->data, t->name);
        buffers.push_back(buf);
    }

    void free_all() override {
        for (ggml_backend_buffer_t buf : buffers) {
            ggml_backend_buffer_free(buf);
        }
        buffers.clear();
        emu::check_allocations();
    }

    void compute(ggml_cgraph * graph, emu::schedule order) override {
        // the one asserts that scratch memory is given back in reverse order, the other's buffers are guarded
        const bool is_virtual = order == emu::schedule::shuffled;
        emu::use_virtual_memory(is_virtual);
        emu::set_schedule(order);
        if (ggml_backend_graph_compute(is_virtual ? virt : backend, graph) != GGML_STATUS_SUCCESS) {
            throw emu::kernel_error("the backend could not compute the graph");
        }
    }

    uint64_t launches() override { return emu::launches(); }

    std::string damage() override { return emu::check_allocations(); }
};

} // namespace

int main(int argc, char ** argv) {
    setenv("PYGGML_EMULATED_CC", "80", 0); // products in bf16 go to cuBLAS
    setenv("GGML_CUDA_DISABLE_GRAPHS", "1", 0); // each case is launched as it is
    cuda_device dev;
    // what the backend asks of an AMD GPU on the host; its kernels are those of an NVIDIA GPU all the same
    if (const char * amd = getenv("PYGGML_EMULATED_AMD")) {
        const int cc = std::string(amd) == "cdna" ? GGML_CUDA_CC_CDNA1 : GGML_CUDA_CC_RDNA3;
        const_cast<ggml_cuda_device_info &>(ggml_cuda_info()).devices[0].cc = cc;
    }
    const int failed = emu::run_cases(dev, argc, argv);
    emu::print_shared();
    return failed;
}
