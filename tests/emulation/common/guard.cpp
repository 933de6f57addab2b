// SPDX-License-Identifier: MIT
#include "guard.hpp"
#include "poison.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

namespace emu {

namespace {

struct region {
    const unsigned char * map;
    size_t                map_size;
    const unsigned char * ptr;
    size_t                size;
    const std::string   * name;
};

std::vector<region> & regions() {
    // never destroyed: guarded memory that is static itself leaves this at the end of the program, after what was made
    // later has gone
    static std::vector<region> & r = *new std::vector<region>;
    return r;
}

sigjmp_buf  * exit_to = nullptr;
void        * fault_address = nullptr;
int           fault_signal  = 0;

void on_fault(int sig, siginfo_t * info, void *) {
    fault_address = info->si_addr;
    fault_signal  = sig;
    if (exit_to) {
        siglongjmp(*exit_to, 1);
    }
    const std::string s = "fault outside of a kernel: " + guarded::describe(fault_address) + "\n";
    if (write(2, s.data(), s.size()) < 0) {
        _exit(71);
    }
    signal(sig, SIG_DFL);
    raise(sig);
}

void install() {
    static bool done = false;
    if (done) {
        return;
    }
    done = true;

    // a handler's own stack: the fault may be an overflow of a fiber's
    static char stack[64*1024];
    stack_t ss = {};
    ss.ss_sp   = stack;
    ss.ss_size = sizeof(stack);
    sigaltstack(&ss, nullptr);

    struct sigaction sa = {};
    sa.sa_sigaction = on_fault;
    sa.sa_flags     = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSEGV, &sa, nullptr);
    sigaction(SIGBUS,  &sa, nullptr);
    sigaction(SIGFPE,  &sa, nullptr);
}

size_t page() {
    static const size_t p = (size_t) sysconf(_SC_PAGESIZE);
    return p;
}

} // namespace

void set_fault_exit(sigjmp_buf * exit) {
    install();
    exit_to = exit;
}

std::string fault_message() {
    if (fault_signal == SIGFPE) {
        return "whole number divided by zero";
    }
    return "access " + guarded::describe(fault_address);
}

guarded::guarded(std::string name_, size_t size) : name(std::move(name_)), n(size) {
    const size_t inner = std::max<size_t>((size + ALIGNMENT + page() - 1)/page()*page(), page());
    map_size = inner + 2*page();
    void * p = mmap(nullptr, map_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        throw std::bad_alloc();
    }
    map = (unsigned char *) p;
    mprotect(map + page(), inner, PROT_READ | PROT_WRITE);
    ptr = map + page() + (inner - size)/ALIGNMENT*ALIGNMENT;
    emu::poison(map + page(), inner);
    regions().push_back({ map, map_size, ptr, n, &name });
}

guarded::~guarded() {
    auto & r = regions();
    r.erase(std::find_if(r.begin(), r.end(), [this](const region & x) { return x.map == map; }));
    munmap(map, map_size);
}

void guarded::poison() {
    emu::poison(ptr, n);
}

std::string guarded::check() const {
    const unsigned char * first = map + page();
    const unsigned char * last  = map + map_size - page();
    for (const unsigned char * p = first; p < last; ++p) {
        if (p == ptr) {
            p += n;
            if (p >= last) {
                break;
            }
        }
        if (*p != poison_at(p)) {
            return "written " + describe(p);
        }
    }
    return "";
}

std::string guarded::describe(const void * address) {
    const unsigned char * a = (const unsigned char *) address;
    for (const region & r : regions()) {
        if (a < r.map || a >= r.map + r.map_size) {
            continue;
        }
        const std::string of = " of " + *r.name + " (" + std::to_string(r.size) + " bytes)";
        if (a < r.ptr) {
            return std::to_string(r.ptr - a) + " bytes before the begin" + of;
        }
        if (a >= r.ptr + r.size) {
            return std::to_string(a - (r.ptr + r.size)) + " bytes past the end" + of;
        }
        return "at byte " + std::to_string(a - r.ptr) + of;
    }
    char s[64];
    snprintf(s, sizeof(s), "at %p, in no buffer", address);
    return s;
}

} // namespace emu
