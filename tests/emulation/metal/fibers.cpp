// SPDX-License-Identifier: MIT
#include "fibers.h"

#include "../common/alignment.hpp"
#include "counts.hpp"

#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <sys/mman.h>
#include <ucontext.h>
#include <vector>

namespace emu {

namespace {

constexpr size_t stack_size = 256*1024;

enum class state { ready, simd, barrier, done, failed };

struct simdgroup {
    alignas(64) char slot[2][width][slot_size];
    uint32_t active[2];
    int parity;
};

struct fiber {
    ucontext_t context;
    jmp_buf    jump;
    bool       started = false;
    state      where   = state::done;
    simd_op    op      = op_barrier;
    simdgroup * group  = nullptr;
    int        index   = 0;
    int        held    = 0;
};

// makecontext once for each fiber, setjmp from then on: it asks the system for nothing
jmp_buf    scheduler;
ucontext_t scheduler_context;
fiber *    current;

std::string mistake; // of the thread that has failed

void (*thread_body)(void *, int);
void * thread_user;

std::vector<std::unique_ptr<fiber>> fibers;
std::vector<simdgroup>              groups;

void to_scheduler() {
    if (_setjmp(current->jump) == 0) {
        _longjmp(scheduler, 1);
    }
}

void main_of_fiber() {
    for (;;) {
        thread_body(thread_user, current->index);
        current->where = state::done;
        to_scheduler();
    }
}

void run(fiber & f) {
    current = &f;
    if (_setjmp(scheduler) == 0) {
        if (f.started) {
            _longjmp(f.jump, 1);
        }
        f.started = true;
        void * stack = mmap(nullptr, stack_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        getcontext(&f.context);
        f.context.uc_stack.ss_sp   = stack;
        f.context.uc_stack.ss_size = stack_size;
        f.context.uc_link          = nullptr;
        makecontext(&f.context, main_of_fiber, 0);
        setcontext(&f.context);
    }
}

// all lanes of a SIMD group that have not ended wait in the same function: they go on
bool release_simd(int first, int last) {
    uint32_t waiting = 0;
    simd_op  op      = op_barrier;
    for (int i = first; i < last; ++i) {
        const fiber & f = *fibers[i];
        if (f.where == state::simd) {
            if (waiting != 0 && f.op != op) {
                throw threadgroup_error { "lanes of a SIMD group wait in different functions" };
            }
            op = f.op;
            waiting |= 1u << (i - first);
        }
    }
    if (waiting == 0) {
        return false;
    }
    for (int i = first; i < last; ++i) {
        if (fibers[i]->where == state::barrier) {
            throw threadgroup_error { "some lanes of a SIMD group wait at a barrier, others in a SIMD-group function" };
        }
    }
    if (op == op_matrix_multiply) {
        counted_product();
    }
    simdgroup & g = *fibers[first]->group;
    g.active[g.parity] = waiting;
    g.parity ^= 1;
    for (int i = first; i < last; ++i) {
        if (fibers[i]->where == state::simd) {
            fibers[i]->where = state::ready;
        }
    }
    return true;
}

// after an error the fibers stand somewhere in the kernel: they are left where they are
[[noreturn]] void abandon(const threadgroup_error & error) {
    for (auto & f : fibers) {
        f.release();
    }
    fibers.clear();
    throw error;
}

void run_all(int n, bool reverse) {
    const int n_groups = (n + width - 1)/width;

    for (;;) {
        for (int k = 0; k < n_groups; ++k) {
            const int g     = reverse ? n_groups - 1 - k : k;
            const int first = g*width;
            const int last  = first + width < n ? first + width : n;
            do {
                for (int i = first; i < last; ++i) {
                    fiber & f = *fibers[reverse ? first + last - 1 - i : i];
                    if (f.where == state::ready) {
                        run(f);
                    }
                    if (f.where == state::failed) {
                        throw threadgroup_error { mistake.c_str() };
                    }
                }
                counted_lanes_wait(first, last);
            } while (release_simd(first, last));
        }

        int done = 0;
        for (int i = 0; i < n; ++i) {
            done += fibers[i]->where == state::done;
        }
        if (done == n) {
            return;
        }
        if (done > 0) {
            throw threadgroup_error { "threads have ended while others wait at a barrier" };
        }
        for (int i = 0; i < n; ++i) {
            fibers[i]->where = state::ready;
        }
    }
}

} // namespace

posted simd_post(const void * data, size_t size, simd_op op) {
    fiber     & f = *current;
    simdgroup & g = *f.group;
    const int   p = g.parity;
    if (size > 0) {
        memcpy(g.slot[p][f.index%width], data, size);
    }
    f.op    = op;
    f.where = state::simd;
    to_scheduler();
    return { g.slot[p], g.active[p] };
}

void barrier() {
    current->where = state::barrier;
    to_scheduler();
}

[[noreturn]] static void fail_thread(const std::string & what) {
    mistake = what;
    current->where = state::failed;
    to_scheduler();
    abort(); // no thread goes on after an error
}

void misaligned(const std::string & what, const void *) { fail_thread(what); }

void hold(int registers) {
    current->held += registers;
    if (current->held > max_held) {
        fail_thread("more matrices than a thread has registers for");
    }
}

int lane() {
    return current->index%width;
}

int thread() {
    return current->index;
}

void run_threadgroup(int n, void (*body)(void * user, int i), void * user, bool reverse) {
    while ((int) fibers.size() < n) {
        fibers.push_back(std::make_unique<fiber>());
    }
    if (groups.size() < fibers.size()/width + 1) {
        groups.resize(fibers.size()/width + 1);
    }
    for (int i = 0; i < n; ++i) {
        fiber & f = *fibers[i];
        f.group = &groups[i/width];
        f.index = i;
        f.where = state::ready;
        f.held  = 0;
        if (i%width == 0) {
            // a slot that nobody filled is NaN
            memset(f.group->slot, 0xff, sizeof(f.group->slot));
            f.group->parity = 0;
        }
    }
    thread_body = body;
    thread_user = user;

    try {
        run_all(n, reverse);
    } catch (const threadgroup_error & error) {
        abandon(error);
    }
}

} // namespace emu
