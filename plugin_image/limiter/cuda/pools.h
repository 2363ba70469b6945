#ifndef DIVVY_POOLS_H
#define DIVVY_POOLS_H

#include "../share/share.h"
#include "cuda.h"

/* What the nodes of a graph allocate, by the share's devices. */
struct graph_memory {
    CUdevice ordinal[MAX_DEVICES];
    uint64_t bytes[MAX_DEVICES];
    bool foreign; /* a node allocates on a device that the limits do not name */
};

/* Launch or upload a graph whose nodes allocate so much, if the share has that. */
CUresult pools_run_graph(const struct graph_memory *memory, CUresult (*run)(CUgraphExec, CUstream), CUgraphExec graph,
                         CUstream stream);

/* In the child of a fork. */
void graphs_in_child(void);

#endif
