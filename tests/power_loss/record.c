// SPDX-License-Identifier: MIT
// Preloaded: logs each operation on files below POWER_ROOT that succeeded to the file POWER_LOG.
// A record is {op, fd, value, lengths of two paths and of the data} and then these three.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define FDS 4096

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int  log_fd = -1;
static char root[PATH_MAX];
static char tracked[FDS];

#define REAL(name) ((__typeof__(&name)) dlsym(RTLD_NEXT, #name))

struct record {
    char     op;
    int32_t  fd;
    int64_t  value;
    uint32_t len1, len2, size;
} __attribute__((packed));

__attribute__((constructor)) static void begin(void) {
    const char * where = getenv("POWER_LOG");
    const char * below = getenv("POWER_ROOT");
    if (where && below && realpath(below, root)) {
        log_fd = REAL(open)(where, O_WRONLY | O_CREAT | O_APPEND, 0600);
    }
}

static void put(const void * data, size_t size) {
    while (size) {
        ssize_t n = REAL(write)(log_fd, data, size);
        if (n <= 0) {
            abort();
        }
        data = (const char *) data + n;
        size -= n;
    }
}

static void note(char op, int fd, int64_t value, const char * a, const char * b, const void * data, size_t size) {
    int saved = errno;
    struct record r = { op, fd, value, a ? strlen(a) : 0, b ? strlen(b) : 0, size };
    pthread_mutex_lock(&lock);
    put(&r, sizeof(r));
    put(a, r.len1);
    put(b, r.len2);
    put(data, size);
    pthread_mutex_unlock(&lock);
    errno = saved;
}

// The absolute path, or NULL for one that is not below the root.
static const char * below(int dir, const char * path, char * out) {
    if (log_fd < 0 || !path) {
        return NULL;
    }
    if (path[0] == '/') {
        snprintf(out, PATH_MAX, "%s", path);
    } else {
        char base[PATH_MAX] = "", link[64];
        if (dir == AT_FDCWD) {
            if (!getcwd(base, sizeof(base))) {
                return NULL;
            }
        } else {
            snprintf(link, sizeof(link), "/proc/self/fd/%d", dir);
            if (readlink(link, base, sizeof(base) - 1) < 0) {
                return NULL;
            }
        }
        if (snprintf(out, PATH_MAX, "%s/%s", base, path) >= PATH_MAX) {
            return NULL;
        }
    }
    return strncmp(out, root, strlen(root)) == 0 ? out : NULL;
}

void power_mark(int number) {
    note('M', 0, number, NULL, NULL, NULL, 0);
}

static int opened(int fd, int dir, const char * path, int flags) {
    char at[PATH_MAX];
    if (fd >= 0 && fd < FDS) {
        const char * known = below(dir, path, at);
        tracked[fd] = known != NULL;
        if (known) {
            note('o', fd, flags, known, NULL, NULL, 0);
        }
    }
    return fd;
}

#define MODE(flags)                                  \
    mode_t mode = 0;                                 \
    if ((flags) & (O_CREAT | O_TMPFILE)) {           \
        va_list rest;                                \
        va_start(rest, flags);                       \
        mode = va_arg(rest, mode_t);                 \
        va_end(rest);                                \
    }

int open(const char * p, int flags, ...) {
    MODE(flags)
    return opened(REAL(open)(p, flags, mode), AT_FDCWD, p, flags);
}
int open64(const char * p, int flags, ...) {
    MODE(flags)
    return opened(REAL(open64)(p, flags, mode), AT_FDCWD, p, flags);
}
int openat(int dir, const char * p, int flags, ...) {
    MODE(flags)
    return opened(REAL(openat)(dir, p, flags, mode), dir, p, flags);
}
int openat64(int dir, const char * p, int flags, ...) {
    MODE(flags)
    return opened(REAL(openat64)(dir, p, flags, mode), dir, p, flags);
}

#define TRACKED(fd) (log_fd >= 0 && (fd) >= 0 && (fd) < FDS && tracked[fd])

