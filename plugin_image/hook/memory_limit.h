/* The driver's own limit of a container's memory, set before its process starts. */
#ifndef DIVVY_HOOK_MEMORY_LIMIT_H
#define DIVVY_HOOK_MEMORY_LIMIT_H

#include <stdbool.h>

#include "container.h"

struct limiting {
    const char *smi;     /* nvidia-smi of the loaded driver, as the host sees it */
    const char *library; /* the driver's libnvidia-ml.so.1 */
    const char *shares;  /* folder below which the agent lays each share's file of limits */
    const char *groups;  /* where version 2 of the control groups is mounted */
};

/* Have the driver limit the memory of the container's control group to what its file of limits says,
 * of each GPU in it; false with a reason on stderr. Called in the runtime's namespaces. */
bool memory_limit_set(const struct container *container, const struct limiting *limiting);

#endif
