/* Graphs that are built node by node, and their launches.
 *
 * A node can only depend on older ones, so the order of their making is an order of running.
 */
#include <stdlib.h>
#include <string.h>

#include "graphs.h"

struct kernel_parameters { /* CUDA_KERNEL_NODE_PARAMS; the second version has more at its end */
    CUfunction function;
    unsigned grid[3], block[3], shared;
    void **pointers, **extra;
};

struct fill_parameters { /* CUDA_MEMSET_NODE_PARAMS */
    CUdeviceptr to;
    size_t pitch;
    unsigned value, width;
    size_t columns, rows;
};

struct call_parameters { /* CUDA_HOST_NODE_PARAMS */
    void (*function)(void *);
    void *argument;
};

static CUgraph graphs;
static CUgraphExec executables;

CUgraph graph_new(void)
{
    CUgraph graph = calloc(1, sizeof *graph);
    if (graph != NULL) {
        graph->next = graphs;
        graphs = graph;
    }
    return graph;
}

bool graph_is_known(CUgraph wanted)
{
    CUgraph graph = graphs;
    while (graph != NULL && graph != wanted)
        graph = graph->next;
    return graph != NULL;
}

void graph_end(CUgraph graph)
{
    for (CUgraphNode node = graph->first, next; node != NULL; node = next) {
        next = node->next;
        free(node);
    }
    CUgraph *at = &graphs;
    while (*at != graph)
        at = &(*at)->next;
    *at = graph->next;
    free(graph);
}

CUresult graph_add(CUgraph graph, const struct cuda_node *node, CUgraphNode *made)
{
    CUgraphNode copy = malloc(sizeof *copy);
    if (copy == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *copy = *node;
    copy->next = NULL;
    if (graph->last == NULL)
        graph->first = copy;
    else
        graph->last->next = copy;
    graph->last = copy;
    graph->count++;
    if (made != NULL)
        *made = copy;
    return 0;
}

static bool has_node(CUgraph graph, CUgraphNode wanted)
{
    CUgraphNode node = graph->first;
    while (node != NULL && node != wanted)
        node = node->next;
    return node != NULL;
}

static bool has_nodes(CUgraph graph, const CUgraphNode *nodes, size_t count)
{
    if (count > 0 && nodes == NULL)
        return false;
    for (size_t i = 0; i < count; i++)
        if (!has_node(graph, nodes[i]))
            return false;
    return true;
}

EXPORT CUresult cuGraphCreate(CUgraph *made, unsigned flags)
{
    driver_lock();
    CUresult result = driver_ready();
    if (result == 0 && (made == NULL || flags != 0))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == 0) {
        *made = graph_new();
        result = *made == NULL ? CUDA_ERROR_OUT_OF_MEMORY : 0;
    }
    FINISH(result);
}

EXPORT CUresult cuGraphDestroy(CUgraph graph)
{
    driver_lock();
    CUresult result = driver_ready();
    if (result == 0 && !graph_is_known(graph))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == 0)
        graph_end(graph);
    FINISH(result);
}

static CUresult add(CUgraphNode *made, CUgraph graph, const CUgraphNode *after, size_t count,
                    const struct cuda_node *node)
{
    driver_lock();
    CUresult result = driver_ready();
    if (result == 0 && (made == NULL || !graph_is_known(graph) || !has_nodes(graph, after, count)))
        result = CUDA_ERROR_INVALID_VALUE;
    FINISH(result == 0 ? graph_add(graph, node, made) : result);
}

