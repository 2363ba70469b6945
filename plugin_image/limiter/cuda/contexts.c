/* The end of a context is the end of what was allocated in it. */
#include "driver.h"
#include "memory.h"

EXPORT CUresult cuCtxDestroy_v2(void *context);
EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device);
EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device);

CUresult cuDevicePrimaryCtxRetain(void **context, CUdevice device);
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active);

EXPORT CUresult cuCtxDestroy_v2(void *context)
{
    CUresult result = CALL(cuCtxDestroy_v2, context);
    if (result == 0)
        charges_end(context);
    return result;
}

static bool is_active(CUdevice device)
{
    unsigned flags;
    int active = 0;
    return CALL(cuDevicePrimaryCtxGetState, device, &flags, &active) == 0 && active != 0;
}

/* The primary context of a device, which is only told to who retains it. */
static void *primary(CUdevice device)
{
    void *context = NULL;
    if (is_active(device) && CALL(cuDevicePrimaryCtxRetain, &context, device) == 0)
        CALL(cuDevicePrimaryCtxRelease_v2, device);
    return context;
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    void *context = primary(device);
    CUresult result = CALL(cuDevicePrimaryCtxRelease_v2, device);
    if (result == 0 && context != NULL && !is_active(device))
        charges_end(context);
    return result;
}

EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    void *context = primary(device);
    CUresult result = CALL(cuDevicePrimaryCtxReset_v2, device);
    if (result == 0 && context != NULL)
        charges_end(context);
    return result;
}
