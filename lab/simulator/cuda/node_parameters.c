/* Nodes that are added to a graph one by one, from their parameters. */
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

struct memory_parameters { /* CUDA_MEM_ALLOC_NODE_PARAMS, with CUmemPoolProps at its beginning */
    int type, handle_types, location_type, location;
    char rest_of_pool[72];
    const void *access;
    size_t access_count, bytes;
    CUdeviceptr address;
};
_Static_assert(offsetof(struct memory_parameters, access) == 88, "CUmemPoolProps has 88 bytes");

#define LOCATION_DEVICE 1
#define TYPE_PINNED 1

static CUresult add(CUgraphNode *made, CUgraph graph, const CUgraphNode *after, size_t count,
                    const struct operation *operation)
{
    driver_lock();
    CUresult result = driver_ready();
    if (result == 0 && (made == NULL || !graph_has_nodes(graph, after, count)))
        result = CUDA_ERROR_INVALID_VALUE;
    FINISH(result == 0 ? graph_add(graph, operation, after, count, made) : result);
}

CUresult kernel_operation(const struct kernel_parameters *p, struct operation *operation)
{
    if (p == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    operation->kind = OPERATION_KERNEL;
    operation->launch.function = p->function;
    memcpy(operation->launch.grid, p->grid, sizeof p->grid);
    memcpy(operation->launch.block, p->block, sizeof p->block);
    operation->launch.shared = p->shared;
    driver_lock();
    CUcontext context = NULL;
    CUresult result = function_is_known(p->function) ? 0 : context_current(&context);
    if (result == 0)
        result = function_resolve(context, &operation->launch.function);
    if (result == 0)
        result = launch_check(&operation->launch);
    if (result == 0)
        result = launch_parameters(operation->launch.function, p->pointers, p->extra, operation->launch.parameters);
    FINISH(result);
}

EXPORT CUresult cuGraphAddKernelNode_v2(CUgraphNode *made, CUgraph graph, const CUgraphNode *after, size_t count,
                                        const struct kernel_parameters *parameters)
{
    struct operation operation;
    CUresult result = kernel_operation(parameters, &operation);
    return result != 0 ? result : add(made, graph, after, count, &operation);
}

ALSO(cuGraphAddKernelNode, cuGraphAddKernelNode_v2,
     (CUgraphNode *made, CUgraph graph, const CUgraphNode *after, size_t count, const struct kernel_parameters *parameters), (made, graph, after, count, parameters))

CUresult copy_operation(const struct memcpy3d *copy, struct operation *operation)
{
    if (copy == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    operation->kind = OPERATION_COPY;
    operation->copy = box_of_3d(copy);
    driver_lock();
    FINISH(box_check(&operation->copy));
}

EXPORT CUresult cuGraphAddMemcpyNode(CUgraphNode *made, CUgraph graph, const CUgraphNode *after, size_t count,
                                     const struct memcpy3d *copy, CUcontext context)
{
    struct operation operation;
    (void)context;
    CUresult result = copy_operation(copy, &operation);
    return result != 0 ? result : add(made, graph, after, count, &operation);
}

EXPORT CUresult cuGraphAddMemsetNode(CUgraphNode *made, CUgraph graph, const CUgraphNode *after, size_t count,
                                     const struct fill_parameters *p, CUcontext context)
{
    (void)context;
    if (p == NULL || (p->width != 1 && p->width != 2 && p->width != 4) || p->columns == 0 || p->rows == 0)
        return CUDA_ERROR_INVALID_VALUE;
    const struct operation operation = {.kind = OPERATION_FILL,
                                        .fill = {p->to, p->value, p->width, p->pitch, p->columns, p->rows}};
    driver_lock();
    CUresult result = operation_check(&operation);
    driver_unlock();
    return result != 0 ? result : add(made, graph, after, count, &operation);
}

EXPORT CUresult cuGraphAddHostNode(CUgraphNode *made, CUgraph graph, const CUgraphNode *after, size_t count,
                                   const struct call_parameters *p)
{
    if (p == NULL || p->function == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    const struct operation operation = {.kind = OPERATION_CALL,
                                        .call = {.function = p->function, .argument = p->argument}};
    return add(made, graph, after, count, &operation);
}

EXPORT CUresult cuGraphAddEmptyNode(CUgraphNode *made, CUgraph graph, const CUgraphNode *after, size_t count)
{
    const struct operation operation = {.kind = OPERATION_EMPTY};
    return add(made, graph, after, count, &operation);
}

EXPORT CUresult cuGraphAddMemAllocNode(CUgraphNode *made, CUgraph graph, const CUgraphNode *after, size_t count,
                                       struct memory_parameters *p)
{
    driver_lock();
    CUresult result = driver_ready();
    if (result == 0 && (made == NULL || p == NULL || !graph_has_nodes(graph, after, count) || graph->is_child ||
                        p->type != TYPE_PINNED || p->handle_types != 0 || p->location_type != LOCATION_DEVICE ||
                        p->bytes == 0))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == 0 && device_at(p->location) == NULL)
        result = CUDA_ERROR_INVALID_DEVICE;
    if (result == 0)
        result = graph_memory_reserve(device_at(p->location), p->bytes, &p->address);
    if (result == 0) {
        const struct operation operation = {.kind = OPERATION_ALLOCATE, .memory = p->address};
        result = graph_add(graph, &operation, after, count, made);
        graph_memory_leave(p->address); /* the node's now, or free */
    }
    FINISH(result);
}

/* What this graph allocates and has no other free of. */
static bool can_free(CUgraph graph, CUdeviceptr address)
{
    bool frees = false;
    for (CUgraphNode node = graph->first; node != NULL; node = node->next)
        frees = frees || (node->operation.kind == OPERATION_FREE && node->operation.memory == address);
    return graph_memory_size(address) > 0 && !frees;
}

EXPORT CUresult cuGraphAddMemFreeNode(CUgraphNode *made, CUgraph graph, const CUgraphNode *after, size_t count,
                                      CUdeviceptr address)
{
    driver_lock();
    CUresult result = driver_ready();
    if (result == 0 && (made == NULL || !graph_has_nodes(graph, after, count) || !can_free(graph, address)))
        result = CUDA_ERROR_INVALID_VALUE;
    const struct operation operation = {.kind = OPERATION_FREE, .memory = address};
    FINISH(result == 0 ? graph_add(graph, &operation, after, count, made) : result);
}

EXPORT CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, struct memory_parameters *p)
{
    driver_lock();
    CUresult result = driver_ready();
    const struct cuda_node *known = graph_node(node, OPERATION_ALLOCATE);
    if (result == 0 && (p == NULL || known == NULL))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == 0) {
        memset(p, 0, sizeof *p);
        p->type = TYPE_PINNED;
        p->location_type = LOCATION_DEVICE;
        p->location = graph_memory_device(known->operation.memory);
        p->bytes = graph_memory_size(known->operation.memory);
        p->address = known->operation.memory;
    }
    FINISH(result);
}

