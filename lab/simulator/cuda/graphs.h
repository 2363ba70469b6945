/* Graphs, their nodes, and the memory that their launches allocate. */
#ifndef DIVVY_CUDA_GRAPHS_H
#define DIVVY_CUDA_GRAPHS_H

#include "streams.h"

struct cuda_node {
    struct operation operation;
    struct node_set after; /* older nodes of the same graph */
    CUgraph graph;
    CUgraphNode next;
};

struct user_objects { /* references to objects of the program */
    struct user_object {
        CUuserObject object;
        unsigned count;
    } *objects;
    size_t count;
};

struct cuda_graph {
    CUgraphNode first, last;
    struct user_objects user_objects;
    size_t count;
    bool is_child; /* of a node */
    CUgraph next;
};

/* graphs.c */
CUresult cuGraphAddChildGraphNode(CUgraphNode *made, CUgraph graph, const CUgraphNode *after, size_t count,
                                  CUgraph child);
CUgraph graph_new(void);
bool graph_is_known(CUgraph graph);
void graph_end(CUgraph graph);
CUresult graph_add(CUgraph graph, const struct operation *operation, const CUgraphNode *after, size_t count,
                   CUgraphNode *made);
bool graph_has_nodes(CUgraph graph, const CUgraphNode *nodes, size_t count);
bool graph_leads_to(const struct node_set *nodes, const struct node_set *ends);
bool graph_has_memory(CUgraph graph); /* nodes that allocate or free */
struct cuda_node *graph_node(CUgraphNode wanted, enum operation_kind kind); /* NULL: none of that kind */

/* captures.c */
bool graph_is_captured_to(CUgraph graph);

/* user_objects.c */
bool user_objects_keep(struct user_objects *kept, CUuserObject object, unsigned count);
bool user_objects_copy(struct user_objects *to, const struct user_objects *from);
void user_objects_leave(struct user_objects *kept);

/* node_parameters.c */
struct kernel_parameters;
CUresult kernel_operation(const struct kernel_parameters *parameters, struct operation *operation);
CUresult copy_operation(const struct memcpy3d *copy, struct operation *operation);

/* graph_memory.c: memory at an address that stays the same, from launch to launch. */
CUresult graph_memory_reserve(const struct device *device, size_t bytes, CUdeviceptr *address);
void graph_memory_keep(CUdeviceptr address); /* a node refers to it */
void graph_memory_leave(CUdeviceptr address);
CUdevice graph_memory_device(CUdeviceptr address);
size_t graph_memory_size(CUdeviceptr address); /* 0: no graph's */
bool graph_memory_is_live(CUdeviceptr address);
CUresult graph_memory_expect(CUcontext context, uint64_t bytes); /* that much more will be taken */

#endif
