#include "cuda_driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cuda_open(struct cuda_driver *cuda)
{
    struct {
        const char *name;
        void **place;
    } functions[] = {
        {"cuInit", (void **)&cuda->init},
        {"cuDeviceGetCount", (void **)&cuda->device_count},
        {"cuDeviceGet", (void **)&cuda->device},
        {"cuDeviceGetName", (void **)&cuda->device_name},
        {"cuDeviceGetUuid_v2", (void **)&cuda->device_uuid},
        {"cuDeviceGetAttribute", (void **)&cuda->attribute},
        {"cuDeviceTotalMem_v2", (void **)&cuda->total_memory},
        {"cuDevicePrimaryCtxRetain", (void **)&cuda->retain_context},
        {"cuDevicePrimaryCtxRelease_v2", (void **)&cuda->release_context},
        {"cuCtxSetCurrent", (void **)&cuda->set_context},
        {"cuCtxSynchronize", (void **)&cuda->synchronize},
        {"cuMemGetInfo_v2", (void **)&cuda->memory_info},
        {"cuMemAlloc_v2", (void **)&cuda->alloc},
        {"cuMemFree_v2", (void **)&cuda->release},
        {"cuMemcpyHtoD_v2", (void **)&cuda->to_device},
        {"cuMemcpyDtoH_v2", (void **)&cuda->to_host},
        {"cuMemcpyDtoD_v2", (void **)&cuda->on_device},
        {"cuMemsetD32_v2", (void **)&cuda->set_32},
        {"cuModuleLoadData", (void **)&cuda->load_module},
        {"cuModuleGetFunction", (void **)&cuda->function},
        {"cuLaunchKernel", (void **)&cuda->launch},
        {"cuGetErrorName", (void **)&cuda->error_name},
    };
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "no CUDA driver: %s\n", dlerror());
        return -1;
    }
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        *functions[i].place = dlsym(library, functions[i].name);
        if (*functions[i].place == NULL) {
            fprintf(stderr, "the CUDA driver has no %s\n", functions[i].name);
            return -1;
        }
    }
    return 0;
}

const char *cuda_error(const struct cuda_driver *cuda, CUresult result)
{
    const char *name = NULL;
    if (cuda->error_name(result, &name) != CUDA_SUCCESS || name == NULL)
        return "unknown error";
    return name;
}

void cuda_must(const struct cuda_driver *cuda, CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "cannot %s: %s\n", what, cuda_error(cuda, result));
    exit(1);
}

void cuda_begin(struct cuda_driver *cuda)
{
    CUcontext context = NULL;
    CUdevice device = 0;
    if (cuda_open(cuda) != 0)
        exit(1);
    cuda_must(cuda, cuda->init(0), "initialise the driver");
    cuda_must(cuda, cuda->device(&device, 0), "get device 0");
    cuda_must(cuda, cuda->retain_context(&context, device), "create a context");
    cuda_must(cuda, cuda->set_context(context), "use the context");
}

void cuda_uuid_text(const char *device_name, const CUuuid *uuid, char *text)
{
    static const char layout[] = "xx-x-x-x-xxx"; /* pairs of bytes: 4-2-2-2-6 */
    int byte = 0, written = sprintf(text, "%s", strstr(device_name, " MIG ") ? "MIG-" : "GPU-");
    for (const char *mark = layout; *mark != '\0'; mark++) {
        if (*mark == '-') {
            text[written++] = '-';
            continue;
        }
        written += sprintf(text + written, "%02x%02x", (unsigned char)uuid->bytes[byte],
                           (unsigned char)uuid->bytes[byte + 1]);
        byte += 2;
    }
    text[written] = '\0';
}
