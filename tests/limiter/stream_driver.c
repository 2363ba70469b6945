/* A driver whose streams behave as NVIDIA documents them, and nothing else of one.
 *
 * Every stream is a thread that works in order. A kernel takes 0.2 ms. Captures are spoilt by what is
 * unsafe beside them: a context-wide synchronisation, a question about an event from a thread whose
 * mode does not allow it, a question about a captured event. Graphs may hold memory.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KERNEL_MICROSECONDS 200
#define MODE_GLOBAL 0
#define MODE_RELAXED 2
#define NODE_MEM_ALLOC 10
#define GRAPH_ADDRESS 0x7e0000000000
#define GRAPH_MEM_USED 0
#define GRAPH_MEM_RESERVED 2

enum { OUT_OF_MEMORY = 2, ILLEGAL_STATE = 401, NOT_FOUND = 500, NOT_READY = 600, UNSUPPORTED = 900,
       INVALIDATED = 901, IMPLICIT = 906, CAPTURED_EVENT = 907 };

struct event {
    uint64_t recorded, done; /* how often */
    bool captured;
};

enum kind { KERNEL, CALL, WAIT, WRITE, RECORD };

struct work {
    enum kind kind;
    void (*call)(void *);
    void *argument;
    uint32_t *word, value;
    struct event *event;
    uint64_t number;
    struct work *next;
};

struct stream {
    struct work *first, *last;
    bool capturing, spoilt;
    int mode;
    struct stream *next;
};

struct graph {
    size_t bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct stream *streams, *default_stream;
static size_t graph_memory, graph_memory_used;
static _Thread_local int thread_mode;

static void *run(void *argument)
{
    struct stream *stream = argument;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (stream->first == NULL)
            pthread_cond_wait(&changed, &lock);
        struct work *work = stream->first;
        pthread_mutex_unlock(&lock);
        if (work->kind == KERNEL)
            usleep(KERNEL_MICROSECONDS);
        else if (work->kind == CALL)
            work->call(work->argument);
        while (work->kind == WAIT && __atomic_load_n(work->word, __ATOMIC_ACQUIRE) < work->value)
            usleep(100);
        if (work->kind == WRITE)
            __atomic_store_n(work->word, work->value, __ATOMIC_RELEASE);
        pthread_mutex_lock(&lock);
        if (work->kind == RECORD && work->number > work->event->done)
            work->event->done = work->number;
        stream->first = work->next;
        if (stream->first == NULL)
            stream->last = NULL;
        free(work);
        pthread_cond_broadcast(&changed);
    }
    return NULL;
}

static struct stream *new_stream(void)
{
    pthread_t thread;
    struct stream *stream = calloc(1, sizeof *stream);
    stream->next = streams;
    streams = stream;
    pthread_create(&thread, NULL, run, stream);
    pthread_detach(thread);
    return stream;
}

/* Under the lock. */
static struct stream *known(struct stream *stream)
{
    if ((uintptr_t)stream > 2)
        return stream;
    if (default_stream == NULL)
        default_stream = new_stream();
    return default_stream;
}

