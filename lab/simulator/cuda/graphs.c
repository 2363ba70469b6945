/* Graphs and their nodes.
 *
 * A node can only depend on older ones, so the order of their making is an order of running.
 */
#include <stdlib.h>
#include <string.h>

#include "graphs.h"

static CUgraph graphs;

CUgraph graph_new(void)
{
    CUgraph graph = calloc(1, sizeof *graph);
    if (graph != NULL) {
        graph->next = graphs;
        graphs = graph;
    }
    return graph;
}

KNOWS(graph_is_known, CUgraph, graphs)

static void end_node(CUgraphNode node)
{
    if (node->operation.kind == OPERATION_ALLOCATE)
        graph_memory_leave(node->operation.memory);
    if (node->operation.kind == OPERATION_GRAPH)
        graph_end(node->operation.graph);
    node_set_clear(&node->after);
    free(node);
}

void graph_end(CUgraph graph)
{
    for (CUgraphNode node = graph->first, next; node != NULL; node = next) {
        next = node->next;
        end_node(node);
    }
    UNLINK(graphs, graph);
    user_objects_leave(&graph->user_objects);
    free(graph);
}

CUresult graph_add(CUgraph graph, const struct operation *operation, const CUgraphNode *after, size_t count,
                   CUgraphNode *made)
{
    CUgraphNode node = malloc(sizeof *node);
    if (node == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    node->operation = *operation;
    node->after = (struct node_set){NULL, 0};
    node->graph = graph;
    node->next = NULL;
    if (!node_set_add(&node->after, after, count)) {
        free(node);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (operation->kind == OPERATION_ALLOCATE)
        graph_memory_keep(operation->memory);
    if (graph->last == NULL)
        graph->first = node;
    else
        graph->last->next = node;
    graph->last = node;
    graph->count++;
    if (made != NULL)
        *made = node;
    return 0;
}

static bool has_node(CUgraph graph, CUgraphNode wanted)
{
    CUgraphNode node = graph->first;
    while (node != NULL && node != wanted)
        node = node->next;
    return node != NULL;
}

bool graph_has_nodes(CUgraph graph, const CUgraphNode *nodes, size_t count)
{
    if (!graph_is_known(graph) || (count > 0 && nodes == NULL))
        return false;
    for (size_t i = 0; i < count; i++)
        if (!has_node(graph, nodes[i]))
            return false;
    return true;
}

struct cuda_node *graph_node(CUgraphNode wanted, enum operation_kind kind)
{
    for (CUgraph graph = graphs; graph != NULL; graph = graph->next)
        if (has_node(graph, wanted))
            return wanted->operation.kind == kind ? wanted : NULL;
    return NULL;
}

static bool node_is_known(CUgraphNode wanted)
{
    CUgraph graph = graphs;
    while (graph != NULL && !has_node(graph, wanted))
        graph = graph->next;
    return graph != NULL;
}

bool graph_has_memory(CUgraph graph)
{
    for (CUgraphNode node = graph->first; node != NULL; node = node->next)
        if (node->operation.kind == OPERATION_ALLOCATE || node->operation.kind == OPERATION_FREE)
            return true;
    return false;
}

/* Whether each of the nodes is one of the ends, or before one. */
bool graph_leads_to(const struct node_set *nodes, const struct node_set *ends)
{
    struct node_set before = {NULL, 0};
    bool leads = node_set_add(&before, ends->nodes, ends->count);
    for (size_t i = 0; i < before.count && leads; i++)
        leads = node_set_add(&before, before.nodes[i]->after.nodes, before.nodes[i]->after.count);
    size_t all = before.count;
    leads = leads && node_set_add(&before, nodes->nodes, nodes->count) && before.count == all;
    node_set_clear(&before);
    return leads;
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
    if (result == 0 && (!graph_is_known(graph) || graph->is_child))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == 0 && graph_is_captured_to(graph))
        result = CUDA_ERROR_ILLEGAL_STATE;
    if (result == 0)
        graph_end(graph);
    FINISH(result);
}

static CUgraphNode copy_of(CUgraph graph, CUgraph copy, CUgraphNode wanted)
{
    CUgraphNode node = graph->first, twin = copy->first;
    while (node != wanted) {
        node = node->next;
        twin = twin->next;
    }
    return twin;
}

static CUresult clone(CUgraph graph, CUgraph *made)
{
    CUgraph copy = graph_new();
    bool has_objects = copy != NULL && user_objects_copy(&copy->user_objects, &graph->user_objects);
    CUresult result = has_objects ? 0 : CUDA_ERROR_OUT_OF_MEMORY;
    for (CUgraphNode node = graph->first; node != NULL && result == 0; node = node->next) {
        struct operation operation = node->operation;
        CUgraphNode twin;
        if (operation.kind == OPERATION_GRAPH && (result = clone(node->operation.graph, &operation.graph)) != 0)
            break;
        if (operation.kind == OPERATION_GRAPH)
            operation.graph->is_child = true;
        result = graph_add(copy, &operation, NULL, 0, &twin);
        for (size_t i = 0; i < node->after.count && result == 0; i++) {
            CUgraphNode after = copy_of(graph, copy, node->after.nodes[i]);
            if (!node_set_add(&twin->after, &after, 1))
                result = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    if (result != 0 && copy != NULL)
        graph_end(copy);
    else
        *made = copy;
    return result;
}

/* Graphs with memory nodes cannot be cloned or become children. */
EXPORT CUresult cuGraphClone(CUgraph *made, CUgraph graph)
{
    driver_lock();
    CUresult result = driver_ready();
    if (result == 0 && (made == NULL || !graph_is_known(graph)))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == 0 && graph_has_memory(graph))
        result = CUDA_ERROR_NOT_SUPPORTED;
    FINISH(result == 0 ? clone(graph, made) : result);
}

EXPORT CUresult cuGraphAddChildGraphNode(CUgraphNode *made, CUgraph graph, const CUgraphNode *after, size_t count,
                                         CUgraph child)
{
    driver_lock();
    CUresult result = driver_ready();
    if (result == 0 && (made == NULL || !graph_has_nodes(graph, after, count) || !graph_is_known(child)))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == 0 && graph_has_memory(child))
        result = CUDA_ERROR_NOT_SUPPORTED;
    struct operation operation;
    operation.kind = OPERATION_GRAPH;
    if (result == 0)
        result = clone(child, &operation.graph);
    if (result == 0) {
        operation.graph->is_child = true;
        result = graph_add(graph, &operation, after, count, made);
        if (result != 0)
            graph_end(operation.graph);
    }
    FINISH(result);
}

EXPORT CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *graph)
{
    driver_lock();
    CUresult result = driver_ready();
    const struct cuda_node *known = graph_node(node, OPERATION_GRAPH);
    if (result == 0 && (graph == NULL || known == NULL))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == 0)
        *graph = known->operation.graph;
    FINISH(result);
}

