/* Which GPUs a command is about: all, or those named by index, UUID or bus address. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "smi.h"

static bool add(struct selection *gpus, unsigned index, nvmlDevice_t device, nvmlReturn_t status)
{
    if (gpus->count == MAX_GPUS)
        return false;
    gpus->index[gpus->count] = index;
    gpus->device[gpus->count] = device;
    gpus->status[gpus->count++] = status;
    return true;
}

static bool same_gpu(nvmlDevice_t device, const char *uuid, const char *bus)
{
    char own[96];
    nvmlPciInfo_t pci;
    if (uuid != NULL)
        return lib.nvmlDeviceGetUUID(device, own, sizeof own) == 0 && strcasecmp(own, uuid) == 0;
    nvmlDevice_t named;
    return lib.nvmlDeviceGetHandleByPciBusId_v2(bus, &named) == 0 && bus_of(device, &pci) == 0 &&
           named == device;
}

static bool add_named(struct selection *gpus, const char *name, unsigned count)
{
    char *end;
    unsigned long index = strtoul(name, &end, 10);
    if (*name != '\0' && *end == '\0' && index < count) {
        nvmlDevice_t device = NULL;
        nvmlReturn_t status = lib.nvmlDeviceGetHandleByIndex_v2((unsigned)index, &device);
        return add(gpus, (unsigned)index, device, status);
    }
    for (unsigned i = 0; i < count; i++) {
        nvmlDevice_t device;
        if (lib.nvmlDeviceGetHandleByIndex_v2(i, &device) == 0 &&
            (same_gpu(device, name, NULL) || (strchr(name, ':') && same_gpu(device, NULL, name))))
            return add(gpus, i, device, 0);
    }
    printf("No devices were found\n");
    return false;
}

bool select_gpus(const char *wanted, struct selection *gpus)
{
    unsigned count = 0;
    gpus->count = 0;
    nvmlReturn_t status = lib.nvmlDeviceGetCount_v2(&count);
    if (status != 0) {
        fprintf(stderr, "Failed to count GPUs: %s\n", lib.nvmlErrorString(status));
        return false;
    }
    if (wanted != NULL) {
        char *copy = strdup(wanted), *rest = NULL;
        bool sound = copy != NULL;
        for (char *name = sound ? strtok_r(copy, ",", &rest) : NULL; name != NULL && sound;
             name = strtok_r(NULL, ",", &rest))
            sound = add_named(gpus, name, count);
        free(copy);
        return sound;
    }
    for (unsigned i = 0; i < count; i++) {
        nvmlDevice_t device = NULL;
        status = lib.nvmlDeviceGetHandleByIndex_v2(i, &device);
        add(gpus, i, device, status);
    }
    if (count == 0)
        printf("No devices were found\n");
    return count > 0;
}

nvmlReturn_t bus_of(nvmlDevice_t gpu, nvmlPciInfo_t *pci)
{
    return lib.nvmlDeviceGetPciInfo_v3(gpu, pci);
}
