/* The container that a hook is called for, from its state and its specification. */
#ifndef DIVVY_HOOK_CONTAINER_H
#define DIVVY_HOOK_CONTAINER_H

#include <stdbool.h>

struct mount {
    char *path;   /* in the container; NULL ends a list */
    char *source; /* on the host, "" if it is none of its files */
};

struct container {
    long pid;           /* of its process, as the runtime sees it; 0 if the state tells none */
    char *rootfs;       /* path of its root file system, as the host sees it */
    char **environment; /* of its process, ended by NULL */
    struct mount *mounts;
};

/* Read the OCI state on `state` and the specification in the bundle that it names;
 * false with a reason on stderr. */
bool container_read(int state, struct container *container);
void container_free(struct container *container);

#endif
