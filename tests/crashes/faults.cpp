// SPDX-License-Identifier: MIT
// A library to preload: the n-th call of a kind fails, once faults_arm has been called.
//
// Memory: only calls of pyggml's and ggml's libraries and of Python's mmap module count. CPython and
// NumPy allocate in every line; that they survive it is theirs to show.
// Files: only descriptors of regular files count, whoever calls. Threads: all.

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <new>

enum { MALLOC = 1, MMAP = 2, WRITE = 4, FSYNC = 8, RENAME = 16, THREAD = 32 };

// the error of a failing call; 0: a write that takes half of what it is given
static std::atomic<int>  kinds{0}, error_number{0};
static std::atomic<long> target{0}, calls{0};

struct range {
    uintptr_t begin, end;
};
static range ranges[256];
static int   n_ranges = 0;

extern "C" void * __libc_malloc(size_t);
extern "C" void * __libc_calloc(size_t, size_t);
extern "C" void * __libc_realloc(void *, size_t);
extern "C" void * __libc_memalign(size_t, size_t);

template <typename F> static F * next(F * /* type */, const char * name) {
    return reinterpret_cast<F *>(dlsym(RTLD_NEXT, name));
}

static bool counted(const void * caller) {
    const uintptr_t address = reinterpret_cast<uintptr_t>(caller);
    for (int i = 0; i < n_ranges; ++i) {
        if (address >= ranges[i].begin && address < ranges[i].end) {
            return true;
        }
    }
    return false;
}

// this call of the kind is the one to fail
static bool fails(int kind) {
    if (!(kinds.load(std::memory_order_relaxed) & kind)) {
        return false;
    }
    return ++calls == target.load(std::memory_order_relaxed);
}

static bool fails_for(int kind, const void * caller) {
    return (kinds.load(std::memory_order_relaxed) & kind) && counted(caller) && fails(kind);
}

static bool is_file(int fd) {
    struct stat found;
    const int kept = errno;
    const bool is = fstat(fd, &found) == 0 && S_ISREG(found.st_mode);
    errno = kept;
    return is;
}

extern "C" {

// fail the n-th call of these kinds; n = 0 only counts
void faults_arm(int which, long n, int number) {
    n_ranges = 0;
    FILE * maps = fopen("/proc/self/maps", "r");
    char   line[4096];
    while (maps && fgets(line, sizeof(line), maps)) {
        unsigned long begin, end;
        char          mode[8];
        if (n_ranges < 256 && sscanf(line, "%lx-%lx %7s", &begin, &end, mode) == 3 && mode[2] == 'x' &&
                (strstr(line, "libpyggml") || strstr(line, "_ggml.") || strstr(line, "libstdc++") || strstr(line, "/mmap."))) {
            ranges[n_ranges++] = { begin, end };
        }
    }
    if (maps) {
        fclose(maps);
    }
    calls        = 0;
    target       = n;
    error_number = number;
    kinds        = which;
}

// stop; how many calls there were
long faults_disarm(void) {
    kinds = 0;
    return calls;
}

void * malloc(size_t size) {
    if (fails_for(MALLOC, __builtin_return_address(0))) {
        errno = ENOMEM;
        return NULL;
    }
    return __libc_malloc(size);
}

void * calloc(size_t n, size_t size) {
    if (fails_for(MALLOC, __builtin_return_address(0))) {
        errno = ENOMEM;
        return NULL;
    }
    return __libc_calloc(n, size);
}

void * realloc(void * ptr, size_t size) {
    if (fails_for(MALLOC, __builtin_return_address(0))) {
        errno = ENOMEM;
        return NULL;
    }
    return __libc_realloc(ptr, size);
}

int posix_memalign(void ** ptr, size_t alignment, size_t size) {
    if (fails_for(MALLOC, __builtin_return_address(0))) {
        return ENOMEM;
    }
    *ptr = __libc_memalign(alignment, size);
    return *ptr ? 0 : ENOMEM;
}

void * aligned_alloc(size_t alignment, size_t size) {
    if (fails_for(MALLOC, __builtin_return_address(0))) {
        errno = ENOMEM;
        return NULL;
    }
    return __libc_memalign(alignment, size);
}

void * mmap(void * where, size_t size, int protection, int flags, int fd, off_t offset) {
    if (fails_for(MMAP, __builtin_return_address(0))) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return reinterpret_cast<void *>(syscall(SYS_mmap, where, size, protection, flags, fd, offset));
}

void * mmap64(void * where, size_t size, int protection, int flags, int fd, off64_t offset) {
    if (fails_for(MMAP, __builtin_return_address(0))) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return reinterpret_cast<void *>(syscall(SYS_mmap, where, size, protection, flags, fd, offset));
}

ssize_t write(int fd, const void * data, size_t size) {
    static auto * real = next(&write, "write");
    if (kinds & WRITE && is_file(fd) && fails(WRITE)) {
        if (error_number == 0 && size > 1) {
            return real(fd, data, size / 2);
        }
        errno = error_number;
        return -1;
    }
    return real(fd, data, size);
}

ssize_t pwrite(int fd, const void * data, size_t size, off_t offset) {
    static auto * real = next(&pwrite, "pwrite");
    if (kinds & WRITE && is_file(fd) && fails(WRITE)) {
        if (error_number == 0 && size > 1) {
            return real(fd, data, size / 2, offset);
        }
        errno = error_number;
        return -1;
    }
    return real(fd, data, size, offset);
}

ssize_t pwrite64(int fd, const void * data, size_t size, off64_t offset) {
    return pwrite(fd, data, size, offset);
}

int fsync(int fd) {
    static auto * real = next(&fsync, "fsync");
    if (kinds & FSYNC && fails(FSYNC)) {
        errno = error_number ? error_number.load() : EIO;
        return -1;
    }
    return real(fd);
}

int fdatasync(int fd) {
    return fsync(fd);
}

int rename(const char * from, const char * to) noexcept {
    static auto * real = next(&rename, "rename");
    if (kinds & RENAME && fails(RENAME)) {
        errno = error_number ? error_number.load() : EIO;
        return -1;
    }
    return real(from, to);
}

int pthread_create(pthread_t * thread, const pthread_attr_t * attr, void * (*run)(void *), void * data) noexcept {
    static auto * real = next(&pthread_create, "pthread_create");
    if (fails(THREAD)) {
        return EAGAIN;
    }
    return real(thread, attr, run, data);
}

} // extern "C"

static void * allocate(size_t size, const void * caller) {
    return fails_for(MALLOC, caller) ? NULL : __libc_malloc(size ? size : 1);
}

void * operator new(size_t size) {
    void * ptr = allocate(size, __builtin_return_address(0));
    if (!ptr) {
        throw std::bad_alloc();
    }
    return ptr;
}

void * operator new[](size_t size) {
    void * ptr = allocate(size, __builtin_return_address(0));
    if (!ptr) {
        throw std::bad_alloc();
    }
    return ptr;
}

void * operator new(size_t size, const std::nothrow_t &) noexcept {
    return allocate(size, __builtin_return_address(0));
}

void * operator new[](size_t size, const std::nothrow_t &) noexcept {
    return allocate(size, __builtin_return_address(0));
}

void operator delete(void * ptr) noexcept { free(ptr); }
void operator delete[](void * ptr) noexcept { free(ptr); }
void operator delete(void * ptr, size_t) noexcept { free(ptr); }
void operator delete[](void * ptr, size_t) noexcept { free(ptr); }
