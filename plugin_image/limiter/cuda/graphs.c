/* Graphs: each launch through the gate, and the memory that their nodes allocate within the share. */
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "driver.h"
#include "gate.h"
#include "memory.h"
#include "pools.h"

#define NODE_GRAPH 4
#define NODE_MEM_ALLOC 10
#define MAX_DEPTH 16

typedef struct CUnode_st *CUnode;

struct memory_node { /* CUDA_MEM_ALLOC_NODE_PARAMS */
    struct location_properties pool;
    char more_of_pool[72];
    const void *access;
    size_t accesses, bytes;
    CUdeviceptr address;
};

EXPORT CUresult cuGraphInstantiate(CUgraphExec *made, CUgraph graph, CUnode *error, char *log, size_t size);
EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec *made, CUgraph graph, CUnode *error, char *log, size_t size);
EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *made, CUgraph graph, unsigned long long flags);
EXPORT CUresult cuGraphInstantiateWithParams(CUgraphExec *made, CUgraph graph, void *parameters);
EXPORT CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *made, CUgraph graph, void *parameters);
EXPORT CUresult cuGraphExecDestroy(CUgraphExec graph);
EXPORT CUresult cuGraphLaunch(CUgraphExec graph, CUstream stream);
EXPORT CUresult cuGraphLaunch_ptsz(CUgraphExec graph, CUstream stream);
EXPORT CUresult cuGraphUpload(CUgraphExec graph, CUstream stream);
EXPORT CUresult cuGraphUpload_ptsz(CUgraphExec graph, CUstream stream);

CUresult cuGraphGetNodes(CUgraph graph, CUnode *nodes, size_t *count);
CUresult cuGraphNodeGetType(CUnode node, int *type);
CUresult cuGraphMemAllocNodeGetParams(CUnode node, struct memory_node *memory);
CUresult cuGraphChildGraphNodeGetGraph(CUnode node, CUgraph *graph);

