/* The one context that every part of a process shares, per device. */
#include "state.h"

static CUresult find_primary(CUdevice ordinal, struct device **device)
{
    CUresult result = driver_ready();
    *device = device_at(ordinal);
    return result != 0 ? result : *device == NULL ? CUDA_ERROR_INVALID_DEVICE : 0;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice ordinal)
{
    struct device *device;
    driver_lock();
    CUresult result = find_primary(ordinal, &device);
    if (result == 0 && context == NULL)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == 0 && device->primary == NULL)
        result = context_make(device, device->primary_flags, true, &device->primary);
    if (result == 0) {
        device->primary_users++;
        *context = device->primary;
    }
    FINISH(result);
}

static CUresult primary_release(CUdevice ordinal, bool reset)
{
    struct device *device;
    driver_lock();
    CUresult result = find_primary(ordinal, &device);
    if (result == 0 && device->primary == NULL)
        result = reset ? -1 : CUDA_ERROR_INVALID_CONTEXT;
    if (result == 0 && !reset && device->primary_users > 0)
        device->primary_users--;
    if (result == 0 && (reset || device->primary_users == 0)) {
        CUcontext context = device->primary;
        device->primary_users = 0;
        device->primary = NULL;
        context_end(context);
    }
    FINISH(result == -1 ? 0 : result);
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal)
{
    return primary_release(ordinal, false);
}

ALSO(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (CUdevice ordinal), (ordinal))

EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice ordinal)
{
    return primary_release(ordinal, true);
}

ALSO(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, (CUdevice ordinal), (ordinal))

EXPORT CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice ordinal, unsigned flags)
{
    struct device *device;
    driver_lock();
    CUresult result = find_primary(ordinal, &device);
    if (result == 0)
        device->primary_flags = flags;
    FINISH(result);
}

ALSO(cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags_v2,
     (CUdevice ordinal, unsigned flags), (ordinal, flags))


EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned *flags, int *active)
{
    struct device *device;
    driver_lock();
    CUresult result = find_primary(ordinal, &device);
    if (result == 0 && (flags == NULL || active == NULL))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == 0) {
        *flags = device->primary_flags;
        *active = device->primary != NULL;
    }
    FINISH(result);
}