static int put(struct stream *stream, struct work work)
{
    struct work *made = malloc(sizeof *made);
    *made = work;
    pthread_mutex_lock(&lock);
    stream = known(stream);
    if (stream->capturing) {
        free(made);
    } else {
        if (stream->last != NULL)
            stream->last->next = made;
        else
            stream->first = made;
        stream->last = made;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

/* What is unsafe in this thread beside a capture. */
static int unsafe_call(void)
{
    bool spoils = false;
    for (struct stream *stream = streams; stream != NULL; stream = stream->next)
        if (stream->capturing && stream->mode == MODE_GLOBAL && thread_mode != MODE_RELAXED)
            stream->spoilt = spoils = true;
    return spoils ? UNSUPPORTED : 0;
}

int cuInit(unsigned flags) { return (int)flags; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGetUuid_v2(void *uuid, int device) { memset(uuid, 0x11, 16); return device; }
int cuCtxCreate_v2(void **context, unsigned flags, int device) { *context = (void *)16; return (int)flags + device; }
int cuCtxGetCurrent(void **context) { *context = (void *)16; return 0; }
int cuCtxGetDevice(int *device) { *device = 0; return 0; }
int cuMemGetInfo_v2(size_t *unused, size_t *total) { *unused = *total = (size_t)16 << 30; return 0; }
int cuModuleLoadData(void **module, const void *image) { *module = (void *)32; return image == NULL; }
int cuModuleGetFunction(void **function, void *module, const char *name) { *function = module; return name == NULL; }

int cuStreamCreate(struct stream **stream, unsigned flags)
{
    pthread_mutex_lock(&lock);
    *stream = new_stream();
    pthread_mutex_unlock(&lock);
    return flags > 1;
}

/* A stream that is not there any more captures nothing; its thread stays, for what is in it. */
int cuStreamDestroy_v2(struct stream *stream)
{
    pthread_mutex_lock(&lock);
    stream->capturing = false;
    pthread_mutex_unlock(&lock);
    return 0;
}

int cuLaunchKernel(void *function, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned f, unsigned g,
                   struct stream *stream, void **pointers, void **extra)
{
    (void)pointers, (void)extra;
    return put(stream, (struct work){.kind = KERNEL}) + (function == NULL || a + b + c + d + e + f + g == 0);
}

int cuLaunchHostFunc(struct stream *stream, void (*call)(void *), void *argument)
{
    return put(stream, (struct work){.kind = CALL, .call = call, .argument = argument});
}

int cuStreamWaitValue32_v2(struct stream *stream, uint64_t word, uint32_t value, unsigned flags)
{
    return put(stream, (struct work){.kind = WAIT, .word = (void *)(uintptr_t)word, .value = value}) + (int)flags;
}

int cuStreamWriteValue32_v2(struct stream *stream, uint64_t word, uint32_t value, unsigned flags)
{
    return put(stream, (struct work){.kind = WRITE, .word = (void *)(uintptr_t)word, .value = value}) + (int)flags;
}

int cuEventCreate(struct event **event, unsigned flags)
{
    *event = calloc(1, sizeof **event);
    return *event == NULL ? OUT_OF_MEMORY : flags > 7;
}

int cuEventDestroy_v2(struct event *event)
{
    return event == NULL; /* a stream may still have it */
}

int cuEventRecord(struct event *event, struct stream *stream)
{
    pthread_mutex_lock(&lock);
    event->captured = known(stream)->capturing;
    uint64_t number = event->captured ? event->recorded : ++event->recorded;
    pthread_mutex_unlock(&lock);
    return event->captured ? 0 : put(stream, (struct work){.kind = RECORD, .event = event, .number = number});
}

int cuEventQuery(struct event *event)
{
    pthread_mutex_lock(&lock);
    int result = unsafe_call();
    if (result == 0)
        result = event->captured ? CAPTURED_EVENT : event->done < event->recorded ? NOT_READY : 0;
    if (event->captured)
        for (struct stream *stream = streams; stream != NULL; stream = stream->next)
            stream->spoilt = stream->spoilt || stream->capturing;
    pthread_mutex_unlock(&lock);
    return result;
}

int cuThreadExchangeStreamCaptureMode(int *mode)
{
    int before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return 0;
}

static int begin(struct stream *stream, int mode)
{
    pthread_mutex_lock(&lock);
    stream->capturing = true;
    stream->spoilt = false;
    stream->mode = mode;
    pthread_mutex_unlock(&lock);
    return 0;
}

int cuStreamBeginCapture_v2(struct stream *stream, int mode) { return begin(stream, mode); }

int cuStreamBeginCaptureToGraph(struct stream *stream, void *graph, const void *after, const void *edges, size_t count,
                                int mode)
{
    (void)graph, (void)after, (void)edges;
    return begin(stream, mode) + (count > 0);
}

int cuStreamEndCapture(struct stream *stream, struct graph **graph)
{
    pthread_mutex_lock(&lock);
    int result = !stream->capturing ? ILLEGAL_STATE : stream->spoilt ? INVALIDATED : 0;
    stream->capturing = false;
    pthread_mutex_unlock(&lock);
    *graph = result == 0 ? calloc(1, sizeof **graph) : NULL;
    return result;
}

/* All streams of this driver are such that the legacy stream waits for them. */
int cuStreamIsCapturing(struct stream *stream, int *status)
{
    bool any = false;
    pthread_mutex_lock(&lock);
    for (const struct stream *one = streams; one != NULL; one = one->next)
        any = any || one->capturing;
    bool legacy = (uintptr_t)stream <= 1;
    *status = legacy || !known(stream)->capturing ? 0 : stream->spoilt ? 2 : 1;
    pthread_mutex_unlock(&lock);
    return legacy && any ? IMPLICIT : 0;
}

int cuCtxSynchronize(void)
{
    pthread_mutex_lock(&lock);
    bool spoils = false, busy = true;
    for (struct stream *stream = streams; stream != NULL; stream = stream->next)
        if (stream->capturing)
            stream->spoilt = spoils = true;
    while (busy && !spoils) {
        busy = false;
        for (const struct stream *stream = streams; stream != NULL; stream = stream->next)
            busy = busy || stream->first != NULL;
        if (busy)
            pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
    return spoils ? UNSUPPORTED : 0;
}

int cuStreamSynchronize(struct stream *stream)
{
    pthread_mutex_lock(&lock);
    stream = known(stream);
    while (stream->first != NULL)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return 0;
}

int cuGraphCreate(struct graph **graph, unsigned flags)
{
    *graph = calloc(1, sizeof **graph);
    return (int)flags;
}

struct memory_node { /* CUDA_MEM_ALLOC_NODE_PARAMS */
    char pool[88];
    const void *access;
    size_t accesses, bytes;
    uint64_t address;
};

/* One node a graph, and its number is the graph. */
int cuGraphAddMemAllocNode(void **node, struct graph *graph, const void *after, size_t count, struct memory_node *memory)
{
    (void)after;
    graph->bytes = memory->bytes;
    memory->address = GRAPH_ADDRESS;
    *node = graph;
    return count > 0;
}

int cuGraphGetNodes(struct graph *graph, void **nodes, size_t *count)
{
    if (nodes != NULL && *count > 0)
        nodes[0] = graph;
    *count = 1;
    return 0;
}

int cuGraphNodeGetType(const struct graph *node, int *type)
{
    *type = node->bytes > 0 ? NODE_MEM_ALLOC : 0;
    return 0;
}

int cuGraphMemAllocNodeGetParams(const struct graph *node, struct memory_node *memory)
{
    memset(memory, 0, sizeof *memory);
    memory->bytes = node->bytes;
    return 0;
}

int cuGraphInstantiateWithFlags(struct graph **executable, const struct graph *graph, uint64_t flags)
{
    *executable = malloc(sizeof **executable);
    **executable = *graph;
    return flags > 15;
}

int cuGraphExecDestroy(struct graph *executable)
{
    free(executable);
    return 0;
}

int cuGraphLaunch(const struct graph *executable, struct stream *stream)
{
    graph_memory_used = executable->bytes;
    graph_memory = graph_memory_used > graph_memory ? graph_memory_used : graph_memory;
    return put(stream, (struct work){.kind = KERNEL});
}

/* There is one address, of what a graph has allocated. */
int cuMemFree_v2(uint64_t address)
{
    graph_memory_used = 0;
    return address != GRAPH_ADDRESS;
}

int cuDeviceGetGraphMemAttribute(int device, int which, uint64_t *value)
{
    *value = which == GRAPH_MEM_USED ? graph_memory_used : which == GRAPH_MEM_RESERVED ? graph_memory : 0;
    return device;
}

int cuDeviceGraphMemTrim(int device)
{
    graph_memory = graph_memory_used;
    return device;
}
