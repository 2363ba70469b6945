/* The share as its account tells it. Whoever only looks takes no slot. */
#include <pthread.h>
#include <stdio.h>

#include "nvml.h"

const char driver_library[] = "libnvidia-ml-driver.so.1";

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length);

static const struct share *share(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct share limits;
    static bool tried, sound;
    char path[4096 + 32], problem[4096 + 128];
    pthread_mutex_lock(&lock);
    if (!tried) {
        snprintf(path, sizeof path, "%s/../share/limits", driver_folder());
        sound = share_read(path, &limits, problem, sizeof problem);
        tried = true;
    }
    pthread_mutex_unlock(&lock);
    return sound ? &limits : NULL;
}

bool view_of(nvmlDevice_t device, struct view *view)
{
    char uuid[96], path[4096 + 32];
    const struct share *limits = share();
    if (limits == NULL || CALL(nvmlDeviceGetUUID, device, uuid, sizeof uuid) != 0)
        return false;
    int index = share_find_text(limits, uuid);
    if (index < 0)
        return false;
    snprintf(path, sizeof path, "%s/../share/account", driver_folder());
    view->limit = limits->device[index].memory;
    return account_look(path, (unsigned)index, &view->used, view->process, &view->count);
}
