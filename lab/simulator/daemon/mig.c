/* The MIG tree: mode, GPU instances by memory-slice placement, compute instances. */
#include "state.h"

#include <stdio.h>
#include <string.h>

/* NVML_COMPUTE_INSTANCE_PROFILE_* → compute slices; 0 where Divvy's models have none. */
static const uint32_t ci_slices[] = {1, 2, 3, 4, 7, 8, 6};

struct sim_gpu_instance *gi_at(struct gpu *gpu, uint32_t id)
{
    for (uint32_t i = 0; i < gpu->gi_count; i++)
        if (gpu->gis[i].id == id)
            return &gpu->gis[i];
    return NULL;
}

struct sim_compute_instance *ci_at(struct sim_gpu_instance *gi, uint32_t id)
{
    for (uint32_t i = 0; i < gi->ci_count; i++)
        if (gi->ci[i].id == id)
            return &gi->ci[i];
    return NULL;
}

static bool overlap(uint32_t a, uint32_t a_size, uint32_t b, uint32_t b_size)
{
    return a < b + b_size && b < a + a_size;
}

/* The decoders of the whole card; without a profile that takes it all they are not known. */
static uint32_t all_decoders(const struct gpu *gpu)
{
    for (uint32_t i = 0; i < gpu->info.profile_count; i++)
        if (gpu->profiles[i].memory_slices == gpu->info.memory_slices)
            return gpu->profiles[i].decoders;
    return UINT32_MAX;
}

static bool fits(const struct gpu *gpu, const struct sim_profile *profile, uint32_t start)
{
    uint32_t slices = profile->compute_slices, decoders = profile->decoders;
    for (uint32_t i = 0; i < gpu->gi_count; i++) {
        const struct sim_gpu_instance *gi = &gpu->gis[i];
        const struct sim_profile *other = &gpu->profiles[gi->profile_index];
        if (overlap(start, profile->memory_slices, gi->placement.start, gi->placement.size))
            return false;
        if (profile->media_extensions && other->media_extensions)
            return false;
        slices += other->compute_slices;
        decoders += other->decoders;
    }
    return slices <= gpu->info.compute_slices &&
           (profile->decoders == 0 || decoders <= all_decoders(gpu));
}

/* How many more instances of a profile fit: greedy over its starts, which is exact because the
 * starts of one profile are disjoint blocks of its own size. */
uint32_t profile_room(const struct gpu *gpu, const struct sim_profile *profile)
{
    uint32_t slices = 0, room = 0, have = 0;
    for (uint32_t i = 0; i < gpu->gi_count; i++) {
        slices += gpu->profiles[gpu->gis[i].profile_index].compute_slices;
        have += gpu->gis[i].profile_index == profile->index;
    }
    for (uint32_t s = 0; s < profile->start_count; s++)
        if (fits(gpu, profile, profile->starts[s])) {
            room++;
            slices += profile->compute_slices;
            if (slices + profile->compute_slices > gpu->info.compute_slices || profile->media_extensions)
                break;
        }
    uint32_t most = profile->max_count > have ? profile->max_count - have : 0;
    return room < most ? room : most;
}

/* Identifiers as the driver gives them: by size, the lowest free one. */
static uint32_t free_gi_id(struct gpu *gpu, const struct sim_profile *profile)
{
    uint32_t all = gpu->info.memory_slices, size = profile->memory_slices;
    uint32_t first = size == all ? 0 : size * 2 >= all ? 1 : size * 4 >= all ? 3 : 7;
    for (uint32_t id = first; id < SIM_MAX_GIS; id++)
        if (gi_at(gpu, id) == NULL)
            return id;
    return SIM_NO_ID;
}

static const struct sim_profile *profile_by_id(const struct gpu *gpu, uint32_t id)
{
    for (uint32_t i = 0; i < gpu->info.profile_count; i++)
        if (gpu->profiles[i].id == id)
            return &gpu->profiles[i];
    return NULL;
}

