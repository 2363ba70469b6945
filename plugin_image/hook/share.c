#include "share.h"

#include <string.h>

/* What the limiter stands in front of, by the names under which programs find it. */
static const char *const LIMITED[] = {"libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1", "libnvidia-ml.so"};

static bool is_limited(const char *path)
{
    const char *slash = strrchr(path, '/');
    for (size_t each = 0; slash != NULL && each < sizeof LIMITED / sizeof *LIMITED; each++)
        if (strcmp(slash + 1, LIMITED[each]) == 0)
            return true;
    return false;
}

static bool is_below(const char *path, const char *folder)
{
    size_t size = strlen(folder);
    return strncmp(path, folder, size) == 0 && path[size] == '/';
}

bool share_holds(const struct container *container, const char *limits, const char *limiter)
{
    bool found = false;
    for (const struct mount *each = container->mounts; each->path != NULL; each++) {
        if (strcmp(each->path, SHARE_LIMITS) == 0) {
            if (strcmp(each->source, limits) != 0)
                return false;
            found = true;
        } else if (is_limited(each->path) && !is_below(each->source, limiter)) {
            return false;
        }
    }
    return found;
}
