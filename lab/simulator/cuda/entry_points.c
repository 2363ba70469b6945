/* Finding entry points by name. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

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

#define PER_THREAD_STREAMS 2u

/* Of each, the one for a default stream per thread where that is asked for and there is one. */
static void *form(const char *name, const char *suffix, uint64_t flags)
{
    static const char *const streams[] = {"_ptsz", "_ptds", ""};
    char whole[160];
    for (unsigned s = flags == PER_THREAD_STREAMS ? 0 : 2; s < 3; s++) {
        snprintf(whole, sizeof whole, "%s%s%s", name, suffix, streams[s]);
        void *symbol = dlsym(own_handle, whole);
        if (symbol != NULL)
            return symbol;
    }
    return NULL;
}

/* The newest form that the asked-for CUDA version has, by the versions in cudaTypedefs.h where
 * that is not the second of all. */
static void *find(const char *name, int version, uint64_t flags)
{
    static const char *const suffixes[] = {"_v4", "_v3", "_v2", ""};
    static const struct {
        const char *name, *suffix;
        int since;
    } forms[] = {{"cuStreamGetCaptureInfo", "_v3", 12030}, {"cuStreamGetCaptureInfo", "_v2", 11030},
                 {"cuStreamGetCaptureInfo", "", 0}, {"cuStreamUpdateCaptureDependencies", "_v2", 12030},
                 {"cuStreamUpdateCaptureDependencies", "", 0}, {"cuGraphAddNode", "_v2", 12030},
                 {"cuGraphAddNode", "", 12020}, {"cuGraphInstantiate", "WithFlags", 12000}};
    pthread_once(&once, open_self);
    if (own_handle == NULL)
        return NULL;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (version >= forms[i].since && strcmp(name, forms[i].name) == 0)
            return form(name, forms[i].suffix, flags);
    void *symbol = NULL;
    for (unsigned i = version >= 13000 ? 0 : 2; symbol == NULL && i < 4; i++)
        symbol = form(name, suffixes[i], flags);
    return symbol;
}

EXPORT CUresult cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags,
                                    int *status)
{
    if (name == NULL || function == NULL || flags > 2)
        return CUDA_ERROR_INVALID_VALUE;
    *function = find(name, version, flags);
    if (status == NULL)
        return *function == NULL ? CUDA_ERROR_NOT_FOUND : 0;
    *status = *function == NULL; /* CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND: the call succeeds all the same */
    return 0;
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
