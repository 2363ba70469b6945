/* Processes: the container's own, under the numbers by which it knows them. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "nvml.h"

#define NO_INSTANCE 0xFFFFFFFFu

struct process { /* nvmlProcessInfo_v1_t */
    unsigned pid;
    unsigned long long bytes;
};

struct process_v2 { /* nvmlProcessInfo_t */
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
};

struct details { /* nvmlProcessDetailList_v1_t */
    unsigned version, mode, count;
    void *processes;
};

struct utilisation { /* nvmlProcessesUtilizationInfo_v1_t */
    unsigned version, count;
    unsigned long long since;
    void *samples;
};

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned *count, struct process *infos);
EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned *count,
                                                            struct process_v2 *infos);
EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                            struct process_v2 *infos);
EXPORT nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses(nvmlDevice_t device, unsigned *count,
                                                            struct process *infos);
EXPORT nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t device, unsigned *count,
                                                               struct process_v2 *infos);
EXPORT nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                               struct process_v2 *infos);
EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device, unsigned *count, struct process *infos);
EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned *count,
                                                             struct process_v2 *infos);
EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                             struct process_v2 *infos);
EXPORT nvmlReturn_t nvmlDeviceGetEncoderSessions(nvmlDevice_t device, unsigned *count, void *sessions);
EXPORT nvmlReturn_t nvmlDeviceGetFBCSessions(nvmlDevice_t device, unsigned *count, void *sessions);
EXPORT nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, struct details *list);
EXPORT nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned *count, unsigned *pids);
EXPORT nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned pid, void *stats);
EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, void *samples, unsigned *count,
                                                    unsigned long long since);
EXPORT nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, struct utilisation *samples);
EXPORT nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length);

/* As NVML answers: how many there are, and an error where the caller's list is too short. */
static nvmlReturn_t check(const struct view *view, unsigned *count, const void *infos)
{
    if (count == NULL || (infos == NULL && *count > 0))
        return NVML_ERROR_INVALID_ARGUMENT;
    unsigned room = *count;
    *count = view->count;
    return room < view->count ? NVML_ERROR_INSUFFICIENT_SIZE : 0;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned *count, struct process *infos)
{
    struct view view;
    if (!view_of(device, &view))
        return CALL(nvmlDeviceGetComputeRunningProcesses, device, count, infos);
    nvmlReturn_t result = check(&view, count, infos);
    for (unsigned i = 0; result == 0 && i < view.count; i++)
        infos[i] = (struct process){view.process[i].pid, view.process[i].bytes};
    return result;
}

static nvmlReturn_t list(const struct view *view, unsigned *count, struct process_v2 *infos)
{
    nvmlReturn_t result = check(view, count, infos);
    for (unsigned i = 0; result == 0 && i < view->count; i++)
        infos[i] = (struct process_v2){view->process[i].pid, view->process[i].bytes, NO_INSTANCE, NO_INSTANCE};
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned *count,
                                                            struct process_v2 *infos)
{
    struct view view;
    return view_of(device, &view) ? list(&view, count, infos)
                                  : CALL(nvmlDeviceGetComputeRunningProcesses_v2, device, count, infos);
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                            struct process_v2 *infos)
{
    struct view view;
    return view_of(device, &view) ? list(&view, count, infos)
                                  : CALL(nvmlDeviceGetComputeRunningProcesses_v3, device, count, infos);
}

/* Lists of processes of all containers, by the node's numbers. Clients of MPS of its own are in the list above. */
#define EMPTY(name, type)                                                               \
    EXPORT nvmlReturn_t name(nvmlDevice_t device, unsigned *count, type *infos)         \
    {                                                                                   \
        struct view view;                                                               \
        if (count == NULL || !view_of(device, &view))                                   \
            return CALL(name, device, count, infos);                                    \
        *count = 0;                                                                     \
        return 0;                                                                       \
    }

EMPTY(nvmlDeviceGetMPSComputeRunningProcesses, struct process)
EMPTY(nvmlDeviceGetMPSComputeRunningProcesses_v2, struct process_v2)
EMPTY(nvmlDeviceGetMPSComputeRunningProcesses_v3, struct process_v2)
EMPTY(nvmlDeviceGetGraphicsRunningProcesses, struct process)
EMPTY(nvmlDeviceGetGraphicsRunningProcesses_v2, struct process_v2)
EMPTY(nvmlDeviceGetGraphicsRunningProcesses_v3, struct process_v2)
EMPTY(nvmlDeviceGetAccountingPids, unsigned)
EMPTY(nvmlDeviceGetEncoderSessions, void)
EMPTY(nvmlDeviceGetFBCSessions, void)

EXPORT nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, struct details *list)
{
    struct view view;
    if (list == NULL || !view_of(device, &view))
        return CALL(nvmlDeviceGetRunningProcessDetailList, device, list);
    list->count = 0;
    return 0;
}

EXPORT nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned pid, void *stats)
{
    struct view view;
    return view_of(device, &view) ? NVML_ERROR_NOT_FOUND : CALL(nvmlDeviceGetAccountingStats, device, pid, stats);
}

/* As the driver answers where nothing has worked lately. */
EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, void *samples, unsigned *count,
                                                    unsigned long long since)
{
    struct view view;
    if (count == NULL || !view_of(device, &view))
        return CALL(nvmlDeviceGetProcessUtilization, device, samples, count, since);
    *count = 0;
    return NVML_ERROR_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, struct utilisation *samples)
{
    struct view view;
    if (samples == NULL || !view_of(device, &view))
        return CALL(nvmlDeviceGetProcessesUtilizationInfo, device, samples);
    samples->count = 0;
    return NVML_ERROR_NOT_FOUND;
}

/* The driver takes the number for the node's: it is the container's. */
EXPORT nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length)
{
    char path[32], read_name[1024];
    if (name == NULL || length == 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? -1 : read(file, read_name, sizeof read_name - 1);
    if (file >= 0)
        close(file);
    if (got <= 0)
        return NVML_ERROR_NOT_FOUND;
    read_name[got] = '\0';
    snprintf(name, length, "%s", read_name);
    return 0;
}
