#include "library.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "../common/version.h"

struct nvml_library lib;

static nvmlReturn_t absent(void)
{
    return SIM_ERR_NOT_SUPPORTED;
}

static void find(void *handle, const char *name, void *slot)
{
    void *symbol = dlsym(handle, name);
    nvmlReturn_t (*fallback)(void) = absent;
    if (symbol != NULL)
        memcpy(slot, &symbol, sizeof symbol);
    else
        memcpy(slot, &fallback, sizeof fallback);
}

bool library_load(void)
{
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1", sim_root());
    void *handle = dlopen(path, RTLD_NOW);
    if (handle == NULL)
        handle = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (handle == NULL) {
        fprintf(stderr, "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please "
                        "make sure that the NVIDIA Display Driver is properly installed and "
                        "present in your system.\n");
        return false;
    }
#define FIND(name, parameters) find(handle, #name, &lib.name);
    NVML_FUNCTIONS(FIND)
#undef FIND
    lib.simulated = dlsym(handle, "divvySimulated") != NULL;
    lib.has_memory_limits = dlsym(handle, "nvmlDeviceSetMemoryLimits_v1") != NULL;
    void *text = dlsym(handle, "nvmlErrorString");
    if (text == NULL)
        return false;
    memcpy(&lib.nvmlErrorString, &text, sizeof text);
    return true;
}
