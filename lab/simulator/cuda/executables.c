/* Executable graphs: a list of operations, done one after the other in the stream of the launch. */
#include <stdlib.h>

#include "graphs.h"

#define AUTO_FREE 1u

struct step {
    struct operation operation;
    CUgraphNode origin;
};

struct cuda_executable {
    CUgraph graph; /* it may be gone */
    bool auto_free, has_memory;
    struct step *steps;
    size_t count;
    struct user_objects user_objects;
    CUgraphExec next;
};

static CUgraphExec executables;

static KNOWS(is_known, CUgraphExec, executables)

static size_t steps_of(CUgraph graph)
{
    size_t count = 0;
    for (CUgraphNode node = graph->first; node != NULL; node = node->next)
        count += node->operation.kind == OPERATION_GRAPH ? steps_of(node->operation.graph) : 1;
    return count;
}

static bool write_down(CUgraphExec executable, CUgraph graph)
{
    bool whole = user_objects_copy(&executable->user_objects, &graph->user_objects);
    for (CUgraphNode node = graph->first; node != NULL; node = node->next)
        if (node->operation.kind == OPERATION_GRAPH) {
            whole = write_down(executable, node->operation.graph) && whole;
        } else {
            struct step *step = &executable->steps[executable->count++];
            step->operation = node->operation;
            step->origin = node;
            if (node->operation.kind == OPERATION_ALLOCATE)
                graph_memory_keep(node->operation.memory);
        }
    return whole;
}

static void end(CUgraphExec executable)
{
    for (size_t i = 0; i < executable->count; i++)
        if (executable->steps[i].operation.kind == OPERATION_ALLOCATE)
            graph_memory_leave(executable->steps[i].operation.memory);
    user_objects_leave(&executable->user_objects);
    free(executable->steps);
    free(executable);
}

/* Of a graph with memory nodes, "only one instantiation may exist at any point in time". */
static bool is_instantiated(CUgraph graph)
{
    CUgraphExec executable = executables;
    while (executable != NULL && executable->graph != graph)
        executable = executable->next;
    return executable != NULL;
}

EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *made, CUgraph graph, unsigned long long flags)
{
    WITH_CONTEXT(context);
    if (made == NULL || !graph_is_known(graph) || flags > 15)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    bool has_memory = graph_has_memory(graph);
    if (has_memory && is_instantiated(graph))
        FINISH(CUDA_ERROR_NOT_SUPPORTED);
    CUgraphExec executable = calloc(1, sizeof *executable);
    struct step *steps = malloc((steps_of(graph) + 1) * sizeof *steps);
    if (executable == NULL || steps == NULL) {
        free(executable);
        free(steps);
        FINISH(CUDA_ERROR_OUT_OF_MEMORY);
    }
    *executable = (struct cuda_executable){.graph = graph, .auto_free = (flags & AUTO_FREE) != 0,
                                           .has_memory = has_memory, .steps = steps, .next = executables};
    if (!write_down(executable, graph)) {
        end(executable);
        FINISH(CUDA_ERROR_OUT_OF_MEMORY);
    }
    executables = executable;
    *made = executable;
    FINISH(0);
}

/* Instantiation of CUDA 11: where and why it failed are its further results. */
EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec *made, CUgraph graph, CUgraphNode *error, char *log, size_t size)
{
    if (error != NULL)
        *error = NULL;
    if (log != NULL && size > 0)
        *log = '\0';
    return cuGraphInstantiateWithFlags(made, graph, 0);
}

struct instantiation { /* CUDA_GRAPH_INSTANTIATE_PARAMS */
    uint64_t flags;
    CUstream upload_stream;
    CUgraphNode error;
    int result;
};

EXPORT CUresult cuGraphInstantiateWithParams(CUgraphExec *made, CUgraph graph, struct instantiation *wanted)
{
    if (wanted == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    wanted->error = NULL;
    wanted->result = 0;
    return cuGraphInstantiateWithFlags(made, graph, wanted->flags);
}

EXPORT CUresult cuGraphExecGetFlags(CUgraphExec executable, uint64_t *flags)
{
    driver_lock();
    CUresult result = driver_ready();
    if (result == 0 && (flags == NULL || !is_known(executable)))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == 0)
        *flags = executable->auto_free ? AUTO_FREE : 0;
    FINISH(result);
}

/* What a launch allocated and nothing freed outlives it. */
EXPORT CUresult cuGraphExecDestroy(CUgraphExec executable)
{
    driver_lock();
    CUresult result = driver_ready();
    if (result == 0 && !is_known(executable))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == 0) {
        CUgraphExec *at = &executables;
        while (*at != executable)
            at = &(*at)->next;
        *at = executable->next;
        end(executable);
    }
    FINISH(result);
}

