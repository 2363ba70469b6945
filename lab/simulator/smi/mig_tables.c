/* nvidia-smi mig: the lists. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "smi.h"

#define COMPUTE_INSTANCE_PROFILES 7
#define MAX_INSTANCES 16

const char *short_name(const nvmlGpuInstanceProfileInfo_v2_t *info)
{
    return strncmp(info->name, "MIG ", 4) == 0 ? info->name + 4 : info->name;
}

bool gpu_profile(nvmlDevice_t gpu, unsigned number, nvmlGpuInstanceProfileInfo_v2_t *info)
{
    memset(info, 0, sizeof *info);
    info->version = NVML_VERSION(nvmlGpuInstanceProfileInfo_v2_t, 2);
    return lib.nvmlDeviceGetGpuInstanceProfileInfoV(gpu, number, info) == 0;
}

bool mig_is_on(nvmlDevice_t gpu)
{
    unsigned current = 0, pending = 0;
    return lib.nvmlDeviceGetMigMode(gpu, &current, &pending) == 0 && current;
}

int nothing(const char *what)
{
    printf("No %s found: Not Found\n", what);
    return 6;
}

struct found_instance *chosen_instances(const struct selection *gpus, const char *wanted, unsigned *count)
{
    static struct found_instance found[MAX_GPUS * MAX_INSTANCES];
    *count = 0;
    for (unsigned i = 0; i < gpus->count; i++)
        for (unsigned number = 0; gpus->status[i] == 0 && number < GPU_INSTANCE_PROFILES; number++) {
            nvmlGpuInstanceProfileInfo_v2_t info;
            nvmlGpuInstance_t handles[MAX_INSTANCES];
            unsigned made = MAX_INSTANCES;
            if (!gpu_profile(gpus->device[i], number, &info) ||
                lib.nvmlDeviceGetGpuInstances(gpus->device[i], info.id, handles, &made) != 0)
                continue;
            for (unsigned m = 0; m < made && *count < sizeof found / sizeof *found; m++) {
                struct found_instance *gi = &found[*count];
                *gi = (struct found_instance){.gpu = gpus->index[i], .handle = handles[m], .profile = info};
                if (lib.nvmlGpuInstanceGetInfo(handles[m], &gi->info) == 0 && chosen(wanted, gi->info.id))
                    ++*count;
            }
        }
    return found;
}

int mig_list_profiles(const struct selection *gpus)
{
    static const char rule[] =
        "+-----------------------------------------------------------------------------+";
    bool any = false;
    for (unsigned i = 0; i < gpus->count; i++)
        for (unsigned number = 0; gpus->status[i] == 0 && number < GPU_INSTANCE_PROFILES; number++) {
            nvmlGpuInstanceProfileInfo_v2_t info;
            unsigned room = 0;
            if (!gpu_profile(gpus->device[i], number, &info))
                continue;
            if (!any) {
                puts(rule);
                puts("| GPU instance profiles:                                                      |");
                puts("| GPU   Name             ID    Instances   Memory     P2P    SM    DEC   ENC  |");
                puts("|                              Free/Total   GiB              CE    JPEG  OFA  |");
                puts("|=============================================================================|");
            }
            any = true;
            lib.nvmlDeviceGetGpuInstanceRemainingCapacity(gpus->device[i], info.id, &room);
            printf("| %3u  MIG %-12s %3u   %3u/%-3u  %9.2f       %-3s  %4u  %4u  %4u   |\n", gpus->index[i],
                   short_name(&info), info.id, room, info.instanceCount,
                   (double)info.memorySizeMB / 1024.0, info.isP2pSupported ? "Yes" : "No",
                   info.multiprocessorCount, info.decoderCount, info.encoderCount);
            printf("|                                                          %4u  %4u  %4u   |\n",
                   info.copyEngineCount, info.jpegCount, info.ofaCount);
            puts(rule);
        }
    if (!any)
        puts("No MIG-supported devices found.");
    return any ? 0 : 6;
}

int mig_list_placements(const struct selection *gpus)
{
    bool any = false;
    for (unsigned i = 0; i < gpus->count; i++)
        for (unsigned number = 0; gpus->status[i] == 0 && number < GPU_INSTANCE_PROFILES; number++) {
            nvmlGpuInstanceProfileInfo_v2_t info;
            nvmlGpuInstancePlacement_t places[64];
            unsigned count = 0;
            if (!gpu_profile(gpus->device[i], number, &info) ||
                lib.nvmlDeviceGetGpuInstancePossiblePlacements_v2(gpus->device[i], info.id, NULL, &count) != 0 ||
                count == 0 || count > 64 ||
                lib.nvmlDeviceGetGpuInstancePossiblePlacements_v2(gpus->device[i], info.id, places, &count) != 0)
                continue;
            any = true;
            printf("GPU %2u Profile ID %2u Placement%s: {", gpus->index[i], info.id, count > 1 ? "s" : " ");
            for (unsigned p = 0; p < count; p++)
                printf("%s%u", p ? "," : "", places[p].start);
            printf("}:%u\n", places[0].size);
        }
    if (!any)
        puts("No MIG-supported devices found.");
    return any ? 0 : 6;
}

int mig_list_instances(const struct selection *gpus)
{
    unsigned count;
    const struct found_instance *found = chosen_instances(gpus, NULL, &count);
    if (count == 0)
        return nothing("GPU instances");
    puts("+-------------------------------------------------------+");
    puts("| GPU instances:                                        |");
    puts("| GPU   Name             Profile  Instance   Placement  |");
    puts("|                          ID       ID       Start:Size |");
    puts("|=======================================================|");
    for (const struct found_instance *gi = found; gi < found + count; gi++) {
        printf("| %3u  MIG %-12s %5u     %4u      %5u:%-4u  |\n", gi->gpu, short_name(&gi->profile),
               gi->info.profileId, gi->info.id, gi->info.placement.start, gi->info.placement.size);
        puts("+-------------------------------------------------------+");
    }
    return 0;
}

bool chosen(const char *list, unsigned id)
{
    if (list == NULL)
        return true;
    for (const char *at = list; *at != '\0';) {
        char *end;
        unsigned long number = strtoul(at, &end, 10);
        if (end == at)
            return false;
        if (number == id)
            return true;
        at = *end == ',' ? end + 1 : end;
    }
    return false;
}

void compute_name(const struct found_instance *gi, unsigned slices, char *name, size_t size)
{
    if (slices == gi->profile.sliceCount)
        snprintf(name, size, "%s", short_name(&gi->profile));
    else
        snprintf(name, size, "%uc.%s", slices, short_name(&gi->profile));
}

int mig_list_compute_profiles(const struct selection *gpus, const char *wanted)
{
    bool any = false;
    unsigned count;
    const struct found_instance *found = chosen_instances(gpus, wanted, &count);
    for (const struct found_instance *gi = found; gi < found + count; gi++)
        for (unsigned number = 0; number < COMPUTE_INSTANCE_PROFILES; number++) {
            nvmlComputeInstanceProfileInfo_t info;
            unsigned room = 0;
            char name[48];
            if (lib.nvmlGpuInstanceGetComputeInstanceProfileInfo(gi->handle, number, 0, &info) != 0)
                continue;
            if (!any) {
                puts("+--------------------------------------------------------------------------------------+");
                puts("| Compute instance profiles:                                                           |");
                puts("| GPU     GPU       Name             Profile  Instances   Exclusive       Shared       |");
                puts("|       Instance                       ID     Free/Total     SM       DEC   ENC   OFA  |");
                puts("|         ID                                                          CE    JPEG       |");
                puts("|======================================================================================|");
            }
            any = true;
            lib.nvmlGpuInstanceGetComputeInstanceRemainingCapacity(gi->handle, info.id, &room);
            compute_name(gi, info.sliceCount, name, sizeof name);
            printf("| %3u    %3u       MIG %-14s %3u%-2s  %3u/%-3u        %4u      %4u  %4u  %4u   |\n", gi->gpu,
                   gi->info.id, name, info.id, info.sliceCount == gi->profile.sliceCount ? "*" : "", room,
                   info.instanceCount, info.multiprocessorCount, info.sharedDecoderCount,
                   info.sharedEncoderCount, info.sharedOfaCount);
            printf("|                                                                   %4u  %4u         |\n",
                   info.sharedCopyEngineCount, info.sharedJpegCount);
            puts("+--------------------------------------------------------------------------------------+");
        }
    return any ? 0 : nothing("GPU instances");
}

int mig_list_compute_instances(const struct selection *gpus, const char *wanted)
{
    bool any = false, on = false;
    unsigned count;
    const struct found_instance *found = chosen_instances(gpus, wanted, &count);
    for (unsigned i = 0; i < gpus->count; i++)
        on = on || (gpus->status[i] == 0 && mig_is_on(gpus->device[i]));
    for (const struct found_instance *gi = found; gi < found + count; gi++)
        for (unsigned number = 0; number < COMPUTE_INSTANCE_PROFILES; number++) {
            nvmlComputeInstanceProfileInfo_t info;
            nvmlComputeInstance_t handles[16];
            unsigned have = 16;
            if (lib.nvmlGpuInstanceGetComputeInstanceProfileInfo(gi->handle, number, 0, &info) != 0 ||
                lib.nvmlGpuInstanceGetComputeInstances(gi->handle, info.id, handles, &have) != 0)
                continue;
            for (unsigned c = 0; c < have; c++) {
                nvmlComputeInstanceInfo_t ci;
                char name[48];
                if (lib.nvmlComputeInstanceGetInfo_v2(handles[c], &ci) != 0)
                    continue;
                if (!any) {
                    puts("+--------------------------------------------------------------------+");
                    puts("| Compute instances:                                                 |");
                    puts("| GPU     GPU       Name             Profile   Instance   Placement  |");
                    puts("|       Instance                       ID        ID       Start:Size |");
                    puts("|         ID                                                         |");
                    puts("|====================================================================|");
                }
                any = true;
                compute_name(gi, info.sliceCount, name, sizeof name);
                printf("| %3u    %3u       MIG %-14s %3u       %4u      %5u:%-4u |\n", gi->gpu, gi->info.id, name,
                       ci.profileId, ci.id, ci.placement.start, ci.placement.size);
                puts("+--------------------------------------------------------------------+");
            }
        }
    if (!on)
        puts("No MIG-enabled devices found.");
    return any ? 0 : on ? nothing("compute instances") : 6;
}
