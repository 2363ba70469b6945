/* The driver version that a file carries, and where its driver root is. */
#ifndef DIVVY_VERSION_H
#define DIVVY_VERSION_H

#include <stddef.h>
#include <sys/un.h>

/* Version stamped into this file at installation, such as "550.163.01". */
const char *sim_version(void);

/* Take another for this process: of a program that is one file for all versions. */
void sim_set_version(const char *version);

/* CUDA version that a driver version brings, as 1000 * major + 10 * minor. */
int sim_cuda_version(const char *driver_version);

/* Driver root that this file lies in: "" for "/", else a path without a final slash. */
const char *sim_root(void);

/* Whether `path` below the root can be opened as a device node (ENXIO counts as yes);
 * 0, or the errno that hides it. */
int sim_node_hidden(const char *path, int flags);

/* The same for a GPU's node and for a MIG device's two nodes below dev/nvidia-caps. */
int sim_gpu_hidden(unsigned minor);
int sim_mig_hidden(unsigned minor, unsigned gi, unsigned ci);

/* Minor numbers of capability nodes; `ci` SIM_NO_ID means the GPU instance's own. */
unsigned sim_cap_minor(unsigned gpu_minor, unsigned gi, unsigned ci);

/* Fill a socket address for a path of any length; call _done when bound or connected. */
int sim_socket_address(const char *path, struct sockaddr_un *address);
void sim_socket_address_done(struct sockaddr_un *address);

#endif
