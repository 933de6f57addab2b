// SPDX-License-Identifier: MIT
// Signals that wait while the main thread of Python is in a block (see undivided.py). Another
// handler stands in for those that Python runs, and notes what comes; at the end of the outermost
// block each is as it was, to its flags, and what came is raised again. Windows has no sigaction:
// nothing waits there. All but the handler itself is called by the main thread alone.

#include <csignal>
#include <cstdint>

#ifdef _WIN32
static void pyggml_enter_block(uint64_t handled) {
    (void) handled;
}
static void pyggml_leave_block(void) {
}
static void pyggml_end_blocks(void) {
}
#else
#include <signal.h>

#define PYGGML_SIGNALS 64
// So many requests to stop wait; one more acts at once, so that a block that hangs can be ended.
#define PYGGML_STOPS   2

static struct {
    int                   depth;
    uint64_t              held; // bit n - 1 of signal n
    struct sigaction      own[PYGGML_SIGNALS];
    volatile sig_atomic_t came[PYGGML_SIGNALS];
    volatile sig_atomic_t stops;
} pyggml_signals;

static void pyggml_note(int signum, siginfo_t * info, void * context) {
    auto & s = pyggml_signals;
    if (signum == SIGINT || signum == SIGTERM) {
        if (s.stops == PYGGML_STOPS) {
            const struct sigaction & own = s.own[signum - 1];
            if (own.sa_flags & SA_SIGINFO) {
                own.sa_sigaction(signum, info, context);
            } else {
                own.sa_handler(signum);
            }
            return;
        }
        s.stops = s.stops + 1;
    }
    s.came[signum - 1] = 1;
}

// Enter a block. handled: the signals that wait from now on, or none if they wait later.
static void pyggml_enter_block(uint64_t handled) {
    auto & s = pyggml_signals;
    s.depth++;
    handled &= ~s.held;
    if (!s.held) {
        s.stops = 0;
    }
    for (int i = 0; handled >> i && i < PYGGML_SIGNALS; i++) {
        struct sigaction & own = s.own[i];
        if (!(handled >> i & 1) || sigaction(i + 1, NULL, &own) != 0) {
            continue;
        }
        if (!(own.sa_flags & SA_SIGINFO) && (own.sa_handler == SIG_DFL || own.sa_handler == SIG_IGN)) {
            continue; // another library has changed it since Python set it
        }
        struct sigaction note = {};
        note.sa_sigaction     = pyggml_note;
        note.sa_flags         = SA_SIGINFO | (own.sa_flags & (SA_RESTART | SA_ONSTACK));
        note.sa_mask          = own.sa_mask;
        if (sigaction(i + 1, &note, NULL) == 0) {
            s.held |= uint64_t(1) << i;
        }
    }
}

// Put the handlers back, but for what the block itself has set; return the signals that waited.
static uint64_t pyggml_put_back(void) {
    auto &         s    = pyggml_signals;
    const uint64_t held = s.held;
    s.held = 0;
    for (int i = 0; i < PYGGML_SIGNALS; i++) {
        struct sigaction now;
        if (held >> i & 1 && sigaction(i + 1, NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) &&
            now.sa_sigaction == pyggml_note) {
            sigaction(i + 1, &s.own[i], NULL);
        }
    }
    return held;
}

// Leave a block; in a forked process the parent's blocks have ended.
static void pyggml_leave_block(void) {
    auto & s = pyggml_signals;
    if (s.depth == 0 || --s.depth > 0) {
        return;
    }
    const uint64_t held = pyggml_put_back();
    for (int i = 0; i < PYGGML_SIGNALS; i++) {
        if (held >> i & 1 && s.came[i]) {
            s.came[i] = 0;
            raise(i + 1);
        }
    }
}

// For a forked process: what came was meant for its parent.
static void pyggml_end_blocks(void) {
    auto &         s    = pyggml_signals;
    const uint64_t held = pyggml_put_back();
    s.depth = 0;
    for (int i = 0; i < PYGGML_SIGNALS; i++) {
        if (held >> i & 1) {
            s.came[i] = 0;
        }
    }
}
#endif
