// SPDX-License-Identifier: MIT
// A library to preload: the n-th call of a kind fails, once faults_arm has been called.
//
// Memory: only calls of pyggml's and ggml's libraries and of Python's mmap module count. CPython and
// NumPy allocate in every line; that they survive it is theirs to show.
// Files: only what lies in the folder of faults_arm counts, whoever calls. Threads: all.

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
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

enum {
    MALLOC = 1, MMAP = 2, WRITE = 4, FSYNC = 8, RENAME = 16, THREAD = 32,
    OPEN = 64, READ = 128, CLOSE = 256, MKDIR = 512, UNLINK = 1024, LINK = 2048,
};

// the error of a failing call; 0: a read or write that moves half of what is asked for
static std::atomic<int>  kinds{0}, error_number{0};
static std::atomic<long> target{0}, calls{0};
static char              place[PATH_MAX];

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

static bool in_place(const char * path) {
    return strncmp(path, place, strlen(place)) == 0;
}

// the file or folder of a descriptor lies in the folder
static bool is_ours(int fd) {
    char       link[32], path[PATH_MAX];
    const int  kept = errno;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    const ssize_t size = readlink(link, path, sizeof(path) - 1);
    errno = kept;
    if (size < 0) {
        return false;
    }
    path[size] = '\0';
    return in_place(path);
}

// a path as openat takes it: from a folder's descriptor where it is not absolute
static bool is_ours_at(int folder, const char * path) {
    return path[0] == '/' ? in_place(path) : folder != AT_FDCWD && is_ours(folder);
}

// an operation on a file or folder, which then returns -1
static bool file_fails(int kind, bool ours) {
    if (!(kinds & kind) || !ours || !fails(kind)) {
        return false;
    }
    errno = error_number ? error_number.load() : EIO;
    return true;
}

extern "C" {

// fail the n-th call of these kinds in a folder; n = 0 only counts
void faults_arm(int which, long n, int number, const char * folder) {
    snprintf(place, sizeof(place), "%s", folder);
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
    if (kinds & WRITE && is_ours(fd) && fails(WRITE)) {
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
    if (kinds & WRITE && is_ours(fd) && fails(WRITE)) {
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

ssize_t read(int fd, void * data, size_t size) {
    static auto * real = next(&read, "read");
    if (kinds & READ && is_ours(fd) && fails(READ)) {
        if (error_number == 0 && size > 1) {
            return real(fd, data, size / 2);
        }
        errno = error_number;
        return -1;
    }
    return real(fd, data, size);
}

int fsync(int fd) {
    static auto * real = next(&fsync, "fsync");
    return file_fails(FSYNC, is_ours(fd)) ? -1 : real(fd);
}

int fdatasync(int fd) {
    return fsync(fd);
}

int rename(const char * from, const char * to) noexcept {
    static auto * real = next(&rename, "rename");
    return file_fails(RENAME, in_place(to)) ? -1 : real(from, to);
}

int link(const char * from, const char * to) noexcept {
    static auto * real = next(&link, "link");
    return file_fails(LINK, in_place(to)) ? -1 : real(from, to);
}

int linkat(int folder, const char * from, int other, const char * to, int flags) noexcept {
    static auto * real = next(&linkat, "linkat");
    return file_fails(LINK, is_ours_at(other, to)) ? -1 : real(folder, from, other, to, flags);
}

int openat(int folder, const char * path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    return file_fails(OPEN, is_ours_at(folder, path)) ? -1 : static_cast<int>(syscall(SYS_openat, folder, path, flags, mode));
}

int open(const char * path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    return openat(AT_FDCWD, path, flags, mode);
}

int open64(const char * path, int flags, ...) __attribute__((alias("open")));
int openat64(int folder, const char * path, int flags, ...) __attribute__((alias("openat")));

// a close that fails has closed, as on Linux
int close(int fd) {
    static auto * real = next(&close, "close");
    const bool fail = file_fails(CLOSE, is_ours(fd));
    const int  kept = errno;
    const int  done = real(fd);
    errno = fail ? kept : errno;
    return fail ? -1 : done;
}

int mkdir(const char * path, mode_t mode) noexcept {
    static auto * real = next(&mkdir, "mkdir");
    return file_fails(MKDIR, in_place(path)) ? -1 : real(path, mode);
}

int unlinkat(int folder, const char * path, int flags) noexcept {
    static auto * real = next(&unlinkat, "unlinkat");
    return file_fails(UNLINK, is_ours_at(folder, path)) ? -1 : real(folder, path, flags);
}

int unlink(const char * path) noexcept {
    return unlinkat(AT_FDCWD, path, 0);
}

int rmdir(const char * path) noexcept {
    return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
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
