// SPDX-License-Identifier: MIT
// ggml-metal-context.h: runs a graph node by node, and watches each.
//
// The tensors of a node are copied to memory of their own with guard bands of NaN on both sides; a result that does not
// lie over a source is NaN before. Then its kernels run twice, the second time with everything reversed that the
// hardware may reorder: threads between barriers, threadgroups, dispatches without a barrier between. Wrong are
//
//   a guard band, or a source that no result lies over, that has changed
//   an element of a contiguous result that nobody wrote
//   two runs that differ in a bit: a race
//   threads that diverge at a barrier or in a SIMD-group function
//   matrices that take more registers than a thread has
//   a node that writes what others read or write since the last barrier, or reads what they write
//   a kernel that reads what lies beyond its tensors: its results are NaN
//
// and end the process, with the op's name, but the last, which the caller sees.
#include "emulated.h"
#include "fibers.h"
#include "trace.hpp"

#include "../common/poison.hpp"

#include "ggml-backend-impl.h"
#include "ggml-impl.h"
#include "ggml-metal-context.h"
#include "ggml-metal-common.h"
#include "ggml-metal-ops.h"
#include "ggml-metal-train.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

static uint64_t n_launches;

extern "C" uint64_t pyggml_emulated_launches() { return n_launches; }

struct ggml_metal {
    ggml_metal_device_t dev;
    ggml_metal_event_t  ev_cpy;
    bool killed    = false; // a command buffer, since the last wait
    bool has_error = false; // as a wait found it
};

namespace {

constexpr size_t band = 512;

struct block {
    char * begin;
    char * end;
    bool   written = false; // by the node
    bool   read    = false;

    // band, copy, band; the copy has the address of the original modulo 256
    std::vector<char> memory;
    char * copy = nullptr;