static CUresult exchange(CUgraphExec executable, CUgraphNode origin, const struct operation *operation)
{
    driver_lock();
    CUresult result = driver_ready();
    if (result == 0)
        result = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; is_known(executable) && i < executable->count; i++)
        if (executable->steps[i].origin == origin && executable->steps[i].operation.kind == operation->kind) {
            executable->steps[i].operation = *operation;
            result = 0;
        }
    FINISH(result);
}

EXPORT CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec executable, CUgraphNode origin,
                                                  const struct kernel_parameters *parameters)
{
    struct operation operation;
    CUresult result = kernel_operation(parameters, &operation);
    return result != 0 ? result : exchange(executable, origin, &operation);
}

ALSO(cuGraphExecKernelNodeSetParams, cuGraphExecKernelNodeSetParams_v2,
     (CUgraphExec executable, CUgraphNode origin, const struct kernel_parameters *parameters), (executable, origin, parameters))

EXPORT CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec executable, CUgraphNode origin, const struct memcpy3d *copy,
                                               CUcontext context)
{
    struct operation operation;
    (void)context;
    CUresult result = copy_operation(copy, &operation);
    return result != 0 ? result : exchange(executable, origin, &operation);
}

/* The most that a launch has taken at a time, over what it has given back. */
static uint64_t most_memory(const struct cuda_executable *executable)
{
    uint64_t now = 0, most = 0;
    for (size_t i = 0; i < executable->count; i++) {
        const struct operation *operation = &executable->steps[i].operation;
        size_t size = operation->kind == OPERATION_ALLOCATE || operation->kind == OPERATION_FREE
                          ? (graph_memory_size(operation->memory) + 511) / 512 * 512
                          : 0;
        if (operation->kind == OPERATION_ALLOCATE)
            now += size;
        else
            now = now > size ? now - size : 0;
        most = now > most ? now : most;
    }
    return most;
}

/* cuGraphLaunch: what an earlier launch left allocated is freed first, or the launch fails. */
static CUresult free_left_over(const struct cuda_executable *executable)
{
    for (size_t i = 0; i < executable->count; i++) {
        const struct operation *operation = &executable->steps[i].operation;
        if (operation->kind != OPERATION_ALLOCATE || !graph_memory_is_live(operation->memory))
            continue;
        if (!executable->auto_free)
            return CUDA_ERROR_INVALID_VALUE;
        memory_give_back(operation->memory);
    }
    return 0;
}

EXPORT CUresult cuGraphLaunch(CUgraphExec executable, CUstream handle)
{
    WITH_CONTEXT(context);
    CUstream stream = stream_of(context, handle);
    if (!is_known(executable))
        FINISH(CUDA_ERROR_INVALID_VALUE);
    if (stream == NULL)
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    CUresult result = 0;
    if (executable->has_memory)
        result = stream->capture != NULL ? CUDA_ERROR_NOT_SUPPORTED : free_left_over(executable);
    if (result == 0 && executable->has_memory)
        result = graph_memory_expect(stream->context, most_memory(executable));
    for (size_t i = 0; i < executable->count && result == 0; i++)
        result = stream_submit(stream, &executable->steps[i].operation);
    FINISH(result);
}

/* What an earlier launch left is the next one's again. */
static uint64_t left_over(const struct cuda_executable *executable)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < executable->count && executable->auto_free; i++) {
        const struct operation *operation = &executable->steps[i].operation;
        if (operation->kind == OPERATION_ALLOCATE && graph_memory_is_live(operation->memory))
            bytes += (graph_memory_size(operation->memory) + 511) / 512 * 512;
    }
    return bytes;
}

/* Gives the graph its memory before its launch. */
EXPORT CUresult cuGraphUpload(CUgraphExec executable, CUstream handle)
{
    WITH_CONTEXT(context);
    CUstream stream = stream_of(context, handle);
    if (!is_known(executable))
        FINISH(CUDA_ERROR_INVALID_VALUE);
    if (stream == NULL)
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    uint64_t most = most_memory(executable), has = left_over(executable);
    FINISH(executable->has_memory ? graph_memory_expect(stream->context, most > has ? most - has : 0) : 0);
}

PER_THREAD(cuGraphInstantiateWithParams, _ptsz,
           (CUgraphExec *made, CUgraph graph, struct instantiation *wanted), (made, graph, wanted))
PER_THREAD(cuGraphInstantiateWithFlags, _ptsz, (CUgraphExec *made, CUgraph graph, unsigned long long flags),
           (made, graph, flags))
PER_THREAD(cuGraphLaunch, _ptsz, (CUgraphExec executable, CUstream stream), (executable, stream))
PER_THREAD(cuGraphUpload, _ptsz, (CUgraphExec executable, CUstream stream), (executable, stream))
