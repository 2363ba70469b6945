#ifndef DIVVY_POOLS_H
#define DIVVY_POOLS_H

#include "cuda.h"

/* After a synchronisation: pools may have given memory back. One load if there are none. */
void pools_synchronised(void);

/* Launch or upload a graph whose nodes allocate so much, if the share has that. */
CUresult pools_run_graph(CUdevice ordinal, uint64_t bytes, CUresult (*run)(CUgraphExec, CUstream), CUgraphExec graph,
                         CUstream stream);

/* In the child of a fork. */
void graphs_in_child(void);

#endif
