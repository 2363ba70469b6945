/* Look and write inside a stranger's file system without ever leaving it. */
#ifndef DIVVY_HOOK_INSIDE_H
#define DIVVY_HOOK_INSIDE_H

#include <stdbool.h>
#include <sys/types.h>

/* Return the image's own file system, of which `rootfs` is the container's view, without
 * anything that is mounted in it: no volume, no /proc, no device. -1 with errno. */
int inside_image(const char *rootfs);

/* Open a path as if `root` were "/": links and ".." end at it, the links of /proc are refused. */
int inside_open(int root, const char *path, int flags, mode_t mode);

bool inside_exists(int root, const char *path);

/* Give a file below `folder` this content by replacing it; -1 with errno where that fails. */
int inside_replace(int folder, const char *name, const char *content);

/* Return the driver branch of the image's cuda-compat (550 of libcuda.so.550.54.15), 0 without. */
long inside_compat(int root);

extern const char COMPAT_FOLDER[];

#endif
