// SPDX-License-Identifier: MIT
// NCCL and CUDA's runtime for tests: ranks of one host, whose "GPUs" are their own memory.
//
// PYGGML_TEST_NCCL makes mistakes: "fails" (a sum reports an error), "late" (an error is reported
// while sums are awaited), "shared" (all ranks name the same GPU).

#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SLOT 65536
#define RANKS 8

typedef struct { char internal[128]; } ncclUniqueId;

struct shared {
    atomic_int arrived;
    atomic_int round;
    float slots[RANKS][SLOT];
};

struct communicator {
    int rank, ranks;
    struct shared * memory;
};

static int device = -1, asked;

static int mistake(const char * name) {
    const char * given = getenv("PYGGML_TEST_NCCL");
    return given && strcmp(given, name) == 0;
}

static void meet(struct communicator * comm) {
    struct shared * memory = comm->memory;
    const int round = atomic_load(&memory->round);
    if (atomic_fetch_add(&memory->arrived, 1) + 1 == comm->ranks) {
        atomic_store(&memory->arrived, 0);
        atomic_store(&memory->round, round + 1);
        return;
    }
    while (atomic_load(&memory->round) == round) {
        sched_yield();
    }
}

int ncclGetUniqueId(ncclUniqueId * id) {
    memset(id, 0, sizeof(*id));
    snprintf(id->internal, sizeof(id->internal), "/dev/shm/pyggml-nccl-%d", (int) getpid());
    return 0;
}

int ncclCommInitRank(void ** comm, int ranks, ncclUniqueId id, int rank) {
    if (device < 0 || ranks > RANKS) {
        return 4;
    }
    struct communicator * made = malloc(sizeof(*made));
    const int file = open(id.internal, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, sizeof(struct shared))) {
        return 2;
    }
    made->rank = rank;
    made->ranks = ranks;
    made->memory = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    meet(made);
    if (rank == 0) {
        unlink(id.internal);
    }
    *comm = made;
    return 0;
}

int ncclReduce(const void * sent, void * received, size_t count, int type, int op, int root,
        void * opaque, void * stream) {
    struct communicator * comm = opaque;
    if (mistake("fails") || type != 7 || op != 0 || stream == NULL || device < 0) {
        return 5;
    }
    for (size_t at = 0; at < count; at += SLOT) {
        const size_t size = count - at < SLOT ? count - at : SLOT;
        memcpy(comm->memory->slots[comm->rank], (const float *) sent + at, size * sizeof(float));
        meet(comm);
        if (root < 0 || root == comm->rank) {
            float * to = (float *) received + at;
            memcpy(to, comm->memory->slots[0], size * sizeof(float));
            for (int rank = 1; rank < comm->ranks; rank++) {
                for (size_t i = 0; i < size; i++) {
                    to[i] += comm->memory->slots[rank][i];
                }
            }
        }
        meet(comm);
    }
    asked = 0;
    return 0;
}

int ncclAllReduce(const void * sent, void * received, size_t count, int type, int op, void * comm,
        void * stream) {
    return ncclReduce(sent, received, count, type, op, -1, comm, stream);
}

int ncclCommGetAsyncError(void * comm, int * error) {
    (void) comm;
    *error = mistake("late") ? 6 : 0;
    return 0;
}

const char * ncclGetErrorString(int error) {
    return error == 6 ? "remote process exited" : "invalid usage";
}

int cudaSetDevice(int number) {
    device = number;
    return 0;
}

int cudaDeviceGetPCIBusId(char * id, int size, int number) {
    const char * rank = getenv("OMPI_COMM_WORLD_RANK");
    snprintf(id, size, "0000:%02d:%02d", number, mistake("shared") || !rank ? 0 : atoi(rank));
    return 0;
}

int cudaStreamCreateWithFlags(void ** stream, unsigned int flags) {
    static int made;
    *stream = flags == 1 ? &made : NULL;
    return 0;
}

// A stream that is never done at once.
int cudaStreamQuery(void * stream) {
    return stream == NULL ? 1 : asked++ < 3 ? 600 : 0;
}

const char * cudaGetErrorString(int error) {
    return error == 1 ? "invalid argument" : "unknown error";
}
