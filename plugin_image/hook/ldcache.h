/* Refresh the loader cache of a container, so that its programs find the driver's libraries. */
#ifndef DIVVY_HOOK_LDCACHE_H
#define DIVVY_HOOK_LDCACHE_H

/* Run our own static ldconfig over `rootfs`, confined to it. `folders`, ended by NULL, come
 * first in its search. 0 when done, or when the image has no glibc; else -1, reason on stderr. */
int ldcache_refresh(const char *rootfs, const char *ldconfig, const char *const *folders);

#endif