static size_t list(CUgraph graph, bool roots_only, CUgraphNode *nodes, size_t room)
{
    size_t count = 0;
    for (CUgraphNode node = graph->first; node != NULL; node = node->next)
        if (!roots_only || node->after.count == 0) {
            if (nodes != NULL && count == room)
                break;
            if (nodes != NULL)
                nodes[count] = node;
            count++;
        }
    return count;
}

static CUresult get_nodes(CUgraph graph, bool roots_only, CUgraphNode *nodes, size_t *count)
{
    driver_lock();
    CUresult result = driver_ready();
    if (result == 0 && (count == NULL || !graph_is_known(graph)))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == 0)
        *count = list(graph, roots_only, nodes, nodes == NULL ? 0 : *count);
    FINISH(result);
}

EXPORT CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    return get_nodes(graph, false, nodes, count);
}

EXPORT CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    return get_nodes(graph, true, nodes, count);
}

EXPORT CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count)
{
    driver_lock();
    CUresult result = driver_ready();
    if (result == 0 && (count == NULL || !graph_is_known(graph) || (from == NULL) != (to == NULL)))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result != 0)
        FINISH(result);
    size_t edges = 0;
    for (CUgraphNode node = graph->first; node != NULL; node = node->next)
        for (size_t i = 0; i < node->after.count; i++) {
            if (from != NULL && edges == *count)
                FINISH(0);
            if (from != NULL) {
                from[edges] = node->after.nodes[i];
                to[edges] = node;
            }
            edges++;
        }
    *count = edges;
    FINISH(0);
}

EXPORT CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *nodes, size_t *count)
{
    driver_lock();
    CUresult result = driver_ready();
    if (result == 0 && (count == NULL || !node_is_known(node)))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result != 0)
        FINISH(result);
    size_t copied = nodes == NULL || *count > node->after.count ? node->after.count : *count;
    if (nodes != NULL && copied > 0)
        memcpy(nodes, node->after.nodes, copied * sizeof(CUgraphNode));
    *count = copied;
    FINISH(0);
}

EXPORT CUresult cuGraphNodeGetType(CUgraphNode node, int *type)
{
    driver_lock();
    CUresult result = driver_ready();
    if (result == 0 && (type == NULL || !node_is_known(node)))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == 0)
        *type = (int)node->operation.kind;
    FINISH(result);
}