    size_t size() const { return end - begin; }
};

struct node_group {
    std::vector<const ggml_tensor *> nodes;
    std::vector<block>               blocks;
    std::string                      name;
};

// the moments of an optimizer's step are sources and results
bool changes(const ggml_tensor * op, int src) {
    return op->op == GGML_OP_OPT_STEP_ADAMW && (src == 2 || src == 3);
}

void add_block(std::vector<block> & blocks, char * begin, size_t size, bool read, bool written) {
    block b;
    b.begin   = begin;
    b.end     = begin + size;
    b.read    = read;
    b.written = written;
    // overlapping ranges become one
    for (auto it = blocks.begin(); it != blocks.end(); ) {
        if (it->begin < b.end && b.begin < it->end) {
            b.begin    = std::min(b.begin, it->begin);
            b.end      = std::max(b.end,   it->end);
            b.written |= it->written;
            b.read    |= it->read;
            it = blocks.erase(it);
        } else {
            ++it;
        }
    }
    blocks.push_back(b);
}

// NaN in the results that nothing reads first
void fill(node_group & g) {
    for (block & b : g.blocks) {
        b.memory.resize(b.size() + 2*band + 256);
        emu::poison(b.memory.data(), b.memory.size());
        const uintptr_t at = (uintptr_t) b.memory.data() + band;
        b.copy = b.memory.data() + band + (((uintptr_t) b.begin - at)%256);
        if (b.read) {
            memcpy(b.copy, b.begin, b.size());
        }
    }
}

[[noreturn]] void fail(const node_group & g, const char * kernel, const char * what) {
    GGML_ABORT("emulated Metal: %s: %s: %s", g.name.c_str(), kernel, what);
}

char * private_copy(const node_group & g, char * p) {
    for (const block & b : g.blocks) {
        if (b.begin <= p && p < b.end) {
            return b.copy + (p - b.begin);
        }
    }
    return nullptr;
}

struct group_run {
    const emu::command * command;
    emu::launch          launch;
};

void run_thread(void * user, int i) {
    const group_run & r = *(const group_run *) user;
    emu::launch l = r.launch;
    l.index    = i;
    l.thread.x = i%l.threads.x;
    l.thread.y = i/l.threads.x%l.threads.y;
    l.thread.z = i/l.threads.x/l.threads.y;
    r.command->kernel->invoke(l);
}

void run_command(const node_group & g, const emu::command & c, bool reverse) {
    n_launches++;
    c.kernel->set_constants(c.constants);

    group_run r = { &c, {} };
    r.launch.groups  = c.groups;
    r.launch.threads = c.threads;
    for (size_t i = 0; i < c.arguments.size(); ++i) {
        const emu::argument & a = c.arguments[i];
        if (!a.bytes.empty()) {
            r.launch.buffer[i] = (void *) a.bytes.data();
        } else if (a.data) {
            // upstream binds the whole buffer for the second operands, which are only read; their offsets are arguments
            const bool whole = i == 2 && strncmp(c.kernel->name, "kernel_bin_fuse", 15) == 0;
            r.launch.buffer[i] = whole ? a.data : private_copy(g, a.data);
            if (!r.launch.buffer[i]) {
                fail(g, c.kernel->name, "a buffer is bound that is no tensor of the op");
            }
        }
    }

    const int n_threads = c.threads.x*c.threads.y*c.threads.z;
    const int n_groups  = c.groups.x*c.groups.y*c.groups.z;

    std::vector<std::vector<char>> shared;
    for (size_t size : c.threadgroup_sizes) {
        shared.emplace_back(size + 2*band);
    }
    for (int k = 0; k < n_groups; ++k) {
        const int i = reverse ? n_groups - 1 - k : k;
        r.launch.group.x = i%c.groups.x;
        r.launch.group.y = i/c.groups.x%c.groups.y;
        r.launch.group.z = i/c.groups.x/c.groups.y;
        for (size_t s = 0; s < shared.size(); ++s) {
            // what a threadgroup left behind is no longer there
            std::fill(shared[s].begin(), shared[s].end(), (char) 0xff);
            r.launch.threadgroup[s] = (void *) (((uintptr_t) shared[s].data() + 255)/256*256);
        }
        try {
            emu::run_threadgroup(n_threads, run_thread, &r, reverse);
        } catch (const emu::threadgroup_error & error) {
            fail(g, c.kernel->name, error.what);
        }
        for (size_t s = 0; s < shared.size(); ++s) {
            const char * data = (const char *) r.launch.threadgroup[s];
            for (const char * p = shared[s].data(); p < shared[s].data() + shared[s].size(); ++p) {
                if ((p < data || p >= data + c.threadgroup_sizes[s]) && *p != (char) 0xff) {
                    fail(g, c.kernel->name, "writes beyond its threadgroup memory");
                }
            }
        }
    }
}

void run_commands(const node_group & g, const std::vector<emu::command> & commands, bool reverse) {
    for (size_t i = 0; i < commands.size(); ) {
        size_t j = i;
        while (j < commands.size() && !commands[j].is_barrier) {
            ++j;
        }
        for (size_t k = i; k < j; ++k) {
            run_command(g, commands[reverse ? i + j - 1 - k : k], reverse);
        }
        i = j + 1;
    }
}

void check_bands(const node_group & g, const char * kernel) {
    for (const block & b : g.blocks) {
        const char * first = b.memory.data();
        if (!emu::is_poison(first, b.copy - first) || !emu::is_poison(b.copy + b.size(), first + b.memory.size() - (b.copy + b.size()))) {
            fail(g, kernel, "writes beyond its tensors");
        }
        if (!b.written && memcmp(b.copy, b.begin, b.size()) != 0) {
            fail(g, kernel, "writes to a source");
        }
    }
}

void check_written(node_group & g, const char * kernel) {
    const ggml_tensor * dst = g.nodes.back();
    if (!ggml_is_contiguous(dst) || ggml_is_quantized(dst->type)) {
        return;
    }
    for (block & b : g.blocks) {
        if (b.read || !(b.begin <= (char *) dst->data && (char *) dst->data < b.end)) {
            continue;
        }
        const char * p    = b.copy + ((char *) dst->data - b.begin);
        const size_t size = ggml_type_size(dst->type);
        for (int64_t i = 0; i < ggml_nelements(dst); ++i) {
            if (emu::is_poison(p + i*size, size)) {
                fail(g, kernel, "leaves elements unwritten");
            }
        }
    }
}

void run_nodes(node_group & g, const std::vector<emu::command> & commands) {
    const char * kernel = "";
    for (const emu::command & c : commands) {
        kernel = c.is_barrier ? kernel : c.kernel->name;
    }

    fill(g);
    run_commands(g, commands, false);
    check_bands(g, kernel);
    check_written(g, kernel);

    std::vector<std::vector<char>> results;
    for (const block & b : g.blocks) {
        results.emplace_back(b.copy, b.copy + b.size());
    }

    fill(g);
    run_commands(g, commands, true);
    check_bands(g, kernel);

    for (size_t i = 0; i < g.blocks.size(); ++i) {
        const block & b = g.blocks[i];
        // what is behind the tensor is scratch
        size_t size = b.size();
        const ggml_tensor * dst = g.nodes.back();
        if (b.begin == (char *) dst->data) {
            size = std::min(size, ggml_nbytes(dst));
        }
        if (memcmp(results[i].data(), b.copy, size) != 0) {
            fail(g, kernel, "its result depends on the order of the threads");
        }
        if (b.written) {
            memcpy(b.begin, b.copy, b.size());
        }
    }
}

// what nodes read and write that may still run
struct range {
    const char * begin;
    const char * end;
    bool         written;
};

std::vector<range> ranges_of(const node_group & g) {
    std::vector<range> res;
    for (const ggml_tensor * t : g.nodes) {
        for (int s = 0; s < GGML_MAX_SRC; ++s) {
            const bool inner = std::find(g.nodes.begin(), g.nodes.end(), t->src[s]) != g.nodes.end();
            if (t->src[s] && !inner) {
                const char * p = (const char *) t->src[s]->data;
                res.push_back({ p, p + ggml_nbytes(t->src[s]), changes(t, s) });
            }
        }
    }
    const ggml_tensor * dst = g.nodes.back();
    const char * p = (const char *) dst->data;
    const size_t size = dst->view_src ? ggml_nbytes(dst) : ggml_backend_buft_get_alloc_size(dst->buffer->buft, dst);
    res.push_back({ p, p + size, true });
    return res;
}

// barriers between nodes; those within one are seen as it runs in another order
void check_order(std::vector<range> & running, const node_group & g, const std::vector<emu::command> & commands) {
    if (commands.empty()) {
        return;
    }
    if (commands.front().is_barrier) {
        running.clear();
    }
    const std::vector<range> own = ranges_of(g);
    for (const range & a : running) {
        for (const range & b : own) {
            if ((a.written || b.written) && a.begin < b.end && b.begin < a.end) {
                fail(g, "", "no barrier before it, though nodes before it write what it reads, or use what it writes");
            }
        }
    }
    if (commands.back().is_barrier) {
        running.clear();
        return;
    }
    for (const emu::command & c : commands) {
        if (c.is_barrier) {
            running.clear();
        }
    }
    running.insert(running.end(), own.begin(), own.end());
}

bool counts(const ggml_tensor * t) {
    return !ggml_op_is_empty(t->op) && !ggml_is_empty(t);
}

} // namespace