/* A graph that allocates. */
struct executable {
    CUgraphExec handle;
    struct graph_memory memory;
    struct executable *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct executable *executables;

void graphs_in_child(void)
{
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    executables = NULL;
}

/* All of it, although nodes may use the same memory one after the other: what they share is the driver's to say.
 * False if there is none on the share's devices. */
static bool add_memory(CUgraph graph, struct graph_memory *all, unsigned depth)
{
    size_t count = 0;
    bool any = false;
    if (depth > MAX_DEPTH || CALL(cuGraphGetNodes, graph, NULL, &count) != 0 || count == 0)
        return false;
    CUnode *nodes = calloc(count, sizeof(CUnode));
    if (nodes == NULL || CALL(cuGraphGetNodes, graph, nodes, &count) != 0)
        count = 0;
    for (size_t i = 0; i < count; i++) {
        struct memory_node memory;
        CUgraph child;
        int type = 0;
        CALL(cuGraphNodeGetType, nodes[i], &type);
        if (type == NODE_MEM_ALLOC && CALL(cuGraphMemAllocNodeGetParams, nodes[i], &memory) == 0) {
            int device = tenant_device(memory.pool.location);
            all->foreign = all->foreign || device == FOREIGN;
            if (device < 0)
                continue;
            uint64_t bytes = all->bytes[device] + memory.bytes;
            all->bytes[device] = bytes < memory.bytes ? UINT64_MAX : bytes;
            all->ordinal[device] = memory.pool.location;
            any = true;
        } else if (type == NODE_GRAPH && CALL(cuGraphChildGraphNodeGetGraph, nodes[i], &child) == 0) {
            any = add_memory(child, all, depth + 1) || any;
        }
    }
    free(nodes);
    return any;
}

static CUresult instantiated(CUresult result, const CUgraphExec *made, CUgraph graph)
{
    struct graph_memory memory = {.bytes = {0}};
    struct executable *kept = NULL;
    bool any = result == 0 && add_memory(graph, &memory, 0);
    if (!any && !memory.foreign)
        return result;
    if (!memory.foreign)
        kept = malloc(sizeof *kept);
    if (kept == NULL) {
        CALL(cuGraphExecDestroy, *made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_lock(&lock);
    *kept = (struct executable){*made, memory, executables};
    __atomic_store_n(&executables, kept, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORT CUresult cuGraphInstantiate(CUgraphExec *made, CUgraph graph, CUnode *error, char *log, size_t size)
{
    return instantiated(CALL(cuGraphInstantiate, made, graph, error, log, size), made, graph);
}

EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec *made, CUgraph graph, CUnode *error, char *log, size_t size)
{
    return instantiated(CALL(cuGraphInstantiate_v2, made, graph, error, log, size), made, graph);
}

EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *made, CUgraph graph, unsigned long long flags)
{
    return instantiated(CALL(cuGraphInstantiateWithFlags, made, graph, flags), made, graph);
}

EXPORT CUresult cuGraphInstantiateWithParams(CUgraphExec *made, CUgraph graph, void *parameters)
{
    return instantiated(CALL(cuGraphInstantiateWithParams, made, graph, parameters), made, graph);
}

EXPORT CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *made, CUgraph graph, void *parameters)
{
    return instantiated(CALL(cuGraphInstantiateWithParams_ptsz, made, graph, parameters), made, graph);
}

/* The number may be given again at once. */
EXPORT CUresult cuGraphExecDestroy(CUgraphExec graph)
{
    pthread_mutex_lock(&lock);
    CUresult result = CALL(cuGraphExecDestroy, graph);
    struct executable **at = &executables;
    while (result == 0 && *at != NULL && (*at)->handle != graph)
        at = &(*at)->next;
    if (result == 0 && *at != NULL) {
        struct executable *gone = *at;
        __atomic_store_n(at, gone->next, __ATOMIC_RELAXED);
        free(gone);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

static bool find(CUgraphExec graph, struct executable *found)
{
    if (__atomic_load_n(&executables, __ATOMIC_RELAXED) == NULL)
        return false;
    pthread_mutex_lock(&lock);
    const struct executable *one = executables;
    while (one != NULL && one->handle != graph)
        one = one->next;
    if (one != NULL)
        *found = *one;
    pthread_mutex_unlock(&lock);
    return one != NULL;
}

static CUresult run(CUresult (*driver)(CUgraphExec, CUstream), CUgraphExec graph, CUstream stream)
{
    struct executable allocates;
    return find(graph, &allocates) ? pools_run_graph(&allocates.memory, driver, graph, stream)
                                   : driver(graph, stream);
}

static CUresult launch(CUresult (*driver)(CUgraphExec, CUstream), CUgraphExec graph, CUstream stream)
{
    struct gate *gate = gate_pass(stream);
    CUresult result = run(driver, graph, stream);
    if (gate != NULL)
        gate_passed(gate, stream);
    return result;
}

#define DRIVERS(name)                                             \
    static CUresult driver_##name(CUgraphExec graph, CUstream stream) \
    {                                                             \
        return CALL(name, graph, stream);                         \
    }

DRIVERS(cuGraphLaunch)
DRIVERS(cuGraphLaunch_ptsz)
DRIVERS(cuGraphUpload)
DRIVERS(cuGraphUpload_ptsz)

EXPORT CUresult cuGraphLaunch(CUgraphExec graph, CUstream stream)
{
    return launch(driver_cuGraphLaunch, graph, stream);
}

EXPORT CUresult cuGraphLaunch_ptsz(CUgraphExec graph, CUstream stream)
{
    return launch(driver_cuGraphLaunch_ptsz, graph, per_thread(stream));
}

EXPORT CUresult cuGraphUpload(CUgraphExec graph, CUstream stream)
{
    return run(driver_cuGraphUpload, graph, stream);
}

EXPORT CUresult cuGraphUpload_ptsz(CUgraphExec graph, CUstream stream)
{
    return run(driver_cuGraphUpload_ptsz, graph, per_thread(stream));
}
