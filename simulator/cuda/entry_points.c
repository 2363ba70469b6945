/* Finding entry points by name, and those that exist only to say that they are not supported. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#include "cuda.h"

/* By this symbol a program tells the simulated library from NVIDIA's. */
EXPORT const char *divvySimulated(void)
{
    return "simulated by Divvy: no GPU is behind this library";
}

static void *own_handle;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void open_self(void)
{
    Dl_info info;
    if (dladdr((void *)(uintptr_t)&divvySimulated, &info) != 0)
        own_handle = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
}

/* The newest form that the asked-for CUDA version has; only contexts have one that depends on it. */
static void *find(const char *name, int version)
{
    static const char *const forms[] = {"%s_v4", "%s_v3", "%s_v2", "%s"};
    char whole[160];
    pthread_once(&once, open_self);
    for (unsigned i = version >= 13000 ? 0 : 2; own_handle != NULL && i < 4; i++) {
        snprintf(whole, sizeof whole, forms[i], name);
        void *symbol = dlsym(own_handle, whole);
        if (symbol != NULL)
            return symbol;
    }
    return NULL;
}

EXPORT CUresult cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags,
                                    int *status)
{
    if (name == NULL || function == NULL || flags > 2)
        return CUDA_ERROR_INVALID_VALUE;
    *function = find(name, version);
    if (status != NULL)
        *status = *function == NULL ? 1 : 0;
    return *function == NULL ? CUDA_ERROR_NOT_FOUND : 0;
}

EXPORT CUresult cuGetProcAddress(const char *name, void **function, int version, uint64_t flags)
{
    return cuGetProcAddress_v2(name, function, version, flags, NULL);
}

/* NVIDIA's private tables are none of ours. */
EXPORT CUresult cuGetExportTable(const void **table, const void *id)
{
    (void)id;
    if (table == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *table = NULL;
    return CUDA_ERROR_NOT_FOUND;
}

EXPORT CUresult cuProfilerStart(void)
{
    return 0;
}

EXPORT CUresult cuProfilerStop(void)
{
    return 0;
}

#define UNSUPPORTED(name)                  \
    EXPORT CUresult name(void);            \
    EXPORT CUresult name(void)             \
    {                                      \
        return CUDA_ERROR_NOT_SUPPORTED;   \
    }

UNSUPPORTED(cuArray3DCreate_v2)
UNSUPPORTED(cuArrayCreate_v2)
UNSUPPORTED(cuArrayDestroy)
UNSUPPORTED(cuCtxDisablePeerAccess)
UNSUPPORTED(cuCtxEnablePeerAccess)
UNSUPPORTED(cuDeviceGetMemPool)
UNSUPPORTED(cuDeviceGetDefaultMemPool)
UNSUPPORTED(cuGraphCreate)
UNSUPPORTED(cuGraphDestroy)
UNSUPPORTED(cuGraphInstantiateWithFlags)
UNSUPPORTED(cuGraphLaunch)
UNSUPPORTED(cuIpcCloseMemHandle)
UNSUPPORTED(cuIpcGetEventHandle)
UNSUPPORTED(cuIpcGetMemHandle)
UNSUPPORTED(cuIpcOpenEventHandle)
UNSUPPORTED(cuIpcOpenMemHandle_v2)
UNSUPPORTED(cuLaunchCooperativeKernel)
UNSUPPORTED(cuLaunchHostFunc)
UNSUPPORTED(cuLaunchKernelEx)
UNSUPPORTED(cuLibraryGetKernel)
UNSUPPORTED(cuLibraryLoadData)
UNSUPPORTED(cuLibraryUnload)
UNSUPPORTED(cuLinkAddData_v2)
UNSUPPORTED(cuLinkComplete)
UNSUPPORTED(cuLinkCreate_v2)
UNSUPPORTED(cuLinkDestroy)
UNSUPPORTED(cuMemAddressReserve)
UNSUPPORTED(cuMemAdvise)
UNSUPPORTED(cuMemCreate)
UNSUPPORTED(cuMemMap)
UNSUPPORTED(cuMemPoolCreate)
UNSUPPORTED(cuMemPrefetchAsync)
UNSUPPORTED(cuMemcpy2D_v2)
UNSUPPORTED(cuMemcpy3D_v2)
UNSUPPORTED(cuMemcpyPeer)
UNSUPPORTED(cuStreamAddCallback)
UNSUPPORTED(cuStreamBeginCapture_v2)
UNSUPPORTED(cuStreamEndCapture)
UNSUPPORTED(cuTexObjectCreate)
UNSUPPORTED(cuTexRefCreate)
