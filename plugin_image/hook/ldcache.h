/* Refresh the loader cache of a container, so that its programs find the driver's libraries. */
#ifndef DIVVY_HOOK_LDCACHE_H
#define DIVVY_HOOK_LDCACHE_H

/* `ldconfig` is the host's path of our own static one; `driver` is the folder of the driver's
 * libraries in the container, `compat` one that comes before it, or NULL. */
struct loader {
    const char *ldconfig, *driver, *compat;
};

/* Run ldconfig over `image`, the image's own file system at `rootfs`, confined to it. 0 when
 * done, or when the image has no glibc or no /etc; else -1, reason on stderr. */
int ldcache_refresh(const char *rootfs, int image, const struct loader *loader);

#endif
