/* Launches, the new way and the old. */
#include <stdlib.h>
#include <string.h>

#include "streams.h"

#define EXTRA_BUFFER ((void *)1)
#define EXTRA_SIZE ((void *)2)

#define XID_GRAPHICS_EXCEPTION 13
#define XID_MEMORY_FAULT 31

static bool find_allocation(void *unused, uint64_t address, uint64_t *begin, uint64_t *end)
{
    (void)unused;
    const struct allocation *found = memory_at(address);
    if (found == NULL)
        return false;
    *begin = found->begin;
    *end = found->begin + found->size;
    return true;
}

CUresult launch_check(const struct launch *launch)
{
    CUfunction f = launch->function;
    const unsigned *grid = launch->grid, *block = launch->block;
    unsigned shared = launch->shared;
    if (!function_is_known(f))
        return CUDA_ERROR_INVALID_HANDLE;
    for (int i = 0; i < 3; i++)
        if (grid[i] == 0 || block[i] == 0 || block[i] > (i == 2 ? 64u : 1024u) ||
            grid[i] > (i == 0 ? 2147483647u : 65535u))
            return CUDA_ERROR_INVALID_VALUE;
    if (block[0] * block[1] * block[2] > f->facts.max_threads)
        return CUDA_ERROR_INVALID_VALUE;
    return shared > f->max_dynamic_shared ? CUDA_ERROR_INVALID_VALUE : 0;
}

static CUresult failure(CUcontext context, enum ptx_stop stop)
{
    CUresult result;
    uint64_t xid = XID_GRAPHICS_EXCEPTION;
    switch (stop) {
    case PTX_DONE:
        return 0;
    case PTX_ILLEGAL_ADDRESS:
        result = CUDA_ERROR_ILLEGAL_ADDRESS;
        xid = XID_MEMORY_FAULT;
        break;
    case PTX_MISALIGNED:
        result = CUDA_ERROR_MISALIGNED_ADDRESS;
        break;
    case PTX_TRAP:
        result = CUDA_ERROR_LAUNCH_FAILED;
        break;
    case PTX_ASSERT:
        result = CUDA_ERROR_ASSERT;
        break;
    default:
        return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    }
    const struct device *device = context->device;
    struct sim_fault_order report = {.gpu = device->gpu.index, .value = xid, .gi = device->gi, .ci = device->ci};
    driver_call(SIM_REPORT_XID, &report, sizeof report, 0);
    /* As on a GPU, which runs behind the caller: the next call hears of it. */
    context->error = result;
    return 0;
}

CUresult launch_run(CUcontext context, const struct launch *wanted)
{
    static uint64_t launches;
    const unsigned *grid = wanted->grid, *block = wanted->block;
    struct sim_gpu now = {.index = context->device->gpu.index};
    CUresult result = driver_call(SIM_GPU, &now, sizeof now, 0);
    if (result != 0)
        return result;
    if (now.lost)
        return context->error = CUDA_ERROR_UNKNOWN;
    launches++;
    struct ptx_launch launch = {.kernel = wanted->function->kernel, .grid = {grid[0], grid[1], grid[2]},
        .block = {block[0], block[1], block[2]}, .dynamic_shared = wanted->shared, .parameters = wanted->parameters,
        .allocation = find_allocation, .spoil = now.bad_arithmetic ? launches * 2654435761u : 0};
    double begin = driver_seconds();
    enum ptx_stop stop = ptx_run(&launch);
    struct sim_busy busy = {.gpu = now.index,
                            .nanoseconds = (uint64_t)((driver_seconds() - begin) * 1e9)};
    driver_tell(SIM_BUSY, &busy, sizeof busy);
    if (launch.slept > 0 && (result = work_queue(context, launch.slept)) != 0)
        return result;
    return failure(context, stop);
}

static CUresult from_pointers(CUfunction f, void **pointers, uint8_t *parameters)
{
    for (unsigned i = 0; i < f->facts.parameter_count; i++) {
        size_t offset, size;
        ptx_parameter(f->kernel, i, &offset, &size);
        if (pointers[i] == NULL)
            return CUDA_ERROR_INVALID_VALUE;
        memcpy(parameters + offset, pointers[i], size);
    }
    return 0;
}

static CUresult from_extra(CUfunction f, void **extra, uint8_t *parameters)
{
    const void *buffer = NULL;
    size_t size = 0;
    for (unsigned i = 0; extra[i] != NULL && i < 8; i += 2)
        if (extra[i] == EXTRA_BUFFER)
            buffer = extra[i + 1];
        else if (extra[i] == EXTRA_SIZE)
            size = *(size_t *)extra[i + 1];
        else
            return CUDA_ERROR_INVALID_VALUE;
    if (buffer == NULL || size > f->facts.parameter_bytes)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(parameters, buffer, size);
    return 0;
}

