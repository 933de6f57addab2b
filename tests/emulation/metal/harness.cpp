// SPDX-License-Identifier: MIT
// The case table on the emulated Metal backend, a library of its own whose file GGML_BACKEND_PATH names. What is wrong
// inside of an op ends it (context.cpp); here that is the case's failure.
#include "../common/cases.hpp"
#include "../common/guard.hpp"

#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <vector>

namespace {

struct metal_device : emu::device {
    ggml_backend_dev_t dev     = nullptr;
    ggml_backend_t     backend = nullptr;
    uint64_t (* count)()       = nullptr;

    std::vector<ggml_backend_buffer_t> buffers;

    explicit metal_device(const char * path) {
        ggml_backend_reg_t reg = ggml_backend_load(path);
        void * library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
        if (!reg || !library) {
            fprintf(stderr, "%s could not be loaded\n", path);
            exit(2);
        }
        dev     = ggml_backend_reg_dev_get(reg, 0);
        backend = ggml_backend_dev_init(dev, nullptr);
        count   = (uint64_t (*)()) dlsym(library, "pyggml_emulated_launches");
    }

    const char * name() override { return "Metal"; }

    bool supports(const ggml_tensor * op) override { return ggml_backend_dev_supports_op(dev, op); }

    void alloc(ggml_tensor * t) override {
        ggml_backend_buffer_type_t type = ggml_backend_dev_buffer_type(dev);
        ggml_backend_buffer_t buf = ggml_backend_buft_alloc_buffer(type, ggml_backend_buft_get_alloc_size(type, t));
        ggml_backend_buffer_clear(buf, 0xFF);
        ggml_backend_tensor_alloc(buf, t, ggml_backend_buffer_get_base(buf));
        buffers.push_back(buf);
    }

    void free_all() override {
        for (ggml_backend_buffer_t buf : buffers) {
            ggml_backend_buffer_free(buf);
        }
        buffers.clear();
    }

    // each op is run in two orders by the device itself
    bool heeds_order() override { return false; }

    // The fibers of a kernel that has left all memory stand where they were: after it no other runs.
    bool faulted = false;

    void compute(ggml_cgraph * graph, emu::schedule) override {
        if (faulted) {
            throw emu::kernel_error("not run after a fault");
        }
        struct at_end {
            ~at_end() { emu::set_fault_exit(nullptr); }
        } no_exit;
        sigjmp_buf fault;
        if (sigsetjmp(fault, 1)) {
            faulted = true;
            throw emu::kernel_error(emu::fault_message());
        }
        emu::set_fault_exit(&fault);
        if (ggml_backend_graph_compute(backend, graph) != GGML_STATUS_SUCCESS) {
            throw emu::kernel_error("the backend could not compute the graph");
        }
    }

    uint64_t launches() override { return count(); }

    std::string damage() override { return ""; }
};

} // namespace

int main(int argc, char ** argv) {
    const char * path = getenv("GGML_BACKEND_PATH");
    if (!path) {
        fprintf(stderr, "GGML_BACKEND_PATH must name the library that build.py makes\n");
        return 2;
    }
    metal_device dev(path);
    return emu::run_cases(dev, argc, argv);
}
