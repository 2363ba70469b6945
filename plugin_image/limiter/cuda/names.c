/* Functions that are asked for by name: ours for what we change, whatever version and kind of default
 * stream is asked for; the driver's own for all else. */
#include <stdbool.h>
#include <string.h>

#include "driver.h"

EXPORT CUresult cuGetProcAddress(const char *name, void **function, int version, uint64_t flags);
EXPORT CUresult cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status);

#define PER_THREAD_STREAMS 2u

/* Base name, our function, and the one for a default stream per thread where there is one. */
#define PLAIN(base, ours) {#base, #ours, NULL}
#define BOTH(base, ours, suffix) {#base, #ours, #ours #suffix}
static const struct {
    const char *base, *ours, *per_thread;
} names[] = {
    PLAIN(cuInit, cuInit),
    PLAIN(cuMemGetInfo, cuMemGetInfo_v2),
    PLAIN(cuDeviceTotalMem, cuDeviceTotalMem_v2),
    PLAIN(cuCtxDestroy, cuCtxDestroy_v2),
    PLAIN(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2),
    PLAIN(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2),
    PLAIN(cuMemAlloc, cuMemAlloc_v2),
    PLAIN(cuMemAllocManaged, cuMemAllocManaged),
    PLAIN(cuMemAllocPitch, cuMemAllocPitch_v2),
    PLAIN(cuMemFree, cuMemFree_v2),
    BOTH(cuMemAllocAsync, cuMemAllocAsync, _ptsz),
    BOTH(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, _ptsz),
    BOTH(cuMemFreeAsync, cuMemFreeAsync, _ptsz),
    PLAIN(cuMemPoolCreate, cuMemPoolCreate),
    PLAIN(cuMemPoolDestroy, cuMemPoolDestroy),
    PLAIN(cuMemPoolTrimTo, cuMemPoolTrimTo),
    PLAIN(cuMemCreate, cuMemCreate),
    PLAIN(cuMemRelease, cuMemRelease),
    PLAIN(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle),
    PLAIN(cuMemMap, cuMemMap),
    PLAIN(cuMemUnmap, cuMemUnmap),
    PLAIN(cuArrayCreate, cuArrayCreate_v2),
    PLAIN(cuArray3DCreate, cuArray3DCreate_v2),
    PLAIN(cuArrayDestroy, cuArrayDestroy),
    PLAIN(cuMipmappedArrayCreate, cuMipmappedArrayCreate),
    PLAIN(cuMipmappedArrayDestroy, cuMipmappedArrayDestroy),
    BOTH(cuLaunchKernel, cuLaunchKernel, _ptsz),
    BOTH(cuLaunchKernelEx, cuLaunchKernelEx, _ptsz),
    BOTH(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel, _ptsz),
    PLAIN(cuLaunch, cuLaunch),
    PLAIN(cuLaunchGrid, cuLaunchGrid),
    PLAIN(cuLaunchGridAsync, cuLaunchGridAsync),
    BOTH(cuGraphLaunch, cuGraphLaunch, _ptsz),
    PLAIN(cuCtxSynchronize, cuCtxSynchronize),
    BOTH(cuStreamSynchronize, cuStreamSynchronize, _ptsz),
    PLAIN(cuEventSynchronize, cuEventSynchronize),
    BOTH(cuMemcpyDtoH, cuMemcpyDtoH_v2, _ptds),
    BOTH(cuMemcpy, cuMemcpy, _ptds),
    BOTH(cuStreamBeginCapture, cuStreamBeginCapture_v2, _ptsz),
    BOTH(cuStreamEndCapture, cuStreamEndCapture, _ptsz),
};

/* A program may ask for the whole name, or the base that stands for all its versions. */
static bool is_named(unsigned at, const char *name)
{
    return strcmp(names[at].base, name) == 0 || strcmp(names[at].ours, name) == 0;
}

static void *ours(const char *name, int version, uint64_t flags)
{
    if (strcmp(name, "cuGetProcAddress") == 0)
        return version >= 12000 ? (void *)(uintptr_t)&cuGetProcAddress_v2 : (void *)(uintptr_t)&cuGetProcAddress;
    if (strcmp(name, "cuGetProcAddress_v2") == 0)
        return (void *)(uintptr_t)&cuGetProcAddress_v2;
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (is_named(i, name))
            return own_symbol(flags == PER_THREAD_STREAMS && names[i].per_thread != NULL ? names[i].per_thread
                                                                                         : names[i].ours);
    return NULL;
}

/* The driver is asked first: what it does not have, a program must not find. */
static void replace(const char *name, void **function, int version, uint64_t flags)
{
    void *replacement = name == NULL || *function == NULL ? NULL : ours(name, version, flags);
    if (replacement != NULL)
        *function = replacement;
}

EXPORT CUresult cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status)
{
    CUresult result = CALL(cuGetProcAddress_v2, name, function, version, flags, status);
    if (result == 0 && function != NULL)
        replace(name, function, version, flags);
    return result;
}

EXPORT CUresult cuGetProcAddress(const char *name, void **function, int version, uint64_t flags)
{
    CUresult result = CALL(cuGetProcAddress, name, function, version, flags);
    if (result == 0 && function != NULL)
        replace(name, function, version, flags);
    return result;
}