CUresult launch_parameters(CUfunction f, void **pointers, void **extra, uint8_t *parameters)
{
    if (pointers != NULL && extra != NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (f->facts.parameter_count == 0)
        return 0;
    if (pointers != NULL)
        return from_pointers(f, pointers, parameters);
    return extra != NULL ? from_extra(f, extra, parameters) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult launch(struct operation *wanted, CUstream handle, void **pointers, void **extra, bool together)
{
    WITH_CONTEXT(context);
    struct launch *launch = &wanted->launch;
    CUstream stream = stream_of(context, handle);
    CUresult result = stream != NULL ? function_resolve(context, &launch->function) : CUDA_ERROR_INVALID_HANDLE;
    if (result == 0)
        result = launch_check(launch);
    if (result == 0)
        result = launch_parameters(launch->function, pointers, extra, launch->parameters);
    /* Blocks run one after the other here, so those of a cooperative launch cannot wait for each
     * other; as many as are on the GPU at a time are let through. */
    if (result == 0 && together &&
        (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2] > 32ull * context->device->sms)
        result = CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    FINISH(result == 0 ? stream_do(stream, wanted) : result);
}

static void shape(struct operation *wanted, CUfunction f, const unsigned *grid, const unsigned *block, unsigned shared)
{
    wanted->kind = OPERATION_KERNEL;
    wanted->launch.function = f;
    memcpy(wanted->launch.grid, grid, sizeof wanted->launch.grid);
    memcpy(wanted->launch.block, block, sizeof wanted->launch.block);
    wanted->launch.shared = shared;
}

EXPORT CUresult cuLaunchKernel(CUfunction f, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                               unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                               CUstream stream, void **pointers, void **extra)
{
    struct operation wanted;
    shape(&wanted, f, (unsigned[3]){grid_x, grid_y, grid_z}, (unsigned[3]){block_x, block_y, block_z}, shared);
    return launch(&wanted, stream, pointers, extra, false);
}

EXPORT CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                          unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                                          CUstream stream, void **pointers)
{
    struct operation wanted;
    shape(&wanted, f, (unsigned[3]){grid_x, grid_y, grid_z}, (unsigned[3]){block_x, block_y, block_z}, shared);
    return launch(&wanted, stream, pointers, NULL, true);
}

#define ATTRIBUTE_COOPERATIVE 2

struct launch_attribute { /* CUlaunchAttribute */
    int which, unused;
    union {
        int value;
        char bytes[64];
    };
};

struct launch_configuration { /* CUlaunchConfig */
    unsigned grid[3], block[3], shared;
    CUstream stream;
    const struct launch_attribute *attributes;
    unsigned count;
};

/* Other attributes than the cooperative one are hints, or make no difference here. */
EXPORT CUresult cuLaunchKernelEx(const struct launch_configuration *how, CUfunction f, void **pointers, void **extra)
{
    bool together = false;
    if (how == NULL || (how->count > 0 && how->attributes == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < how->count; i++)
        if (how->attributes[i].which == ATTRIBUTE_COOPERATIVE)
            together = how->attributes[i].value != 0;
    struct operation wanted;
    shape(&wanted, f, how->grid, how->block, how->shared);
    return launch(&wanted, how->stream, pointers, extra, together);
}

EXPORT CUresult cuFuncSetBlockShape(CUfunction f, int x, int y, int z)
{
    WITH_CONTEXT(context);
    if (!function_is_known(f))
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    if (x <= 0 || y <= 0 || z <= 0)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    f->block[0] = (unsigned)x;
    f->block[1] = (unsigned)y;
    f->block[2] = (unsigned)z;
    FINISH(0);
}

EXPORT CUresult cuFuncSetSharedSize(CUfunction f, unsigned bytes)
{
    WITH_CONTEXT(context);
    if (!function_is_known(f))
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    f->dynamic_shared = bytes;
    FINISH(0);
}

EXPORT CUresult cuParamSetSize(CUfunction f, unsigned bytes)
{
    WITH_CONTEXT(context);
    if (!function_is_known(f))
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    FINISH(bytes > f->facts.parameter_bytes ? CUDA_ERROR_INVALID_VALUE : 0);
}

EXPORT CUresult cuParamSetv(CUfunction f, int offset, void *value, unsigned bytes)
{
    WITH_CONTEXT(context);
    if (!function_is_known(f))
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    if (offset < 0 || value == NULL || (size_t)offset + bytes > f->facts.parameter_bytes)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    memcpy(f->parameters + offset, value, bytes);
    FINISH(0);
}

EXPORT CUresult cuParamSeti(CUfunction f, int offset, unsigned value)
{
    return cuParamSetv(f, offset, &value, sizeof value);
}

EXPORT CUresult cuParamSetf(CUfunction f, int offset, float value)
{
    return cuParamSetv(f, offset, &value, sizeof value);
}

EXPORT CUresult cuLaunchGridAsync(CUfunction f, int width, int height, CUstream handle)
{
    WITH_CONTEXT(context);
    struct operation wanted;
    CUstream stream = stream_of(context, handle);
    if (stream == NULL || !function_is_known(f))
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    if (width <= 0 || height <= 0)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    shape(&wanted, f, (unsigned[3]){(unsigned)width, (unsigned)height, 1}, f->block, f->dynamic_shared);
    size_t bytes = f->facts.parameter_bytes, room = sizeof wanted.launch.parameters;
    memcpy(wanted.launch.parameters, f->parameters, bytes < room ? bytes : room);
    FINISH(stream_do(stream, &wanted));
}

EXPORT CUresult cuLaunchGrid(CUfunction f, int width, int height)
{
    return cuLaunchGridAsync(f, width, height, NULL);
}

EXPORT CUresult cuLaunch(CUfunction f)
{
    return cuLaunchGridAsync(f, 1, 1, NULL);
}

PER_THREAD(cuLaunchKernel, _ptsz,
           (CUfunction f, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
            unsigned block_z, unsigned shared, CUstream stream, void **pointers, void **extra),
           (f, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, pointers, extra))
PER_THREAD(cuLaunchKernelEx, _ptsz,
           (const struct launch_configuration *how, CUfunction f, void **pointers, void **extra),
           (how, f, pointers, extra))
PER_THREAD(cuLaunchCooperativeKernel, _ptsz,
           (CUfunction f, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
            unsigned block_z, unsigned shared, CUstream stream, void **pointers),
           (f, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, pointers))