static CUresult kernel_node(const struct kernel_parameters *p, struct cuda_node *node)
{
    if (p == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *node = (struct cuda_node){.kind = NODE_KERNEL};
    node->launch.function = p->function;
    memcpy(node->launch.grid, p->grid, sizeof p->grid);
    memcpy(node->launch.block, p->block, sizeof p->block);
    node->launch.shared = p->shared;
    driver_lock();
    CUcontext context = NULL;
    CUresult result = function_is_known(p->function) ? 0 : context_current(&context);
    if (result == 0)
        result = function_resolve(context, &node->launch.function);
    if (result == 0)
        result = launch_check(&node->launch);
    if (result == 0)
        result = launch_parameters(node->launch.function, p->pointers, p->extra, node->launch.parameters);
    FINISH(result);
}

EXPORT CUresult cuGraphAddKernelNode_v2(CUgraphNode *made, CUgraph graph, const CUgraphNode *after, size_t count,
                                        const struct kernel_parameters *parameters)
{
    struct cuda_node node;
    CUresult result = kernel_node(parameters, &node);
    return result != 0 ? result : add(made, graph, after, count, &node);
}

EXPORT CUresult cuGraphAddKernelNode(CUgraphNode *made, CUgraph graph, const CUgraphNode *after, size_t count,
                                     const struct kernel_parameters *parameters)
{
    return cuGraphAddKernelNode_v2(made, graph, after, count, parameters);
}

static CUresult copy_node(const struct memcpy3d *copy, struct cuda_node *node)
{
    if (copy == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *node = (struct cuda_node){.kind = NODE_COPY};
    node->copy = box_of_3d(copy);
    driver_lock();
    FINISH(box_check(&node->copy));
}

EXPORT CUresult cuGraphAddMemcpyNode(CUgraphNode *made, CUgraph graph, const CUgraphNode *after, size_t count,
                                     const struct memcpy3d *copy, CUcontext context)
{
    struct cuda_node node;
    (void)context;
    CUresult result = copy_node(copy, &node);
    return result != 0 ? result : add(made, graph, after, count, &node);
}

EXPORT CUresult cuGraphAddMemsetNode(CUgraphNode *made, CUgraph graph, const CUgraphNode *after, size_t count,
                                     const struct fill_parameters *p, CUcontext context)
{
    (void)context;
    if (p == NULL || (p->width != 1 && p->width != 2 && p->width != 4) || p->columns == 0 || p->rows == 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct cuda_node node = {.kind = NODE_FILL,
                             .fill = {p->to, p->value, p->width, p->pitch, p->columns, p->rows}};
    driver_lock();
    CUresult result = 0;
    for (size_t row = 0; row < p->rows && result == 0; row++)
        result = fill_check(p->to + row * p->pitch, p->width, p->columns);
    driver_unlock();
    return result != 0 ? result : add(made, graph, after, count, &node);
}

EXPORT CUresult cuGraphAddHostNode(CUgraphNode *made, CUgraph graph, const CUgraphNode *after, size_t count,
                                   const struct call_parameters *p)
{
    if (p == NULL || p->function == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    const struct cuda_node node = {.kind = NODE_CALL, .call = {p->function, p->argument}};
    return add(made, graph, after, count, &node);
}

EXPORT CUresult cuGraphAddEmptyNode(CUgraphNode *made, CUgraph graph, const CUgraphNode *after, size_t count)
{
    const struct cuda_node node = {.kind = NODE_EMPTY};
    return add(made, graph, after, count, &node);
}

EXPORT CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    driver_lock();
    CUresult result = driver_ready();
    if (result == 0 && (count == NULL || !graph_is_known(graph)))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result != 0)
        FINISH(result);
    size_t written = 0;
    if (nodes != NULL)
        for (CUgraphNode node = graph->first; node != NULL && written < *count; node = node->next)
            nodes[written++] = node;
    *count = nodes == NULL ? graph->count : written;
    FINISH(0);
}

EXPORT CUresult cuGraphNodeGetType(CUgraphNode node, int *type)
{
    if (node == NULL || type == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *type = (int)node->kind;
    return 0;
}

static bool is_executable(CUgraphExec wanted)
{
    CUgraphExec executable = executables;
    while (executable != NULL && executable != wanted)
        executable = executable->next;
    return executable != NULL;
}

EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *made, CUgraph graph, unsigned long long flags)
{
    WITH_CONTEXT(context);
    if (made == NULL || !graph_is_known(graph) || flags > 15)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    CUgraphExec executable = calloc(1, sizeof *executable);
    if (executable != NULL) {
        executable->nodes = calloc(graph->count + 1, sizeof *executable->nodes);
        executable->origin = calloc(graph->count + 1, sizeof *executable->origin);
    }
    if (executable == NULL || executable->nodes == NULL || executable->origin == NULL) {
        if (executable != NULL) {
            free(executable->nodes);
            free(executable->origin);
        }
        free(executable);
        FINISH(CUDA_ERROR_OUT_OF_MEMORY);
    }
    for (CUgraphNode node = graph->first; node != NULL; node = node->next) {
        executable->origin[executable->count] = node;
        executable->nodes[executable->count++] = *node;
    }
    executable->context = context;
    executable->next = executables;
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

EXPORT CUresult cuGraphExecDestroy(CUgraphExec executable)
{
    driver_lock();
    CUresult result = driver_ready();
    if (result == 0 && !is_executable(executable))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == 0) {
        CUgraphExec *at = &executables;
        while (*at != executable)
            at = &(*at)->next;
        *at = executable->next;
        free(executable->nodes);
        free(executable->origin);
        free(executable);
    }
    FINISH(result);
}

static CUresult exchange(CUgraphExec executable, CUgraphNode origin, const struct cuda_node *node)
{
    driver_lock();
    CUresult result = driver_ready();
    if (result == 0)
        result = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; is_executable(executable) && i < executable->count; i++)
        if (executable->origin[i] == origin && executable->nodes[i].kind == node->kind) {
            executable->nodes[i] = *node;
            result = 0;
        }
    FINISH(result);
}

EXPORT CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec executable, CUgraphNode origin,
                                                  const struct kernel_parameters *parameters)
{
    struct cuda_node node;
    CUresult result = kernel_node(parameters, &node);
    return result != 0 ? result : exchange(executable, origin, &node);
}

