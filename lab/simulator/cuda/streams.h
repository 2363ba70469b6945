/* Streams and their queues, and captures, in which a stream writes into a graph instead. */
#ifndef DIVVY_CUDA_STREAMS_H
#define DIVVY_CUDA_STREAMS_H

#include <sys/types.h>

#include "operations.h"

#define STREAM_LEGACY ((CUstream)1)
#define STREAM_PER_THREAD ((CUstream)2)
#define NON_BLOCKING 1u

struct node_set {
    CUgraphNode *nodes;
    size_t count;
};

struct capture {
    uint64_t id;
    CUgraph graph;
    bool owns_graph; /* until the capture ends well */
    CUstream origin;
    pid_t thread;
    int mode;
    bool invalid;
    struct node_set left; /* the last nodes of joined streams that have been destroyed */
    struct capture *next;
};

struct cuda_stream {
    CUcontext context;
    bool is_legacy;
    pid_t thread; /* whose default stream it is; 0: no thread's */
    unsigned flags;
    int priority;
    bool destroyed; /* it ends with its queue */
    uint64_t work;  /* of its context's GPU time, up to where its own work goes */
    struct queued *first, *last;
    struct capture *capture;
    struct node_set tips; /* what the next captured operation depends on */
    CUstream next;
};

struct cuda_event {
    CUcontext context;
    unsigned flags;
    struct fence *fence;  /* of its last record; NULL before, and in a capture */
    uint64_t captured;    /* the capture it was last recorded in; 0: none */
    struct node_set tips; /* there */
    CUevent next;
};

/* streams.c */
CUstream stream_after(CUstream stream); /* the next of all; NULL: the first */
CUstream stream_of(CUcontext context, CUstream handle); /* NULL: there is none */
#define WITH_STREAM(context, stream, handle)             \
    WITH_CONTEXT(context);                               \
    CUstream stream = stream_of(context, handle);        \
    if (stream == NULL)                                  \
        FINISH(CUDA_ERROR_INVALID_HANDLE)
bool stream_is_blocking(CUstream stream);
uint64_t stream_work(CUstream stream); /* the GPU time that is before its next operation */
void stream_free(CUstream stream);
void streams_drop(CUcontext context);

/* queues.c */
CUresult stream_do(CUstream stream, const struct operation *operation); /* now, later or into a graph */
CUresult stream_submit(CUstream stream, const struct operation *operation); /* the same, checked when it is done */
CUresult stream_do_and_wait(CUstream stream, const struct operation *operation);
bool stream_idle(CUstream stream);
CUresult stream_wait(CUstream stream);
CUresult context_wait(CUcontext context);
void queue_drop(CUstream stream);

/* captures.c */
pid_t own_thread(void);
CUresult capture_add(CUstream stream, const struct operation *operation);
CUresult capture_refuses(CUstream stream); /* whatever waits for or asks after it */
CUresult capture_refuses_legacy(CUcontext context);
CUresult capture_refuses_context(CUcontext context);
CUresult capture_wait_event(CUstream stream, CUevent event);
void capture_invalidate(uint64_t id);
void capture_leave(CUstream stream); /* it ends */

/* node_sets.c */
bool node_set_add(struct node_set *set, const CUgraphNode *nodes, size_t count);
void node_set_clear(struct node_set *set);

#endif