EXPORT CUresult cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr *address)
{
    driver_lock();
    CUresult result = driver_ready();
    const struct cuda_node *known = graph_node(node, OPERATION_FREE);
    if (result == 0 && (address == NULL || known == NULL))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == 0)
        *address = known->operation.memory;
    FINISH(result);
}

struct node_parameters { /* CUgraphNodeParams */
    int kind, reserved[3];
    union {
        long long size[29];
        struct kernel_parameters kernel;
        struct {
            int flags, reserved;
            CUcontext context;
            struct memcpy3d copy;
        } copy;
        struct fill_parameters fill;
        struct call_parameters call;
        struct memory_parameters allocation;
        CUgraph graph;
        CUdeviceptr address;
    };
    long long reserved_too;
};
_Static_assert(sizeof(struct node_parameters) == 256, "CUgraphNodeParams has 256 bytes");

/* The one call for nodes of all kinds, since CUDA 12.2. */
EXPORT CUresult cuGraphAddNode(CUgraphNode *made, CUgraph graph, const CUgraphNode *after, size_t count,
                               struct node_parameters *p)
{
    if (p == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    switch (p->kind) {
    case OPERATION_KERNEL:
        return cuGraphAddKernelNode_v2(made, graph, after, count, &p->kernel);
    case OPERATION_COPY:
        return cuGraphAddMemcpyNode(made, graph, after, count, &p->copy.copy, p->copy.context);
    case OPERATION_FILL:
        return cuGraphAddMemsetNode(made, graph, after, count, &p->fill, NULL);
    case OPERATION_CALL:
        return cuGraphAddHostNode(made, graph, after, count, &p->call);
    case OPERATION_GRAPH:
        return cuGraphAddChildGraphNode(made, graph, after, count, p->graph);
    case OPERATION_EMPTY:
        return cuGraphAddEmptyNode(made, graph, after, count);
    case OPERATION_ALLOCATE:
        return cuGraphAddMemAllocNode(made, graph, after, count, &p->allocation);
    case OPERATION_FREE:
        return cuGraphAddMemFreeNode(made, graph, after, count, p->address);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

EXPORT CUresult cuGraphAddNode_v2(CUgraphNode *made, CUgraph graph, const CUgraphNode *after, const void *edges,
                                  size_t count, struct node_parameters *p)
{
    (void)edges; /* of what kind the dependencies are */
    return cuGraphAddNode(made, graph, after, count, p);
}