EXPORT CUresult cuGraphExecKernelNodeSetParams(CUgraphExec executable, CUgraphNode origin,
                                               const struct kernel_parameters *parameters)
{
    return cuGraphExecKernelNodeSetParams_v2(executable, origin, parameters);
}

EXPORT CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec executable, CUgraphNode origin, const struct memcpy3d *copy,
                                               CUcontext context)
{
    struct cuda_node node;
    (void)context;
    CUresult result = copy_node(copy, &node);
    return result != 0 ? result : exchange(executable, origin, &node);
}

static CUresult run(CUcontext context, const struct cuda_node *node)
{
    CUresult result;
    switch (node->kind) {
    case NODE_KERNEL:
        result = launch_check(&node->launch);
        return result != 0 ? result : launch_run(context, &node->launch);
    case NODE_COPY:
        return box_run(&node->copy);
    case NODE_FILL:
        for (size_t row = 0; row < node->fill.rows; row++) {
            CUdeviceptr to = node->fill.to + row * node->fill.pitch;
            result = fill_check(to, node->fill.width, node->fill.columns);
            if (result != 0)
                return result;
            fill_run(to, node->fill.value, node->fill.width, node->fill.columns);
        }
        return 0;
    case NODE_CALL:
        driver_unlock();
        node->call.function(node->call.argument);
        driver_lock();
        return 0;
    default:
        return 0;
    }
}

EXPORT CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream)
{
    WITH_CONTEXT(context);
    if (!is_executable(executable))
        FINISH(CUDA_ERROR_INVALID_VALUE);
    if (!stream_is_known(stream))
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    CUgraph graph = capture_of(stream);
    CUresult result = 0;
    for (size_t i = 0; i < executable->count && result == 0; i++)
        result = graph != NULL ? graph_add(graph, &executable->nodes[i], NULL) : run(context, &executable->nodes[i]);
    FINISH(result);
}

EXPORT CUresult cuGraphUpload(CUgraphExec executable, CUstream stream)
{
    WITH_CONTEXT(context);
    (void)context;
    if (!is_executable(executable))
        FINISH(CUDA_ERROR_INVALID_VALUE);
    FINISH(stream_is_known(stream) ? 0 : CUDA_ERROR_INVALID_HANDLE);
}

PER_THREAD(cuGraphInstantiateWithFlags, _ptsz);
PER_THREAD(cuGraphLaunch, _ptsz);
PER_THREAD(cuGraphUpload, _ptsz);
