/* What a stream does, and what a node of a graph stands for. */
#ifndef DIVVY_CUDA_OPERATIONS_H
#define DIVVY_CUDA_OPERATIONS_H

#include "boxes.h"

/* As CUgraphNodeType numbers them. */
enum operation_kind {
    OPERATION_KERNEL = 0,
    OPERATION_COPY = 1,
    OPERATION_FILL = 2,
    OPERATION_CALL = 3,
    OPERATION_GRAPH = 4, /* a child of a graph */
    OPERATION_EMPTY = 5,
    OPERATION_WAIT = 6,   /* for a fence */
    OPERATION_RECORD = 7, /* reaches a fence */
    OPERATION_ALLOCATE = 10,
    OPERATION_FREE = 11,
    OPERATION_VALUE = 12, /* waits for a value in memory, or writes one */
};

/* A point in a stream that an event marks: each record of an event makes a new one. */
struct fence {
    unsigned users;
    bool reached;
    bool pending;      /* the GPU time before it has not been seen done */
    CUcontext context; /* whose GPU time */
    uint64_t work;     /* what its stream had queued of it */
    double at;
};

struct operation {
    enum operation_kind kind;
    union {
        struct launch launch;
        struct box_copy copy;
        struct {
            CUdeviceptr to;
            uint32_t value;
            unsigned width;
            size_t pitch, columns, rows;
        } fill;
        struct {
            void (*function)(void *);
            void (*callback)(CUstream, CUresult, void *); /* instead of the function */
            CUstream stream;
            void *argument;
        } call;
        CUgraph graph;
        struct fence *fence;
        CUdeviceptr memory; /* to allocate (a graph's) or free */
        struct {
            CUdeviceptr at;
            uint64_t value;
            unsigned bits;
            bool writes;
            unsigned condition; /* CUstreamWaitValue_flags */
        } value;
    };
};

/* operations.c */
CUresult operation_check(const struct operation *operation);
bool operation_ready(CUstream stream, const struct operation *operation);
bool operation_polls(const struct operation *operation); /* what it waits for can come without a call */
CUresult operation_run(CUstream stream, const struct operation *operation);

/* events.c */
struct fence *fence_new(void);
struct fence *fence_keep(struct fence *fence);
void fence_leave(struct fence *fence);
bool fence_done(struct fence *fence);
void events_drop(CUcontext context);

#endif
