// SPDX-License-Identifier: MIT
#include "cases.hpp"

#include <ggml-cpu.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <random>

namespace emu {

// ---- inputs

const char * name_of(layout l) {
    switch (l) {
        case layout::contiguous: return "contiguous";
        case layout::rows:       return "rows";
        case layout::permuted:   return "permuted";
        case layout::transposed: return "transposed";
        case layout::odd_start:  return "odd-start";
        case layout::odd_1:      return "odd-1";
        case layout::odd_2:      return "odd-2";
        case layout::odd_3:      return "odd-3";
        case layout::odd:        return "odd";
    }
    return "";
}

static ggml_tensor * make_odd(ggml_context * ctx, ggml_type type, builder::shape ne, layout l) {
    const size_t  size = ggml_type_size(type);
    const int64_t n    = 16/size; // of a vector
    const auto whole = [n](int64_t x) { return (x + n - 1)/n*n; };
    const auto more  = [l](layout which) { return l == which || l == layout::odd ? 1 : 0; };

    const int64_t first = n + more(layout::odd_start);
    const int64_t s1 = whole(ne[0])    + more(layout::odd_1);
    const int64_t s2 = whole(ne[1]*s1) + more(layout::odd_2);
    const int64_t s3 = whole(ne[2]*s2) + more(layout::odd_3);
    ggml_tensor * base = ggml_new_tensor_1d(ctx, type, first + ne[3]*s3 + n);
    return ggml_view_4d(ctx, base, ne[0], ne[1], ne[2], ne[3], s1*size, s2*size, s3*size, first*size);
}

ggml_tensor * builder::make(ggml_type type, shape ne, layout l) {
    switch (l) {
        case layout::rows:
            {
                const int64_t gap = 8; // whole vectors of 16 bytes, so that the vectorized kernels take it
                ggml_tensor * base = ggml_new_tensor_4d(ctx, type, ne[0] + gap, ne[1], ne[2], ne[3]);
                return ggml_view_4d(ctx, base, ne[0], ne[1], ne[2], ne[3], base->nb[1], base->nb[2], base->nb[3], 4*base->nb[0]);
            }
        case layout::permuted:
            return ggml_permute(ctx, ggml_new_tensor_4d(ctx, type, ne[0], ne[2], ne[1], ne[3]), 0, 2, 1, 3);
        case layout::transposed:
            return ggml_transpose(ctx, ggml_new_tensor_4d(ctx, type, ne[1], ne[0], ne[2], ne[3]));
        case layout::contiguous:
            return ggml_new_tensor_4d(ctx, type, ne[0], ne[1], ne[2], ne[3]);
        default:
            return make_odd(ctx, type, ne, l);
    }
}

ggml_tensor * builder::real(shape ne, float lo, float hi, layout l, ggml_type type) {
    ggml_tensor * t = make(type, ne, l);
    std::mt19937 rng(1000 + (unsigned) inputs.size());
    std::uniform_real_distribution<float> d(lo, hi);
    std::vector<float> v(ggml_nelements(t));
    for (float & x : v) {
        x = d(rng);
    }
    inputs.push_back({ t, std::move(v) });
    return t;
}

ggml_tensor * builder::whole(shape ne, int lo, int hi, layout l) {
    ggml_tensor * t = make(GGML_TYPE_I32, ne, l);
    std::mt19937 rng(2000 + (unsigned) inputs.size());
    std::uniform_int_distribution<int> d(lo, hi - 1);
    std::vector<float> v(ggml_nelements(t));
    for (float & x : v) {
        x = (float) d(rng);
    }
    inputs.push_back({ t, std::move(v) });
    return t;
}

ggml_tensor * builder::values(ggml_type type, shape ne, std::vector<float> given) {
    ggml_tensor * t = make(type, ne, layout::contiguous);
    std::vector<float> v(ggml_nelements(t));
    for (size_t i = 0; i < v.size(); ++i) {
        v[i] = given[i%given.size()];
    }
    inputs.push_back({ t, std::move(v) });
    return t;
}

ggml_tensor * builder::causal(int64_t n_kv, int64_t n_q, int64_t ne2, int64_t ne3) {
    ggml_tensor * t = make(GGML_TYPE_F16, { n_kv, n_q, ne2, ne3 }, layout::contiguous);
    std::vector<float> v(ggml_nelements(t));
    for (int64_t i = 0; i < (int64_t) v.size(); ++i) {
        v[i] = i%n_kv > i/n_kv%n_q + (n_kv - n_q) ? -INFINITY : 0.0f;
    }
    inputs.push_back({ t, std::move(v) });
    return t;
}

static void write_input(const builder::input & in) {
    ggml_tensor * t = in.tensor;
    const ggml_type_traits * traits = ggml_get_type_traits(t->type);
    if (ggml_is_quantized(t->type)) {
        ggml_quantize_chunk(t->type, in.data.data(), t->data, 0, ggml_nrows(t), t->ne[0], nullptr);
        return;
    }
    size_t i = 0;
    for (int64_t i3 = 0; i3 < t->ne[3]; ++i3) {
        for (int64_t i2 = 0; i2 < t->ne[2]; ++i2) {
            for (int64_t i1 = 0; i1 < t->ne[1]; ++i1) {
                for (int64_t i0 = 0; i0 < t->ne[0]; ++i0) {
                    char * p = (char *) t->data + i0*t->nb[0] + i1*t->nb[1] + i2*t->nb[2] + i3*t->nb[3];
                    const float x = in.data[i++];
                    if (t->type == GGML_TYPE_I32) {
                        *(int32_t *) p = (int32_t) x;
                    } else if (t->type == GGML_TYPE_F32) {
                        *(float *) p = x;
                    } else {
                        traits->from_float_ref(&x, p, 1);
                    }
                }
            }
        }
    }
}

static std::vector<float> read_output(const ggml_tensor * t) {
    std::vector<float> v;
    v.reserve(ggml_nelements(t));
    const ggml_type_traits * traits = ggml_get_type_traits(t->type);
    for (int64_t i3 = 0; i3 < t->ne[3]; ++i3) {
        for (int64_t i2 = 0; i2 < t->ne[2]; ++i2) {
            for (int64_t i1 = 0; i1 < t->ne[1]; ++i1) {
                for (int64_t i0 = 0; i0 < t->ne[0]; ++i0) {
                    const char * p = (const char *) t->data + i0*t->nb[0] + i1*t->nb[1] + i2*t->nb[2] + i3*t->nb[3];
                    float x;
                    if (t->type == GGML_TYPE_I32) {
                        x = (float) *(const int32_t *) p;
                    } else if (t->type == GGML_TYPE_F32) {
                        x = *(const float *) p;
                    } else {
                        traits->to_float(p, &x, 1);
                    }
                    v.push_back(x);
                }
            }
        }
    }
    return v;
}

// ---- one run

namespace {

struct recorded {
    ggml_context  * ctx;
    builder         b;
    ggml_tensor   * result;
    ggml_cgraph   * graph;

