/* Libraries and kernels: code that is loaded once for all contexts. Each context gets a module of it at first use. */
#include <stdlib.h>
#include <string.h>

#include "state.h"

struct cuda_kernel {
    CUlibrary library;
    struct ptx_kernel *ptx; /* of the library's own text, which never runs */
    struct ptx_kernel_facts facts;
    bool has_choice; /* of dynamic shared memory, for the functions in all contexts */
    unsigned max_dynamic_shared;
    CUkernel next;
};

struct cuda_library {
    char *image;
    struct ptx_module *ptx;
    CUkernel kernels;
    CUlibrary next;
};

static CUlibrary libraries;

static KNOWS(library_is_known, CUlibrary, libraries)

static bool kernel_is_known(CUkernel wanted)
{
    for (CUlibrary library = libraries; library != NULL; library = library->next)
        for (CUkernel kernel = library->kernels; kernel != NULL; kernel = kernel->next)
            if (kernel == wanted)
                return true;
    return false;
}

static CUresult module_in(CUcontext context, CUlibrary library, CUmodule *module)
{
    static const struct jit_logs none;
    struct ptx_module *ptx;
    *module = module_of_library(library, context);
    if (*module != NULL)
        return 0;
    CUresult result = image_parse(&context->device->gpu, library->image, &none, &ptx);
    return result != 0 ? result : module_add(context, ptx, library, module);
}

static CUresult kernel_function(CUcontext context, CUkernel kernel, CUfunction *function)
{
    CUmodule module;
    CUresult result = module_in(context, kernel->library, &module);
    if (result == 0)
        result = module_function(module, ptx_kernel_name(kernel->ptx), function);
    if (result == 0 && kernel->has_choice)
        (*function)->max_dynamic_shared = kernel->max_dynamic_shared;
    return result;
}

CUresult function_resolve(CUcontext context, CUfunction *function)
{
    CUkernel kernel = (CUkernel)(void *)*function;
    if (function_is_known(*function))
        return 0;
    return kernel_is_known(kernel) ? kernel_function(context, kernel, function) : CUDA_ERROR_INVALID_HANDLE;
}

static void free_library(CUlibrary library)
{
    while (library->kernels != NULL) {
        CUkernel gone = library->kernels;
        library->kernels = gone->next;
        free(gone);
    }
    ptx_free(library->ptx);
    free(library->image);
    free(library);
}

/* The text is read for the first GPU; a context on another one reads it again. */
static CUresult load(const char *image, unsigned count, const int *options, void **values, CUlibrary *made)
{
    struct jit_logs logs;
    CUresult result = jit_logs_find(count, options, values, &logs);
    if (result == 0 && device_at(0) == NULL)
        result = CUDA_ERROR_NO_DEVICE;
    CUlibrary library = result == 0 ? calloc(1, sizeof *library) : NULL;
    if (library == NULL)
        return result != 0 ? result : CUDA_ERROR_OUT_OF_MEMORY;
    result = image_parse(&device_at(0)->gpu, image, &logs, &library->ptx);
    if (result == 0 && (library->image = strdup(image)) == NULL)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    struct ptx_kernel *ptx = NULL;
    while (result == 0 && (ptx = ptx_kernel_after(library->ptx, ptx)) != NULL) {
        CUkernel kernel = calloc(1, sizeof *kernel);
        if (kernel == NULL) {
            result = CUDA_ERROR_OUT_OF_MEMORY;
            break;
        }
        *kernel = (struct cuda_kernel){.library = library, .ptx = ptx, .next = library->kernels};
        ptx_facts(ptx, &kernel->facts);
        kernel->max_dynamic_shared = function_default_shared(&kernel->facts);
        library->kernels = kernel;
    }
    if (result != 0) {
        free_library(library);
        return result;
    }
    library->next = libraries;
    libraries = library;
    *made = library;
    return 0;
}

/* Options of the library itself are hints here: that it stays in memory, what it is compiled for. */
EXPORT CUresult cuLibraryLoadData(CUlibrary *made, const void *image, int *options, void **values, unsigned count,
                                  int *own_options, void **own_values, unsigned own_count)
{
    (void)own_options;
    (void)own_values;
    (void)own_count;
    driver_lock();
    CUresult result = driver_ready();
    if (result == 0 && (made == NULL || image == NULL))
        result = CUDA_ERROR_INVALID_VALUE;
    FINISH(result != 0 ? result : load(image, count, options, values, made));
}

