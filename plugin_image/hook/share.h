/* A share that a claim holds: whether the container has its limits, and nothing that goes round them. */
#ifndef DIVVY_HOOK_SHARE_H
#define DIVVY_HOOK_SHARE_H

#include <stdbool.h>

#include "container.h"

#define SHARE_LIMITS "/usr/lib/divvy/share/limits" /* where a container has its file of limits */

/* Tell whether a container has this file of limits (`limits`, on the host) and, wherever it has the
 * driver's libraries, those of the limiter (`limiter`, a folder on the host) in their place. Of two
 * mounts at one place the runtime makes one: with the GPUs of a second claim it may be the other. */
bool share_holds(const struct container *container, const char *limits, const char *limiter);

#endif
