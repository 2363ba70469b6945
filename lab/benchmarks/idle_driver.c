/* A driver that answers at once and does nothing: what a call through the limiter takes beyond one of
 * this is the limiter's. */
#include <stddef.h>
#include <string.h>

typedef void *handle;

int cuInit(unsigned flags)
{
    return (int)flags;
}

int cuDeviceGetCount(int *count)
{
    *count = 1;
    return 0;
}

int cuDeviceGetUuid_v2(void *uuid, int device)
{
    memset(uuid, 0x11, 16);
    return device;
}

int cuCtxCreate_v2(handle *context, unsigned flags, int device)
{
    *context = (handle)16;
    return (int)flags + device;
}

int cuCtxGetCurrent(handle *context)
{
    *context = (handle)16;
    return 0;
}

int cuCtxGetDevice(int *device)
{
    *device = 0;
    return 0;
}

int cuModuleLoadData(handle *module, const void *image)
{
    *module = (handle)32;
    return image == NULL;
}

int cuModuleGetFunction(handle *function, handle module, const char *name)
{
    *function = module;
    return name == NULL;
}

int cuMemAlloc_v2(unsigned long long *pointer, size_t bytes)
{
    static unsigned long long next;
    *pointer = 0x700000000000 + (next++ % 64) * 0x200000;
    return bytes == 0;
}

int cuMemFree_v2(unsigned long long pointer)
{
    return pointer == 0;
}

int cuLaunchKernel(handle function, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned f, unsigned g,
                   handle stream, handle *pointers, handle *extra)
{
    return function == NULL || a + b + c + d + e + f + g == 0 || stream != NULL || pointers != extra;
}