ssize_t write(int fd, const void * data, size_t size) {
    ssize_t n = REAL(write)(fd, data, size);
    if (n > 0 && TRACKED(fd)) {
        note('w', fd, -1, NULL, NULL, data, n);
    }
    return n;
}
ssize_t pwrite64(int fd, const void * data, size_t size, off64_t at) {
    ssize_t n = REAL(pwrite64)(fd, data, size, at);
    if (n > 0 && TRACKED(fd)) {
        note('w', fd, at, NULL, NULL, data, n);
    }
    return n;
}
off_t lseek(int fd, off_t at, int from) {
    off_t n = REAL(lseek)(fd, at, from);
    if (n >= 0 && TRACKED(fd)) {
        note('s', fd, n, NULL, NULL, NULL, 0);
    }
    return n;
}
off64_t lseek64(int fd, off64_t at, int from) {
    off64_t n = REAL(lseek64)(fd, at, from);
    if (n >= 0 && TRACKED(fd)) {
        note('s', fd, n, NULL, NULL, NULL, 0);
    }
    return n;
}

#define ON_FD(type, name, op, value, params, call)   \
    type name params {                               \
        type n = REAL(name) call;                    \
        if (n >= 0 && TRACKED(fd)) {                 \
            note(op, fd, value, NULL, NULL, NULL, 0); \
        }                                            \
        return n;                                    \
    }
ON_FD(int, fsync, 'f', 0, (int fd), (fd))
ON_FD(int, fdatasync, 'f', 0, (int fd), (fd))
ON_FD(int, ftruncate, 't', size, (int fd, off_t size), (fd, size))
ON_FD(int, ftruncate64, 't', size, (int fd, off64_t size), (fd, size))
// What the replay does not know: a test that meets one of these fails.
ON_FD(ssize_t, writev, '?', 1, (int fd, const struct iovec * v, int n_v), (fd, v, n_v))
ON_FD(ssize_t, pwritev, '?', 2, (int fd, const struct iovec * v, int n_v, off_t at), (fd, v, n_v, at))
ON_FD(ssize_t, copy_file_range, '?', 3,
      (int in, off64_t * in_at, int fd, off64_t * at, size_t size, unsigned flags), (in, in_at, fd, at, size, flags))

#define ON_PATH(name, op, params, call, dir, path)       \
    int name params {                                    \
        char at[PATH_MAX];                               \
        const char * known = below(dir, path, at);       \
        int n = REAL(name) call;                         \
        if (n == 0 && known) {                           \
            note(op, -1, 0, known, NULL, NULL, 0);       \
        }                                                \
        return n;                                        \
    }
ON_PATH(mkdir, 'd', (const char * p, mode_t mode), (p, mode), AT_FDCWD, p)
ON_PATH(mkdirat, 'd', (int dir, const char * p, mode_t mode), (dir, p, mode), dir, p)
ON_PATH(rmdir, 'u', (const char * p), (p), AT_FDCWD, p)
ON_PATH(unlink, 'u', (const char * p), (p), AT_FDCWD, p)
ON_PATH(remove, 'u', (const char * p), (p), AT_FDCWD, p)
ON_PATH(unlinkat, 'u', (int dir, const char * p, int flags), (dir, p, flags), dir, p)
ON_PATH(symlink, '?', (const char * to, const char * p), (to, p), AT_FDCWD, p)
ON_PATH(truncate, '?', (const char * p, off_t size), (p, size), AT_FDCWD, p)

#define ON_TWO(name, op, params, call, dir1, path1, dir2, path2) \
    int name params {                                            \
        char at1[PATH_MAX], at2[PATH_MAX];                       \
        const char * known1 = below(dir1, path1, at1);           \
        const char * known2 = below(dir2, path2, at2);           \
        int n = REAL(name) call;                                 \
        if (n == 0 && (known1 || known2)) {                      \
            note(op, -1, 0, known1, known2, NULL, 0);            \
        }                                                        \
        return n;                                                \
    }
ON_TWO(rename, 'r', (const char * a, const char * b), (a, b), AT_FDCWD, a, AT_FDCWD, b)
ON_TWO(renameat, 'r', (int d, const char * a, int e, const char * b), (d, a, e, b), d, a, e, b)
ON_TWO(renameat2, '?', (int d, const char * a, int e, const char * b, unsigned f), (d, a, e, b, f), d, a, e, b)
ON_TWO(link, 'l', (const char * a, const char * b), (a, b), AT_FDCWD, a, AT_FDCWD, b)
ON_TWO(linkat, 'l', (int d, const char * a, int e, const char * b, int f), (d, a, e, b, f), d, a, e, b)