ggml_metal_t ggml_metal_init(ggml_metal_device_t dev) { return new ggml_metal { dev, ggml_metal_device_event_init(dev) }; }

void ggml_metal_free(ggml_metal_t ctx) {
    ggml_metal_device_event_free(ctx->dev, ctx->ev_cpy);
    delete ctx;
}

const char * ggml_metal_get_name(ggml_metal_t ctx) { return ggml_metal_device_get_props(ctx->dev)->name; }

// as ggml-metal-context.m: nobody is told that a command buffer failed before the next graph is
void ggml_metal_synchronize(ggml_metal_t ctx) { ctx->has_error |= ctx->killed; }

void ggml_metal_set_tensor_async(ggml_metal_t, struct ggml_tensor * t, const void * data, size_t offset, size_t size) {
    ggml_metal_buffer_set_tensor(nullptr, t, data, offset, size);
}

void ggml_metal_get_tensor_async(ggml_metal_t, const struct ggml_tensor * t, void * data, size_t offset, size_t size) {
    memcpy(data, (const char *) t->data + offset, size);
}

bool ggml_metal_cpy_tensor_async(ggml_metal_t, ggml_metal_t, const struct ggml_tensor * src, struct ggml_tensor * dst) {
    return ggml_metal_buffer_cpy_tensor(nullptr, src, dst);
}

