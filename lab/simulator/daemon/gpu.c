/* Readings, compute mode and reset of one GPU. */
#include "state.h"

#include <math.h>
#include <string.h>
#include <time.h>

#define BUSY_WINDOW 1.0 /* seconds over which work is averaged */

double now_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

struct gpu *gpu_at(uint32_t index)
{
    return index < sim.gpu_count ? &sim.gpus[index] : NULL;
}

/* Add work of the last `of` seconds to what has been done within the window. */
static void worked(double *busy, double *at, double seconds, double of)
{
    double now = now_seconds();
    *busy = *busy * exp(-(now - *at) / BUSY_WINDOW) + (of > BUSY_WINDOW ? seconds * BUSY_WINDOW / of : seconds);
    *at = now;
    if (*busy > BUSY_WINDOW)
        *busy = BUSY_WINDOW;
}

static unsigned percent_of_window(double busy)
{
    return (unsigned)(100.0 * busy / BUSY_WINDOW + 0.5);
}

void gpu_worked(struct gpu *gpu, double seconds)
{
    worked(&gpu->busy, &gpu->busy_at, seconds, seconds);
}

void context_worked(struct context *context, double seconds, double of)
{
    worked(&context->busy, &context->busy_at, seconds, of);
}

unsigned context_utilisation(struct context *context)
{
    context_worked(context, 0, 0);
    return percent_of_window(context->busy);
}

static unsigned utilisation(struct gpu *gpu)
{
    gpu_worked(gpu, 0);
    unsigned own = percent_of_window(gpu->busy);
    unsigned percent = own > gpu->load ? own : gpu->load;
    return percent > 100 ? 100 : percent;
}

/* Readings follow the utilisation in straight lines; they are plausible, not measured. */
void gpu_reading(struct gpu *gpu, struct sim_gpu *answer)
{
    work_off(gpu);
    unsigned percent = utilisation(gpu);
    double now = now_seconds();
    uint64_t used = gpu->allocated;
    *answer = gpu->info;
    for (uint32_t i = 0; i < gpu->gi_count; i++)
        used += gpu->gis[i].memory_used;
    answer->memory_used = used;
    answer->utilisation = percent;
    answer->memory_utilisation = percent * 6 / 10;
    answer->temperature = 30 + percent * 40 / 100;
    unsigned idle = answer->power_limit_mw / 6;
    answer->power_mw = idle + (unsigned)((uint64_t)(answer->power_limit_mw - idle) * percent * 9 / 1000);
    unsigned low = answer->sm_clock_max_mhz / 6;
    answer->sm_clock_mhz = percent == 0 && gpu->busy < 0.001 ? low : answer->sm_clock_max_mhz;
    gpu->energy_j += (now - gpu->energy_at) * answer->power_mw / 1000.0;
    gpu->energy_at = now;
    answer->energy_mj = (uint64_t)(gpu->energy_j * 1000.0);
}

uint32_t gpu_holders(uint32_t index, const struct client *except)
{
    uint32_t count = 0;
    for (int i = 0; i < sim.client_top; i++) {
        const struct client *client = &sim.clients[i];
        if (client->fd < 0 || client == except || (except != NULL && client->pid == except->pid))
            continue;
        bool holds = client->watched[index] != 0 || client->attached[index];
        for (int c = 0; c < MAX_CONTEXTS; c++)
            holds = holds || (client->contexts[c].used && client->contexts[c].gpu == index);
        count += holds;
    }
    return count;
}

int gpu_set_compute_mode(struct gpu *gpu, uint32_t mode)
{
    /* 1, "exclusive thread", left the driver with CUDA 8. */
    if (mode > 3)
        return SIM_ERR_INVALID_ARGUMENT;
    if (mode == 1)
        return SIM_ERR_NOT_SUPPORTED;
    gpu->info.compute_mode = mode;
    return 0;
}

int gpu_set_timeslice(struct gpu *gpu, uint32_t value)
{
    if (value > 3)
        return SIM_ERR_INVALID_ARGUMENT;
    gpu->info.timeslice = value;
    return 0;
}

static void forget_volatile(struct gpu *gpu)
{
    mig_clear(gpu);
    gpu->info.ecc_corrected_volatile = 0;
    gpu->info.ecc_uncorrected_volatile = 0;
    gpu->info.recovery = 0;
}

int gpu_reset(uint32_t index, const struct client *client)
{
    struct gpu *gpu = gpu_at(index);
    if (gpu->info.lost)
        return SIM_ERR_GPU_IS_LOST;
    if (gpu_holders(index, client) > 0)
        return SIM_ERR_IN_USE;
    forget_volatile(gpu);
    gpu->info.mig_mode = gpu->info.mig_pending;
    tree_update(index);
    modes_save();
    return 0;
}

void driver_reload(void)
{
    memory_limits_clear();
    for (uint32_t i = 0; i < sim.gpu_count; i++) {
        struct gpu *gpu = &sim.gpus[i];
        forget_volatile(gpu);
        gpu->info.mig_mode = gpu->mode_survives ? gpu->info.mig_pending : 0;
        gpu->info.mig_pending = gpu->info.mig_mode;
        gpu->info.compute_mode = 0;
        gpu->info.timeslice = 0;
        tree_update(i);
    }
    modes_save();
}
