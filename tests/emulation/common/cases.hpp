// SPDX-License-Identifier: MIT
// The table of op cases, and how one is run on an emulated device and compared with the CPU backend.
#pragma once

#include "fibers.hpp"

#include <ggml-backend.h>
#include <ggml.h>

#include <array>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace emu {

enum class layout {
    contiguous,
    rows,       // rows with a gap between them
    permuted,   // axes 1 and 2 swapped in memory, rows without gaps
    transposed, // axes 0 and 1 swapped in memory
    // views that are not made of whole vectors of 16 bytes: they begin one element behind such a place, or the stride of an
    // axis is one element more; "odd": all of it
    odd_start,
    odd_1,
    odd_2,
    odd_3,
    odd,
};

const char * name_of(layout l);

// records the inputs of a case with what they hold
class builder {
public:
    explicit builder(ggml_context * ctx) : ctx(ctx) {}

    ggml_context * ctx;

    using shape = std::array<int64_t, 4>;

    // numbers from [lo, hi)
    ggml_tensor * real(shape ne, float lo = -1.0f, float hi = 1.0f, layout l = layout::contiguous, ggml_type type = GGML_TYPE_F32);
    // whole numbers from [lo, hi)
    ggml_tensor * whole(shape ne, int lo, int hi, layout l = layout::contiguous);
    // these numbers, repeated
    ggml_tensor * values(ggml_type type, shape ne, std::vector<float> v);
    // a causal mask, f16 [n_kv, n_q]
    ggml_tensor * causal(int64_t n_kv, int64_t n_q, int64_t ne2 = 1, int64_t ne3 = 1);

    // compared besides the result
    void also(ggml_tensor * t) { outputs.push_back(t); }
    // computed next, as the graph has it: not in the order in which results need it
    void next(ggml_tensor * t) { ordered.push_back(t); }

    // t has no memory of its own
    void lies_over(ggml_tensor * t, ggml_tensor * other) { over.push_back({ t, other }); }

    struct input {
        ggml_tensor *      tensor; // maybe a view: around it, memory stays poisoned
        std::vector<float> data;   // in the order of its indices
    };
    std::vector<input>         inputs;
    std::vector<ggml_tensor *> outputs;
    std::vector<ggml_tensor *> ordered;
    std::vector<std::pair<ggml_tensor *, ggml_tensor *>> over;

private:
    ggml_tensor * make(ggml_type type, shape ne, layout l);
};

struct op_case {
    std::string op; // as ggml_op_name says
    std::string name;
    std::function<ggml_tensor * (builder &)> build;
    double max_nmse  = 1e-10; // normalized mean squared error against the CPU; 0: the same numbers
    double min_nmse  = 0.0;   // less means that the kernel which rounds has not run
    uint64_t launches = 0;    // how many kernels run; 0: any number
    int    inplace   = -1;    // the result lies over this source
    bool   supported = true;  // else: supports_op must say no
    bool   slow      = false;
    std::string only = "";    // the device whose kernels it is about, or "" for all
    // what the CPU computes instead, where it would end the process
    std::function<ggml_tensor * (builder &)> on_cpu = nullptr;
};

std::vector<op_case> op_cases();

struct table {
    std::vector<op_case> cases;

    op_case & add(const char * op, std::string name, std::function<ggml_tensor * (builder &)> build) {
        cases.push_back({ op, std::move(name), std::move(build) });
        return cases.back();
    }
};

void activations(table & t); // activations.cpp
void attention(table & t);   // attention.cpp
void attention_parts(table & t);
void pictures(table & t);    // pictures.cpp
void products(table & t);    // products.cpp
void tf32(table & t);        // tf32.cpp
void steps(table & t);       // steps.cpp
void chains(table & t);      // chains.cpp
void vectors(table & t);     // vectors.cpp
void nonfinite(table & t);   // nonfinite.cpp
void scratch(table & t);     // scratch.cpp

// what runs the kernels
struct device {
    virtual ~device() = default;
    virtual const char * name() = 0;
    virtual bool supports(const ggml_tensor * op) = 0;
    // memory for a tensor that is no view, guarded and poisoned: sets data and buffer
    virtual void alloc(ggml_tensor * t) = 0;
    virtual void free_all() = 0;
    virtual void compute(ggml_cgraph * graph, schedule order) = 0;
    // whether compute heeds the order; where it doesn't, one run is enough
    virtual bool heeds_order() { return true; }
    virtual uint64_t launches() = 0;
    // what was written outside of memory, or ""
    virtual std::string damage() = 0;
};

// arguments: [--all] [--list] [op or op/name]...; prints a line a case, returns the exit status
int run_cases(device & dev, int argc, char ** argv);

} // namespace emu
