/* Graphs: what a launch of them does, one node after the other. */
#ifndef DIVVY_CUDA_GRAPHS_H
#define DIVVY_CUDA_GRAPHS_H

#include "boxes.h"

/* As CUgraphNodeType numbers them. */
enum node_kind { NODE_KERNEL = 0, NODE_COPY = 1, NODE_FILL = 2, NODE_CALL = 3, NODE_EMPTY = 5 };

struct cuda_node {
    enum node_kind kind;
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
            void *argument;
        } call;
    };
    CUgraphNode next;
};

struct cuda_graph {
    CUgraphNode first, last;
    size_t count;
    CUgraph next;
};

struct cuda_executable {
    CUcontext context;
    struct cuda_node *nodes; /* copies, in the order of the graph's */
    CUgraphNode *origin;     /* the graph's own */
    size_t count;
    CUgraphExec next;
};

CUgraph graph_new(void);
bool graph_is_known(CUgraph graph);
void graph_end(CUgraph graph);
CUresult graph_add(CUgraph graph, const struct cuda_node *node, CUgraphNode *made);

#endif
