/* memory-limits: what control groups may take of a GPU, in MiB. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "smi.h"

#define NO_LIMIT UINT64_MAX

static int failed(const char *what, nvmlReturn_t status)
{
    printf("Unable to %s memory limits: %s\n", what, lib.nvmlErrorString(status));
    return status > 255 ? 255 : status;
}

/* Bytes of a number of MiB, or of "max"; false if it is neither. */
static bool read_limit(const char *word, unsigned long long *bytes)
{
    char *end;
    if (strcasecmp(word, "max") == 0) {
        *bytes = NO_LIMIT;
        return true;
    }
    unsigned long long mib = strtoull(word, &end, 10);
    *bytes = mib << 20;
    return *word >= '0' && *word <= '9' && *end == '\0' && mib <= NO_LIMIT >> 20;
}

int set_memory_limits(const struct selection *gpus, const char *group, const char *soft, const char *hard)
{
    nvmlSetMemoryLimits_v1_t limits = {.nameSpace = group};
    if (!read_limit(soft, &limits.softLimit) || !read_limit(hard, &limits.hardLimit)) {
        printf("Invalid memory limit: %s, %s\n", soft, hard);
        return 2;
    }
    for (unsigned i = 0; i < gpus->count; i++) {
        nvmlReturn_t status = gpus->status[i];
        if (status == 0)
            status = lib.nvmlDeviceSetMemoryLimits_v1(gpus->device[i], &limits);
        if (status != 0)
            return failed("set", status);
    }
    puts("All done.");
    return 0;
}

static void print_limit(const char *name, unsigned long long bytes)
{
    if (bytes == NO_LIMIT)
        printf("%s: max\n", name);
    else
        printf("%s: %llu MiB\n", name, bytes >> 20);
}

int get_memory_limits(const struct selection *gpus, const char *group)
{
    for (unsigned i = 0; i < gpus->count; i++) {
        nvmlGetMemoryLimits_v1_t limits = {.nameSpace = group};
        nvmlReturn_t status = gpus->status[i];
        if (status == 0)
            status = lib.nvmlDeviceGetMemoryLimits_v1(gpus->device[i], &limits);
        if (status != 0)
            return failed("get", status);
        printf("namespace: %s\n", group);
        print_limit("soft limit", limits.softLimit);
        print_limit("hard limit", limits.hardLimit);
        print_limit("current used", limits.currentUsed);
    }
    return 0;
}
