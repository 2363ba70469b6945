/* nvidia-smi -L */
#include <stdio.h>
#include <string.h>

#include "smi.h"

void mig_short_name(nvmlDevice_t mig, char *name, unsigned size)
{
    char whole[160] = "";
    const char *part = NULL;
    if (lib.nvmlDeviceGetName(mig, whole, sizeof whole) == 0)
        part = strstr(whole, " MIG ");
    snprintf(name, size, "%s", part == NULL ? "?" : part + 5);
}

static void list_mig(nvmlDevice_t gpu)
{
    unsigned most = 0;
    if (lib.nvmlDeviceGetMaxMigDeviceCount(gpu, &most) != 0)
        return;
    for (unsigned i = 0; i < most; i++) {
        nvmlDevice_t mig;
        char name[64], uuid[96] = "?";
        if (lib.nvmlDeviceGetMigDeviceHandleByIndex(gpu, i, &mig) != 0)
            continue;
        mig_short_name(mig, name, sizeof name);
        lib.nvmlDeviceGetUUID(mig, uuid, sizeof uuid);
        printf("  MIG %-11s Device %2u: (UUID: %s)\n", name, i, uuid);
    }
}

int list_gpus(const struct selection *gpus)
{
    for (unsigned i = 0; i < gpus->count; i++) {
        char name[96] = "?", uuid[96] = "?";
        nvmlDevice_t gpu = gpus->device[i];
        if (gpus->status[i] != 0) {
            printf("Unable to determine the device handle for gpu %u: %s\n", gpus->index[i],
                   lib.nvmlErrorString(gpus->status[i]));
            continue;
        }
        lib.nvmlDeviceGetName(gpu, name, sizeof name);
        lib.nvmlDeviceGetUUID(gpu, uuid, sizeof uuid);
        printf("GPU %u: %s (UUID: %s)\n", gpus->index[i], name, uuid);
        list_mig(gpu);
    }
    return 0;
}
