// SPDX-License-Identifier: MIT
#include "fibers.hpp"
#include "guard.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <csetjmp>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace emu {

namespace {

// Switching: the registers that a call preserves go on the stack, and the stack pointer changes. swapcontext does the same
// and asks the kernel for the signal mask each time.
#if defined(__x86_64__)
extern "C" void emu_switch(void ** from, void * to);
__asm__(
    ".text\n"
    ".globl emu_switch\n"
    ".type emu_switch, @function\n"
    "emu_switch:\n"
    "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n    pushq %r15\n"
    "    movq %rsp, (%rdi)\n"
    "    movq %rsi, %rsp\n"
    "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n    popq %rbp\n"
    "    retq\n"
    ".size emu_switch, .-emu_switch\n");

struct context {
    void * sp = nullptr;

    void make(char * stack, size_t size, void (* entry)()) {
        uintptr_t top = ((uintptr_t) stack + size) & ~(uintptr_t) 15;
        void ** p = (void **) top;
        *--p = nullptr; // entry never returns; keeps the stack aligned as after a call
        *--p = (void *) entry;
        for (int i = 0; i < 6; ++i) {
            *--p = nullptr;
        }
        sp = p;
    }

    static void swap(context & from, context & to) {
        emu_switch(&from.sp, to.sp);
    }
};
#else
struct context {
    ucontext_t uc;

    void make(char * stack, size_t size, void (* entry)()) {
        getcontext(&uc);
        uc.uc_stack.ss_sp   = stack;
        uc.uc_stack.ss_size = size;
        uc.uc_link          = nullptr;
        makecontext(&uc, entry, 0);
    }

    static void swap(context & from, context & to) {
        swapcontext(&from.uc, &to.uc);
    }
};
#endif

constexpr size_t STACK_SIZE = 256*1024;

// stacks of fibers that have returned are used again: a kernel without barriers needs one
struct stack_pool {
    std::vector<char *> idle;

    char * get() {
        if (!idle.empty()) {
            char * s = idle.back();
            idle.pop_back();
            return s;
        }
        void * p = mmap(nullptr, STACK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) {
            throw std::bad_alloc();
        }
        mprotect(p, 4096, PROT_NONE); // an overflow is a fault, not a wrong result
        return (char *) p;
    }
};

struct meeting {
    const char * what;
    uint64_t     mask;
    uint64_t     arrived;
    uint64_t     left; // who has read
    size_t       size;
    alignas(16) char values[64*MAX_EXCHANGE];
};

enum class state { fresh, ready, at_barrier, at_meeting, done };

struct fiber {
    state        st    = state::fresh;
    char       * stack = nullptr;
    context      ctx;
    const char * what  = "";
    meeting    * meet  = nullptr;
};

struct block {
    std::vector<fiber> fibers;
    int                warp_size = 32;
    int                current   = -1;
    int                n_done    = 0;
    int                n_barrier = 0;
    context            host;
    void            (* on_switch)(int) = nullptr;
    const std::function<void(int)> * body = nullptr;
    std::string        error;
    bool               failed = false;
    std::vector<std::vector<std::unique_ptr<meeting>>> meetings; // open ones of each warp
    std::vector<std::unique_ptr<meeting>>              spare;
};

block *    B = nullptr;
stack_pool stacks;
sigjmp_buf fault_exit;

void to_host() {
    context::swap(B->fibers[B->current].ctx, B->host);
}

void fiber_main() {
    (*B->body)(B->current);
    B->fibers[B->current].st = state::done;
    B->n_done++;
    to_host();
    __builtin_unreachable();
}

void resume(int i) {
    fiber & f = B->fibers[i];
    if (f.st == state::fresh) {
        f.stack = stacks.get();
        f.ctx.make(f.stack, STACK_SIZE, fiber_main);
    }
    f.st = state::ready;
    B->current = i;
    B->on_switch(i);
    context::swap(B->host, f.ctx);
    if (f.st == state::done) {
        stacks.idle.push_back(f.stack);
        f.stack = nullptr;
    }
}

std::string waiting() {
    // one line for each place that threads wait at
    std::string s;
    std::vector<bool> seen(B->fibers.size(), false);
    for (size_t i = 0; i < B->fibers.size(); ++i) {
        const fiber & f = B->fibers[i];
        if (seen[i] || (f.st != state::at_barrier && f.st != state::at_meeting)) {
            continue;
        }
        int n = 0;
        for (size_t j = i; j < B->fibers.size(); ++j) {
            const fiber & g = B->fibers[j];
            if (g.st == f.st && !strcmp(g.what, f.what)) {
                seen[j] = true;
                n++;
            }
        }
        s += "; " + std::to_string(n) + " at " + f.what + " (the first is thread " + std::to_string(i) + ")";
    }
    return s;
}

} // namespace

const char * schedule_name(schedule s) {
    return s == schedule::forward ? "forward" : s == schedule::backward ? "backward" : "shuffled";
}