    explicit recorded(const std::function<ggml_tensor * (builder &)> & build) :
            ctx(ggml_init({ 512*ggml_tensor_overhead() + ggml_graph_overhead(), nullptr, true })), b(ctx) {
        result = build(b);
        ggml_set_name(result, "result");
        graph = ggml_new_graph(ctx);
        for (const auto & tensors : { b.ordered, b.outputs }) {
            for (ggml_tensor * t : tensors) {
                ggml_build_forward_expand(graph, t);
            }
        }
        ggml_build_forward_expand(graph, result);
        b.outputs.insert(b.outputs.begin(), result);
        int n = 0;
        for (ggml_tensor * t = ggml_get_first_tensor(ctx); t; t = ggml_get_next_tensor(ctx, t)) {
            if (!t->name[0]) {
                ggml_format_name(t, "tensor %d", n);
            }
            n++;
        }
        for (int i = 0; i < GGML_MAX_SRC; ++i) {
            ggml_tensor * s = result->src[i];
            for (; s; s = s->view_src) {
                ggml_format_name(s, "src%d", i);
            }
        }
    }

    ~recorded() { ggml_free(ctx); }
    recorded(const recorded &) = delete;
};

using results = std::vector<std::vector<float>>;

void place(recorded & r, const op_case & c, const std::function<void(ggml_tensor *)> & alloc) {
    auto over = r.b.over;
    if (c.inplace >= 0) {
        over.push_back({ r.result, r.result->src[c.inplace] });
    }
    for (ggml_tensor * t = ggml_get_first_tensor(r.ctx); t; t = ggml_get_next_tensor(r.ctx, t)) {
        const bool lies = std::any_of(over.begin(), over.end(), [t](const auto & o) { return o.first == t; });
        if (!t->view_src && !lies) {
            alloc(t);
        }
    }
    for (const auto & [t, other] : over) {
        ggml_tensor * base = other->view_src ? other->view_src : other;
        t->data   = base->data;
        t->buffer = base->buffer;
    }
    for (ggml_tensor * t = ggml_get_first_tensor(r.ctx); t; t = ggml_get_next_tensor(r.ctx, t)) {
        if (t->view_src) {
            t->data   = (char *) t->view_src->data + t->view_offs;
            t->buffer = t->view_src->buffer;
        }
    }
    for (const builder::input & in : r.b.inputs) {
        write_input(in);
    }
}

results outputs_of(const recorded & r) {
    results o;
    for (const ggml_tensor * t : r.b.outputs) {
        o.push_back(read_output(t));
    }
    return o;
}

results on_cpu(const op_case & c, ggml_backend_t cpu) {
    recorded r(c.on_cpu ? c.on_cpu : c.build);
    std::vector<ggml_backend_buffer_t> buffers;
    place(r, c, [&](ggml_tensor * t) {
        ggml_backend_buffer_t buf = ggml_backend_alloc_buffer(cpu, ggml_nbytes(t) + 64);
        memset(ggml_backend_buffer_get_base(buf), 0xFF, ggml_nbytes(t) + 64);
        t->buffer = buf;
        t->data   = ggml_backend_buffer_get_base(buf);
        buffers.push_back(buf);
    });
    ggml_backend_graph_compute(cpu, r.graph);
    results o = outputs_of(r);
    for (ggml_backend_buffer_t buf : buffers) {
        ggml_backend_buffer_free(buf);
    }
    return o;
}

struct run_result {
    bool     supported = true;
    uint64_t launches  = 0;
    results  out;
};

constexpr size_t REFUSED_MAX = 16*1024*1024;

size_t size_of(const recorded & r) {
    size_t n = 0;
    for (ggml_tensor * t = ggml_get_first_tensor(r.ctx); t; t = ggml_get_next_tensor(r.ctx, t)) {
        n += t->view_src ? 0 : ggml_nbytes(t);
    }
    return n;
}

run_result on_device(const op_case & c, device & dev, schedule order) {
    recorded r(c.build);
    run_result res;
    for (int i = 0; i < ggml_graph_n_nodes(r.graph); ++i) {
        res.supported = res.supported && dev.supports(ggml_graph_node(r.graph, i));
    }
    // what should be refused and is not shows what it does, if that is soon done
    if (!res.supported || (!c.supported && size_of(r) > REFUSED_MAX)) {
        return res;
    }
    struct release {
        device & d;
        ~release() { d.free_all(); }
    } release_at_end { dev };

    place(r, c, [&](ggml_tensor * t) { dev.alloc(t); });
    const uint64_t before = dev.launches();
    dev.compute(r.graph, order);
    res.launches = dev.launches() - before;
    const std::string damage = dev.damage();
    if (!damage.empty()) {
        throw kernel_error(damage);
    }
    res.out = outputs_of(r);
    return res;
}

// FNV-1a of the numbers
uint64_t hash_of(const results & r) {
    uint64_t h = 14695981039346656037ull;
    for (const std::vector<float> & v : r) {
        for (const float & x : v) {
            uint32_t u;
            memcpy(&u, &x, sizeof(u));
            h = (h ^ u)*1099511628211ull;
        }
    }
    return h;
}

// "" or what is wrong; nmse: of the worst output
std::string compare(const results & want, const results & got, const op_case & c, double & nmse) {
    nmse = 0.0;
    for (size_t k = 0; k < want.size(); ++k) {
        double err = 0.0;
        double ref = 0.0;
        for (size_t i = 0; i < want[k].size(); ++i) {
            const float w = want[k][i];
            const float g = got[k][i];
            if (std::isnan(w) && std::isnan(g)) {
                continue;
            }
            if (std::isnan(w) != std::isnan(g) || ((std::isinf(w) || std::isinf(g)) && w != g)) {
                return "output " + std::to_string(k) + ": element " + std::to_string(i) + " is " + std::to_string(g) +
                    ", the CPU has " + std::to_string(w);
            }
            if (std::isinf(w)) {
                continue;
            }
            err += ((double) w - g)*((double) w - g);
            ref += (double) w*w;
        }
        const double e = ref > 0.0 ? err/ref : err;
        nmse = std::max(nmse, e);
    }
    if (nmse > c.max_nmse || nmse < c.min_nmse) {
        char s[96];
        const bool more = nmse > c.max_nmse;
        snprintf(s, sizeof(s), "normalized mean squared error %.3g %c %.3g", nmse, more ? '>' : '<', more ? c.max_nmse : c.min_nmse);
        return s;
    }
    return "";
}

std::string running; // the case

// what a destructor throws, such as a failed assertion, ends the process: the case has failed
[[noreturn]] void on_terminate() {
    std::string wrong = "an exception";
    try {
        if (std::current_exception()) {
            std::rethrow_exception(std::current_exception());
        }
    } catch (const std::exception & e) {
        wrong = e.what();
    } catch (...) {
    }
    printf("FAIL %s: the process ends: %s\n", running.c_str(), wrong.c_str());
    fflush(stdout);
    _Exit(1);
}

} // namespace

int run_cases(device & dev, int argc, char ** argv) {
    bool all  = false;
    bool list = false;
    std::vector<std::string> wanted;
    for (int i = 1; i < argc; ++i) {
        if (!strcmp(argv[i], "--all")) {
            all = true;
        } else if (!strcmp(argv[i], "--list")) {
            list = true;
        } else {
            wanted.push_back(argv[i]);
        }
    }

    // a failed assertion of the backend is the case's failure
    ggml_set_abort_callback([](const char * message) { throw kernel_error(message); });
    std::set_terminate(on_terminate);

    ggml_backend_t cpu = ggml_backend_cpu_init();
    ggml_backend_cpu_set_n_threads(cpu, 1);

    int n_ok = 0;
    int n_failed = 0;
    for (const op_case & c : op_cases()) {
        const std::string id = c.op + "/" + c.name;
        const auto named = [&](const std::string & name) { return std::find(wanted.begin(), wanted.end(), name) != wanted.end(); };
        const bool asked = named(c.op) || named(id);
        const bool here = c.only.empty() || c.only == dev.name();
        if (!here || (!wanted.empty() && !asked) || (c.slow && !all && !named(id))) {
            continue;
        }
        if (list) {
            printf("%s\n", id.c_str());
            continue;
        }

        running = id;
        std::string wrong;
        double nmse = 0.0;
        uint64_t launches = 0;
        results first;
        try {
            for (schedule order : { schedule::forward, schedule::backward, schedule::shuffled }) {
                run_result got = on_device(c, dev, order);
                if (got.supported != c.supported) {
                    wrong = got.supported ? "supports_op says yes, expected no" : "supports_op says no";
                    break;
                }
                if (!got.supported) {
                    break;
                }
                launches = got.launches;
                if (launches == 0 || (c.launches && launches != c.launches)) {
                    wrong = "launched " + std::to_string(launches) + " kernels, expected " +
                        (c.launches ? std::to_string(c.launches) : "some");
                    break;
                }
                if (first.empty()) {
                    wrong = compare(on_cpu(c, cpu), got.out, c, nmse);
                    first = std::move(got.out);
                } else {
                    for (size_t k = 0; k < first.size() && wrong.empty(); ++k) {
                        if (memcmp(first[k].data(), got.out[k].data(), first[k].size()*sizeof(float)) != 0) {
                            wrong = std::string("other bits when threads run in ") + schedule_name(order) + " order: a race";
                        }
                    }
                }
                if (!wrong.empty() || !dev.heeds_order()) {
                    break;
                }
            }
        } catch (const kernel_error & e) {
            wrong = e.what();
        }

        if (wrong.empty()) {
            printf("ok %s nmse=%.2g launches=%d bits=%016llx%s\n", id.c_str(), nmse, (int) launches,
                (unsigned long long) hash_of(first), c.supported ? "" : " refused as it should");
            n_ok++;
        } else {
            printf("FAIL %s: %s\n", id.c_str(), wrong.c_str());
            n_failed++;
        }
        fflush(stdout);
    }
    ggml_backend_free(cpu);
    if (!list) {
        printf("%s: %d ok, %d failed\n", dev.name(), n_ok, n_failed);
    }
    return n_failed ? 1 : 0;
}

} // namespace emu