int mig_create_gi(struct gpu *gpu, struct sim_instance_change *change)
{
    if (!gpu->info.mig_mode)
        return SIM_ERR_NOT_SUPPORTED;
    const struct sim_profile *profile = profile_by_id(gpu, change->profile);
    if (profile == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    uint32_t start = SIM_NO_ID;
    if (change->start == SIM_NO_ID) {
        for (uint32_t s = 0; s < profile->start_count && start == SIM_NO_ID; s++) {
            /* Halves are given out from the back, so that the front stays free for 4g. */
            bool half = profile->memory_slices * 2 == gpu->info.memory_slices;
            uint32_t at = profile->starts[half ? profile->start_count - 1 - s : s];
            if (fits(gpu, profile, at))
                start = at;
        }
    } else {
        bool allowed = false;
        for (uint32_t s = 0; s < profile->start_count; s++)
            allowed = allowed || profile->starts[s] == change->start;
        if (!allowed || change->size != profile->memory_slices)
            return SIM_ERR_INVALID_ARGUMENT;
        if (fits(gpu, profile, change->start))
            start = change->start;
    }
    if (start == SIM_NO_ID || profile_room(gpu, profile) == 0 || gpu->gi_count == SIM_MAX_GIS)
        return SIM_ERR_INSUFFICIENT_RESOURCES;
    uint32_t id = free_gi_id(gpu, profile);
    if (id == SIM_NO_ID)
        return SIM_ERR_INSUFFICIENT_RESOURCES;
    gpu->gis[gpu->gi_count++] = (struct sim_gpu_instance){
        .id = id,
        .profile_index = profile->index,
        .placement = {start, profile->memory_slices},
        .serial = ++sim.next_serial,
        .memory_total = profile->memory_mib << 20,
    };
    *change = (struct sim_instance_change){.gpu = gpu->info.index, .gi = id, .ci = SIM_NO_ID,
        .profile = profile->id, .start = start, .size = profile->memory_slices,
        .serial = sim.next_serial};
    return 0;
}

int mig_destroy_gi(struct gpu *gpu, const struct sim_instance_change *change)
{
    struct sim_gpu_instance *gi = gi_at(gpu, change->gi);
    if (gi == NULL || gi->serial != change->serial)
        return SIM_ERR_NOT_FOUND;
    if (gi->ci_count > 0)
        return SIM_ERR_IN_USE;
    *gi = gpu->gis[--gpu->gi_count];
    return 0;
}

/* UUIDs are made from the GPU's and a serial number: repeatable, and new at each creation. */
static void mig_uuid(const struct gpu *gpu, uint64_t serial, char *uuid, size_t size)
{
    uint64_t hash[2] = {0xcbf29ce484222325u, 0x84222325cbf29ce4u};
    for (int half = 0; half < 2; half++) {
        for (const char *at = gpu->info.uuid; *at != '\0'; at++)
            hash[half] = (hash[half] ^ (uint8_t)*at) * 0x100000001b3u;
        hash[half] = (hash[half] ^ serial) * 0x9e3779b97f4a7c15u;
        hash[half] ^= hash[half] >> 29;
        hash[half] *= 0xbf58476d1ce4e5b9u;
        hash[half] ^= hash[half] >> 32;
    }
    snprintf(uuid, size, "MIG-%08x-%04x-5%03x-%04x-%012llx", (unsigned)(hash[0] >> 32),
             (unsigned)(hash[0] >> 16) & 0xffff, (unsigned)hash[0] & 0xfff,
             0x8000u | ((unsigned)(hash[1] >> 48) & 0x3fff),
             (unsigned long long)(hash[1] & 0xffffffffffffu));
}

static uint32_t ci_sms(const struct sim_profile *profile, uint32_t slices)
{
    return slices == profile->compute_slices ? profile->sms
                                             : slices * (profile->sms / profile->compute_slices);
}

int mig_create_ci(struct gpu *gpu, struct sim_instance_change *change)
{
    struct sim_gpu_instance *gi = gi_at(gpu, change->gi);
    if (gi == NULL)
        return SIM_ERR_NOT_FOUND;
    const struct sim_profile *profile = &gpu->profiles[gi->profile_index];
    if (change->profile >= sizeof ci_slices / sizeof *ci_slices)
        return SIM_ERR_INVALID_ARGUMENT;
    uint32_t slices = ci_slices[change->profile], all = profile->compute_slices;
    if (slices > all || slices > 4) {
        if (slices != all)
            return SIM_ERR_NOT_SUPPORTED;
    }
    if (gi->ci_count == SIM_MAX_CIS)
        return SIM_ERR_INSUFFICIENT_RESOURCES;
    /* Two slices start at even places, three and four at 0 or 4. */
    uint32_t step = slices == 1 ? 1 : slices == 2 ? 2 : 4, start = SIM_NO_ID;
    for (uint32_t at = 0; at + slices <= all && start == SIM_NO_ID; at += step) {
        bool free_here = change->start == SIM_NO_ID || change->start == at;
        for (uint32_t i = 0; i < gi->ci_count; i++)
            free_here = free_here && !overlap(at, slices, gi->ci[i].start, gi->ci[i].slices);
        if (free_here)
            start = at;
    }
    if (start == SIM_NO_ID)
        return SIM_ERR_INSUFFICIENT_RESOURCES;
    uint32_t id = 0;
    while (ci_at(gi, id) != NULL)
        id++;
    struct sim_compute_instance *ci = &gi->ci[gi->ci_count++];
    *ci = (struct sim_compute_instance){.id = id, .profile = change->profile, .slices = slices,
        .start = start, .sms = ci_sms(profile, slices), .serial = ++sim.next_serial};
    mig_uuid(gpu, ci->serial, ci->uuid, sizeof ci->uuid);
    change->ci = id;
    change->start = start;
    change->size = slices;
    change->serial = ci->serial;
    return 0;
}

int mig_destroy_ci(struct gpu *gpu, const struct sim_instance_change *change)
{
    struct sim_gpu_instance *gi = gi_at(gpu, change->gi);
    struct sim_compute_instance *ci = gi == NULL ? NULL : ci_at(gi, change->ci);
    if (ci == NULL || ci->serial != change->serial)
        return SIM_ERR_NOT_FOUND;
    if (instance_in_use(gi->serial, ci->serial))
        return SIM_ERR_IN_USE;
    *ci = gi->ci[--gi->ci_count];
    return 0;
}

void mig_clear(struct gpu *gpu)
{
    gpu->gi_count = 0;
}

int mig_set_mode(uint32_t index, uint32_t mode, const struct client *client, int32_t *activation)
{
    struct gpu *gpu = gpu_at(index);
    *activation = 0;
    if (mode > 1)
        return SIM_ERR_INVALID_ARGUMENT;
    if (!gpu->info.mig_capable)
        return SIM_ERR_NOT_SUPPORTED;
    if (mode == gpu->info.mig_mode) {
        gpu->info.mig_pending = mode;
        modes_save(); /* a change that waited for a reset or a boot is taken back */
        return 0;
    }
    if (gpu->gi_count > 0)
        return SIM_ERR_IN_USE;
    gpu->info.mig_pending = mode;
    if (gpu_holders(index, client) > 0)
        *activation = SIM_ERR_IN_USE;
    else if (gpu->no_activation && gpu->mode_needs_reset)
        *activation = SIM_ERR_NOT_SUPPORTED;
    else
        gpu->info.mig_mode = mode;
    if (*activation != 0 && !gpu->mode_needs_reset) {
        /* Without a reset there is nothing that could make it effective later. */
        gpu->info.mig_pending = gpu->info.mig_mode;
        return *activation;
    }
    modes_save();
    return 0;
}