void run_block(
        int n_threads, int warp_size, schedule order, uint32_t seed,
        void (* on_switch)(int), const std::function<void(int)> & body) {
    block b;
    b.fibers.resize(n_threads);
    b.warp_size = warp_size;
    b.on_switch = on_switch;
    b.body      = &body;
    b.meetings.resize((n_threads + warp_size - 1)/warp_size);

    std::vector<int> turn(n_threads);
    std::iota(turn.begin(), turn.end(), 0);
    if (order == schedule::backward) {
        std::reverse(turn.begin(), turn.end());
    } else if (order == schedule::shuffled) {
        // warps in any order, and the threads of each
        std::mt19937 rng(seed);
        std::shuffle(turn.begin(), turn.end(), rng);
        std::vector<int> warp(b.meetings.size());
        std::iota(warp.begin(), warp.end(), 0);
        std::shuffle(warp.begin(), warp.end(), rng);
        std::stable_sort(turn.begin(), turn.end(), [&](int x, int y) { return warp[x/warp_size] < warp[y/warp_size]; });
    }

    B = &b;
    const auto leave = [&b] {
        for (fiber & f : b.fibers) {
            if (f.stack) {
                stacks.idle.push_back(f.stack); // nothing on it has a destructor that matters
            }
        }
        B = nullptr;
    };

    if (sigsetjmp(fault_exit, 1) != 0) {
        b.failed = true;
        b.error  = fault_message();
    }
    set_fault_exit(&fault_exit);

    while (!b.failed && b.n_done < n_threads) {
        bool progress = false;
        // a warp goes on until all of its threads wait for other warps
        for (size_t i0 = 0; i0 < turn.size() && !b.failed; ) {
            size_t i1 = i0;
            while (i1 < turn.size() && turn[i1]/warp_size == turn[i0]/warp_size) {
                ++i1;
            }
            for (bool again = true; again && !b.failed; ) {
                again = false;
                for (size_t i = i0; i < i1 && !b.failed; ++i) {
                    const state st = b.fibers[turn[i]].st;
                    if (st == state::fresh || st == state::ready) {
                        resume(turn[i]);
                        again = progress = true;
                    }
                }
            }
            i0 = i1;
        }
        if (b.failed || b.n_done == n_threads) {
            break;
        }
        if (b.n_barrier == n_threads) {
            const char * what = b.fibers[0].what;
            for (fiber & f : b.fibers) {
                if (strcmp(f.what, what) != 0) {
                    b.failed = true;
                    b.error  = "threads of a block meet at different barriers" + waiting();
                }
                f.st = state::ready;
            }
            b.n_barrier = 0;
        } else if (!progress) {
            b.failed = true;
            b.error  = "threads wait for others that never come: " + std::to_string(b.n_done) + " of " +
                std::to_string(n_threads) + " have returned" + waiting();
        }
    }

    set_fault_exit(nullptr);
    const bool        failed = b.failed;
    const std::string error  = b.error + (failed && b.current >= 0 ? " [thread " + std::to_string(b.current) + "]" : "");
    leave();
    if (failed) {
        throw kernel_error(error);
    }
}

void block_barrier(const char * what) {
    fiber & f = B->fibers[B->current];
    f.st   = state::at_barrier;
    f.what = what;
    B->n_barrier++;
    to_host();
}

uint64_t warp_live() {
    const int w0 = B->current/B->warp_size*B->warp_size;
    uint64_t mask = 0;
    for (int i = 0; i < B->warp_size && w0 + i < (int) B->fibers.size(); ++i) {
        if (B->fibers[w0 + i].st != state::done) {
            mask |= (uint64_t) 1 << i;
        }
    }
    return mask;
}

void warp_exchange(const char * what, uint64_t mask, const void * value, void * out, size_t size) {
    const int warp = B->current/B->warp_size;
    const int lane = B->current%B->warp_size;
    const uint64_t bit = (uint64_t) 1 << lane;

    // a block's last warp may have fewer threads than a mask of all
    const int      in_warp = std::min<int>(B->warp_size, (int) B->fibers.size() - warp*B->warp_size);
    const uint64_t present = in_warp == 64 ? ~(uint64_t) 0 : ((uint64_t) 1 << in_warp) - 1;
    mask &= present;

    if (!(mask & bit)) {
        fail(std::string(what) + ": the thread is not in the mask of its own call");
    }
    if (size > MAX_EXCHANGE) {
        fail(std::string(what) + ": the value is too large to exchange");
    }

    auto & open = B->meetings[warp];
    meeting * m = nullptr;
    for (auto & o : open) {
        if (o->mask == mask && !(o->arrived & bit)) {
            m = o.get();
            break;
        }
    }
    if (!m) {
        std::unique_ptr<meeting> n;
        if (B->spare.empty()) {
            n.reset(new meeting);
        } else {
            n = std::move(B->spare.back());
            B->spare.pop_back();
        }
        n->what = what; n->mask = mask; n->arrived = 0; n->left = 0; n->size = size;
        m = n.get();
        open.push_back(std::move(n));
    }
    if (strcmp(m->what, what) != 0 || m->size != size) {
        fail(std::string("threads of a warp meet at different collectives: ") + m->what + " and " + what);
    }

    memcpy(m->values + lane*size, value, size);
    m->arrived |= bit;

    if (m->arrived == mask) {
        for (int i = 0; i < in_warp; ++i) {
            fiber & f = B->fibers[warp*B->warp_size + i];
            if (f.st == state::at_meeting && f.meet == m) {
                f.st = state::ready;
            }
        }
    } else {
        fiber & f = B->fibers[B->current];
        f.st   = state::at_meeting;
        f.what = what;
        f.meet = m;
        to_host();
    }

    memcpy(out, m->values, in_warp*size);
    m->left |= bit;
    if (m->left == mask) {
        auto & now = B->meetings[warp];
        for (size_t i = 0; i < now.size(); ++i) {
            if (now[i].get() == m) {
                B->spare.push_back(std::move(now[i]));
                now.erase(now.begin() + i);
                break;
            }
        }
    }
}

int thread_in_block() {
    return B->current;
}

bool in_kernel() {
    return B != nullptr;
}

void fail(const std::string & message) {
    if (!B) {
        throw kernel_error(message);
    }
    B->failed = true;
    B->error  = message;
    to_host();
    __builtin_unreachable();
}

} // namespace emu
