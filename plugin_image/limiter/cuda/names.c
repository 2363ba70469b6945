/* Functions that are asked for by name: ours for what we change, whatever version and kind of default
 * stream is asked for; the driver's own for all else. */
#include <stdbool.h>
#include <string.h>

#include "driver.h"

EXPORT CUresult cuGetProcAddress(const char *name, void **function, int version, uint64_t flags);
EXPORT CUresult cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status);

#define PER_THREAD_STREAMS 2u

/* Base name, our function, the one for a default stream per thread where there is one, and since which
 * version of CUDA the base name stands for it. */
#define PLAIN(base, ours) {#base, #ours, NULL, 0}
#define BOTH(base, ours, suffix) {#base, #ours, #ours #suffix, 0}
#define FROM(version, base, ours) {#base, #ours, NULL, version}
static const struct name {
    const char *base, *ours, *per_thread;
    int since;
} names[] = {
    PLAIN(cuInit, cuInit),
    PLAIN(cuMemGetInfo, cuMemGetInfo_v2),
    PLAIN(cuDeviceTotalMem, cuDeviceTotalMem_v2),
    PLAIN(cuCtxCreate, cuCtxCreate),
    FROM(3020, cuCtxCreate, cuCtxCreate_v2),
    FROM(11040, cuCtxCreate, cuCtxCreate_v3),
    FROM(12050, cuCtxCreate, cuCtxCreate_v4),
    PLAIN(cuCtxDestroy, cuCtxDestroy),
    FROM(4000, cuCtxDestroy, cuCtxDestroy_v2),
    PLAIN(cuCtxSetLimit, cuCtxSetLimit),
    PLAIN(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain),
    PLAIN(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease),
    FROM(11000, cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2),
    PLAIN(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset),
    FROM(11000, cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2),
    PLAIN(cuModuleLoad, cuModuleLoad),
    PLAIN(cuModuleLoadData, cuModuleLoadData),
    PLAIN(cuModuleLoadDataEx, cuModuleLoadDataEx),
    PLAIN(cuModuleLoadFatBinary, cuModuleLoadFatBinary),
    PLAIN(cuModuleUnload, cuModuleUnload),
    PLAIN(cuLibraryLoadData, cuLibraryLoadData),
    PLAIN(cuLibraryLoadFromFile, cuLibraryLoadFromFile),
    PLAIN(cuLibraryUnload, cuLibraryUnload),
    PLAIN(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle),
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
    PLAIN(cuDeviceGraphMemTrim, cuDeviceGraphMemTrim),
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
    BOTH(cuGraphUpload, cuGraphUpload, _ptsz),
    PLAIN(cuGraphInstantiate, cuGraphInstantiate),
    FROM(11000, cuGraphInstantiate, cuGraphInstantiate_v2),
    FROM(12000, cuGraphInstantiate, cuGraphInstantiateWithFlags),
    BOTH(cuGraphInstantiateWithParams, cuGraphInstantiateWithParams, _ptsz),
    PLAIN(cuGraphExecDestroy, cuGraphExecDestroy),
    PLAIN(cuCtxSynchronize, cuCtxSynchronize),
    FROM(13000, cuCtxSynchronize, cuCtxSynchronize_v2),
    BOTH(cuStreamSynchronize, cuStreamSynchronize, _ptsz),
    PLAIN(cuEventSynchronize, cuEventSynchronize),
    BOTH(cuMemcpyDtoH, cuMemcpyDtoH_v2, _ptds),
    BOTH(cuMemcpy, cuMemcpy, _ptds),
};

/* A program may ask for the whole name, or the base that stands for all its versions. Which of them the driver
 * gives shows best in what it gave; drivers that give another address than their symbol's go by the version. */
static const char *our_name(const char *name, const void *function, int version, uint64_t flags)
{
    const struct name *found = NULL;
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        const struct name *one = &names[i];
        if (one->per_thread != NULL && strcmp(one->per_thread, name) == 0)
            return one->per_thread;
        bool is_base = strcmp(one->base, name) == 0;
        const void *theirs = is_base && one->since > 0 ? driver_symbol(one->ours) : NULL;
        if (theirs == function)
            return one->ours;
        if (is_base && one->since > 0 && theirs == NULL) /* a driver that is older than the version */
            continue;
        if (is_base ? one->since <= version : strcmp(one->ours, name) == 0)
            found = one;
    }
    if (found == NULL)
        return NULL;
    return flags == PER_THREAD_STREAMS && found->per_thread != NULL ? found->per_thread : found->ours;
}

static void *ours(const char *name, const void *function, int version, uint64_t flags)
{
    if (strcmp(name, "cuGetProcAddress") == 0)
        return version >= 12000 ? (void *)(uintptr_t)&cuGetProcAddress_v2 : (void *)(uintptr_t)&cuGetProcAddress;
    if (strcmp(name, "cuGetProcAddress_v2") == 0)
        return (void *)(uintptr_t)&cuGetProcAddress_v2;
    const char *found = our_name(name, function, version, flags);
    return found == NULL ? NULL : own_symbol(found);
}

/* The driver is asked first: what it does not have, a program must not find. */
static void replace(const char *name, void **function, int version, uint64_t flags)
{
    void *replacement = name == NULL || *function == NULL ? NULL : ours(name, *function, version, flags);
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
