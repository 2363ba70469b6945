/* Event sets. Each has its own connection, on which the daemon pushes what happens. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../common/version.h"
#include "../common/wire.h"
#include "handles.h"

#define EVENT_TYPES 0xffffull
/* All but two that no GPU has; what happens here are ECC errors, XIDs and changes of the MIG configuration. */
#define SUPPORTED 0xff9full

#define EARLY 64 /* events that come while another GPU is registered */

struct nvml_event_set {
    int fd;
    struct sim_event early[EARLY];
    unsigned early_count;
    struct nvml_event_set *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct nvml_event_set *sets;

static void after_fork_child(void)
{
    for (struct nvml_event_set *set = sets; set != NULL; set = set->next)
        if (set->fd >= 0) {
            close(set->fd);
            set->fd = -1;
        }
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, after_fork_child);
}

static bool known(nvmlEventSet_t wanted)
{
    pthread_mutex_lock(&lock);
    struct nvml_event_set *set = sets;
    while (set != NULL && set != wanted)
        set = set->next;
    pthread_mutex_unlock(&lock);
    return set != NULL;
}

EXPORT nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *made)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct sim_hello hello;
    if (!session_open())
        return SIM_ERR_UNINITIALIZED;
    if (made == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    pthread_once(&once, watch_forks);
    int fd = sim_connect(sim_root(), SIM_CLIENT_NVML, &hello);
    if (fd < 0)
        return -fd;
    struct nvml_event_set *set = calloc(1, sizeof *set);
    if (set == NULL) {
        close(fd);
        return SIM_ERR_MEMORY;
    }
    pthread_mutex_lock(&lock);
    set->fd = fd;
    set->next = sets;
    sets = set;
    pthread_mutex_unlock(&lock);
    *made = set;
    return 0;
}

EXPORT nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t wanted)
{
    if (!session_open())
        return SIM_ERR_UNINITIALIZED;
    pthread_mutex_lock(&lock);
    struct nvml_event_set **at = &sets;
    while (*at != NULL && *at != wanted)
        at = &(*at)->next;
    struct nvml_event_set *set = *at;
    if (set != NULL)
        *at = set->next;
    pthread_mutex_unlock(&lock);
    if (set == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    if (set->fd >= 0)
        close(set->fd);
    free(set);
    return 0;
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types)
{
    struct sim_gpu state;
    int status = gpu_state(device, &state);
    if (status == 0 && types == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    if (status == 0)
        *types = SUPPORTED;
    return status;
}

EXPORT nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types,
                                             nvmlEventSet_t set)
{
    struct sim_gpu state;
    int status = gpu_state(device, &state);
    if (status != 0)
        return status;
    if (!known(set) || (types & ~EVENT_TYPES) != 0)
        return SIM_ERR_INVALID_ARGUMENT;
    if ((types & ~SUPPORTED) != 0)
        return SIM_ERR_NOT_SUPPORTED;
    struct sim_watch watch = {.gpu = state.index, .types = types};
    return sim_call_between_events(set->fd, SIM_WATCH, &watch, sizeof watch, set->early,
                                   &set->early_count, EARLY);
}

EXPORT nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeout_ms)
{
    struct sim_event event;
    if (!session_open())
        return SIM_ERR_UNINITIALIZED;
    if (!known(set) || data == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    int status = 0;
    if (set->early_count > 0) {
        event = set->early[0];
        memmove(set->early, set->early + 1, --set->early_count * sizeof *set->early);
    } else
        status = sim_wait_event(set->fd, timeout_ms > 0x7fffffffu ? -1 : (int)timeout_ms, &event);
    if (status != 0)
        return status;
    struct sim_gpu state;
    if ((status = session_identity(event.gpu, &state)) != 0)
        return status;
    *data = (nvmlEventData_t){handle_gpu(event.gpu, state.minor), event.type, event.data, event.gi,
                              event.ci};
    return 0;
}

ALSO(nvmlEventSetWait, nvmlEventSetWait_v2,
     (nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeout_ms), (set, data, timeout_ms))