// a command buffer: the nodes from begin to end; with `killed` the first half of them
static void compute_buffer(ggml_metal_t ctx, ggml_cgraph * gf, int begin, int end, bool killed, FILE * log) {
    std::vector<ggml_tensor *> nodes;
    for (int i = begin; i < end; ++i) {
        if (counts(ggml_graph_node(gf, i))) {
            nodes.push_back(ggml_graph_node(gf, i));
        }
    }

    // as on the device all dispatches may run side by side, unless told otherwise
    ggml_metal_op_t ops = ggml_metal_op_init(ctx->dev, nullptr, gf, ggml_metal_device_get_fusion_info(ctx->dev),
            begin, end, true, false, 0);

    std::vector<range> running;

    const int n_nodes = ggml_metal_op_n_nodes(ops)/(killed ? 2 : 1);
    for (int i = 0; i < n_nodes; ) {
        const int n = ggml_metal_op_encode(ops, i);
        GGML_ASSERT(n > 0);

        node_group g;
        for (int k = i; k < i + n; ++k) {
            const ggml_tensor * t = nodes[k];
            g.nodes.push_back(t);
            g.name += (k > i ? "+" : "") + std::string(ggml_op_desc(t));
            for (int s = 0; s < GGML_MAX_SRC; ++s) {
                // what one node of a fused group writes, the next need not read
                const bool inner = t->src[s] && std::find(nodes.begin() + i, nodes.begin() + k, t->src[s]) != nodes.begin() + k;
                if (t->src[s] && !inner && !ggml_is_empty(t->src[s])) {
                    add_block(g.blocks, (char *) t->src[s]->data, ggml_nbytes(t->src[s]), true, changes(t, s));
                }
            }
            const size_t size = t->view_src ? ggml_nbytes(t) : ggml_backend_buft_get_alloc_size(t->buffer->buft, t);
            add_block(g.blocks, (char *) t->data, size, false, true);
        }
        const std::vector<emu::command> commands = emu::take_commands();
        if (log) {
            for (const emu::command & c : commands) {
                if (!c.is_barrier) {
                    fprintf(log, "%s\t%s\n", g.name.c_str(), c.kernel->name);
                }
            }
        }
        check_order(running, g, commands);
        if (emu::traced()) {
            emu::trace_nodes(g.nodes, commands);
        } else {
            run_nodes(g, commands);
        }
        i += n;
    }
    if (log) {
        fprintf(log, "end\tof a command buffer\n");
    }
    if (emu::traced()) {
        emu::trace_buffer();
    }
    ggml_metal_op_free(ops);
}

enum ggml_status ggml_metal_graph_compute(ggml_metal_t ctx, struct ggml_cgraph * gf) {
    if (ctx->has_error) {
        return GGML_STATUS_FAILED;
    }
    if (ggml_graph_n_nodes(gf) == 0) {
        return GGML_STATUS_SUCCESS;
    }
    // the first command buffer of the n-th graph ends halfway, as one does that a display waited for too long
    if (const char * left = getenv("PYGGML_EMULATED_KILL")) {
        const int n = atoi(left) - 1;
        ctx->killed |= n == 0;
        setenv("PYGGML_EMULATED_KILL", std::to_string(n).c_str(), true);
    }

    const char * log = getenv("PYGGML_EMULATED_LOG");
    FILE * log_file = log ? fopen(log, "a") : nullptr;

    for (int begin = 0; begin < ggml_graph_n_nodes(gf); ) {
        const int end = ggml_metal_train_buffer_end(gf, begin);
        compute_buffer(ctx, gf, begin, end, ctx->killed && begin == 0, log_file);
        begin = ctx->killed ? ggml_graph_n_nodes(gf) : end;
    }
    if (log_file) {
        fclose(log_file);
    }
    return GGML_STATUS_SUCCESS;
}

void ggml_metal_graph_optimize(ggml_metal_t, struct ggml_cgraph * gf) { ggml_graph_optimize(gf); }

void ggml_metal_event_record(ggml_metal_t, ggml_metal_event_t) {}
void ggml_metal_event_wait  (ggml_metal_t, ggml_metal_event_t) {}

ggml_metal_event_t ggml_metal_get_ev_cpy(ggml_metal_t ctx) { return ctx->ev_cpy; }

void ggml_metal_set_n_cb           (ggml_metal_t, int) {}
void ggml_metal_set_abort_callback (ggml_metal_t, ggml_abort_callback, void *) {}
bool ggml_metal_supports_family    (ggml_metal_t, int family) { return family <= 7; }
void ggml_metal_capture_next_compute(ggml_metal_t) {}