EXPORT CUresult cuLibraryLoadFromFile(CUlibrary *made, const char *name, int *options, void **values, unsigned count,
                                      int *own_options, void **own_values, unsigned own_count)
{
    char *text;
    if (made == NULL || name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = file_read(name, &text);
    if (result == 0)
        result = cuLibraryLoadData(made, text, options, values, count, own_options, own_values, own_count);
    free(text);
    return result;
}

static CUresult check(bool is_known, bool has_target)
{
    CUresult result = driver_ready();
    return result != 0 ? result : !has_target ? CUDA_ERROR_INVALID_VALUE : is_known ? 0 : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult cuLibraryUnload(CUlibrary library)
{
    driver_lock();
    CUresult result = check(library_is_known(library), true);
    if (result != 0)
        FINISH(result);
    modules_drop_library(library);
    UNLINK(libraries, library);
    free_library(library);
    FINISH(0);
}

EXPORT CUresult cuLibraryGetKernel(CUkernel *made, CUlibrary library, const char *name)
{
    driver_lock();
    CUresult result = check(library_is_known(library), made != NULL && name != NULL);
    if (result != 0)
        FINISH(result);
    CUkernel kernel = library->kernels;
    while (kernel != NULL && strcmp(ptx_kernel_name(kernel->ptx), name) != 0)
        kernel = kernel->next;
    if (kernel != NULL)
        *made = kernel;
    FINISH(kernel == NULL ? CUDA_ERROR_NOT_FOUND : 0);
}

EXPORT CUresult cuLibraryGetKernelCount(unsigned *count, CUlibrary library)
{
    driver_lock();
    CUresult result = check(library_is_known(library), count != NULL);
    if (result != 0)
        FINISH(result);
    *count = 0;
    for (CUkernel kernel = library->kernels; kernel != NULL; kernel = kernel->next)
        ++*count;
    FINISH(0);
}

EXPORT CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned room, CUlibrary library)
{
    driver_lock();
    CUresult result = check(library_is_known(library), kernels != NULL);
    if (result != 0)
        FINISH(result);
    CUkernel kernel = library->kernels;
    for (unsigned n = 0; n < room && kernel != NULL; n++, kernel = kernel->next)
        kernels[n] = kernel;
    FINISH(0);
}

EXPORT CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
    WITH_CONTEXT(context);
    CUresult result = check(library_is_known(library), module != NULL);
    FINISH(result != 0 ? result : module_in(context, library, module));
}

EXPORT CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *size, CUlibrary library, const char *name)
{
    CUmodule module;
    CUresult result = cuLibraryGetModule(&module, library);
    return result != 0 ? result : cuModuleGetGlobal_v2(address, size, module, name);
}

EXPORT CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    WITH_CONTEXT(context);
    CUresult result = check(kernel_is_known(kernel), function != NULL);
    FINISH(result != 0 ? result : kernel_function(context, kernel, function));
}

EXPORT CUresult cuKernelGetLibrary(CUlibrary *library, CUkernel kernel)
{
    driver_lock();
    CUresult result = check(kernel_is_known(kernel), library != NULL);
    if (result == 0)
        *library = kernel->library;
    FINISH(result);
}

EXPORT CUresult cuKernelGetName(const char **name, CUkernel kernel)
{
    driver_lock();
    CUresult result = check(kernel_is_known(kernel), name != NULL);
    if (result == 0)
        *name = ptx_kernel_name(kernel->ptx);
    FINISH(result);
}

EXPORT CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *offset, size_t *size)
{
    size_t bytes;
    driver_lock();
    CUresult result = check(kernel_is_known(kernel), offset != NULL);
    if (result == 0 && index >= kernel->facts.parameter_count)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == 0)
        ptx_parameter(kernel->ptx, (unsigned)index, offset, size == NULL ? &bytes : size);
    FINISH(result);
}

EXPORT CUresult cuKernelGetAttribute(int *value, int which, CUkernel kernel, CUdevice ordinal)
{
    driver_lock();
    const struct device *device = device_at(ordinal);
    CUresult result = check(kernel_is_known(kernel), value != NULL);
    if (result == 0 && device == NULL)
        result = CUDA_ERROR_INVALID_DEVICE;
    if (result == 0)
        result = function_fact(&device->gpu, &kernel->facts, kernel->max_dynamic_shared, which, value);
    FINISH(result);
}

#define MAX_DYNAMIC_SHARED 8
#define CARVEOUT 9

EXPORT CUresult cuKernelSetAttribute(int which, int value, CUkernel kernel, CUdevice ordinal)
{
    driver_lock();
    const struct device *device = device_at(ordinal);
    CUresult result = check(kernel_is_known(kernel), true);
    if (result == 0 && device == NULL)
        result = CUDA_ERROR_INVALID_DEVICE;
    if (result != 0 || which == CARVEOUT)
        FINISH(result != 0 ? result : value < -1 || value > 100 ? CUDA_ERROR_INVALID_VALUE : 0);
    if (which != MAX_DYNAMIC_SHARED || !function_takes_shared(&device->gpu, &kernel->facts, value))
        FINISH(CUDA_ERROR_INVALID_VALUE);
    kernel->has_choice = true;
    kernel->max_dynamic_shared = (unsigned)value;
    FINISH(0);
}

EXPORT CUresult cuKernelSetCacheConfig(CUkernel kernel, int config, CUdevice ordinal)
{
    driver_lock();
    CUresult result = check(kernel_is_known(kernel), config >= 0 && config <= 3);
    FINISH(result == 0 && device_at(ordinal) == NULL ? CUDA_ERROR_INVALID_DEVICE : result);
}
