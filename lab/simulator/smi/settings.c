/* Changes of a GPU's settings: -mig, -c, compute-policy, --gpu-reset. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "smi.h"

static const char *bus(nvmlDevice_t gpu)
{
    static nvmlPciInfo_t pci;
    return bus_of(gpu, &pci) == 0 ? pci.busId : "?";
}

static int early_end(const char *what, nvmlDevice_t gpu, nvmlReturn_t status)
{
    printf("Unable to %s for GPU %s: %s\n", what, bus(gpu), lib.nvmlErrorString(status));
    puts("Terminating early due to previous error.");
    return status > 255 ? 255 : status;
}

int set_mig_mode(const struct selection *gpus, const char *value)
{
    bool enable = strcmp(value, "1") == 0 || strcasecmp(value, "enabled") == 0;
    if (!enable && strcmp(value, "0") != 0 && strcasecmp(value, "disabled") != 0) {
        printf("Invalid MIG mode: %s\n", value);
        return 2;
    }
    for (unsigned i = 0; i < gpus->count; i++) {
        nvmlReturn_t activation = 0, status = gpus->status[i];
        if (status == 0)
            status = lib.nvmlDeviceSetMigMode(gpus->device[i], enable, &activation);
        if (status != 0)
            return early_end(enable ? "enable MIG Mode" : "disable MIG Mode", gpus->device[i], status);
        if (activation != 0)
            printf("Warning: MIG mode is in pending %s state for GPU %s:%s\nReboot the system or try "
                   "nvidia-smi --gpu-reset to make MIG mode effective on GPU %s\n",
                   enable ? "enable" : "disable", bus(gpus->device[i]), lib.nvmlErrorString(activation),
                   bus(gpus->device[i]));
        else
            printf("%s MIG Mode for GPU %s\n", enable ? "Enabled" : "Disabled", bus(gpus->device[i]));
    }
    puts("All done.");
    return 0;
}

int set_compute_mode(const struct selection *gpus, const char *value)
{
    static const char *const names[] = {"DEFAULT", "EXCLUSIVE_THREAD", "PROHIBITED", "EXCLUSIVE_PROCESS"};
    unsigned mode = 4;
    for (unsigned i = 0; i < 4; i++)
        if (strcasecmp(value, names[i]) == 0 || (value[0] == (char)('0' + i) && value[1] == '\0'))
            mode = i;
    if (mode == 4) {
        printf("Invalid compute mode: %s\n", value);
        return 2;
    }
    for (unsigned i = 0; i < gpus->count; i++) {
        nvmlReturn_t status = gpus->status[i];
        if (status == 0)
            status = lib.nvmlDeviceSetComputeMode(gpus->device[i], mode);
        if (status != 0)
            return early_end("set the compute mode", gpus->device[i], status);
        printf("Set compute mode to %s for GPU %s.\n", names[mode], bus(gpus->device[i]));
    }
    puts("All done.");
    return 0;
}

static const char *const timeslices[] = {"Default", "Short", "Medium", "Long"};

int set_timeslice(const struct selection *gpus, const char *value)
{
    if (value[0] < '0' || value[0] > '3' || value[1] != '\0') {
        printf("Invalid timeslice: %s\n", value);
        return 2;
    }
    unsigned wanted = (unsigned)(value[0] - '0');
    for (unsigned i = 0; i < gpus->count; i++) {
        nvmlReturn_t status = gpus->status[i];
        if (status == 0)
            status = lib.divvySimulatedSetTimeslice(gpus->device[i], wanted);
        if (status != 0)
            return early_end("set the timeslice", gpus->device[i], status);
        printf("Set timeslice to %s for GPU %s.\n", timeslices[wanted], bus(gpus->device[i]));
    }
    puts("All done.");
    return 0;
}

int list_compute_policies(const struct selection *gpus)
{
    for (unsigned i = 0; i < gpus->count; i++) {
        unsigned value = 0;
        nvmlReturn_t status = gpus->status[i];
        if (status == 0)
            status = lib.divvySimulatedGetTimeslice(gpus->device[i], &value);
        if (status != 0)
            return early_end("read the timeslice", gpus->device[i], status);
        printf("GPU %s: timeslice %s\n", bus(gpus->device[i]), timeslices[value & 3]);
    }
    return 0;
}

int reset_gpus(const struct selection *gpus)
{
    for (unsigned i = 0; i < gpus->count; i++) {
        nvmlReturn_t status = gpus->status[i];
        if (status == 0)
            status = lib.divvySimulatedReset(gpus->device[i]);
        if (status != 0) {
            printf("The following GPUs could not be reset:\n  GPU %s: %s\n",
                   gpus->status[i] == 0 ? bus(gpus->device[i]) : "?", lib.nvmlErrorString(status));
            return status > 255 ? 255 : status;
        }
        printf("GPU %s was successfully reset.\n", bus(gpus->device[i]));
    }
    puts("All done.");
    return 0;
}
