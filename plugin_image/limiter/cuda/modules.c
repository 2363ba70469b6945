/* Modules and libraries: charged by the variables that their images declare, where an image says so (images.c).
 * None is loaded into a share that is full. */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driver.h"
#include "images.h"
#include "memory.h"

#define GRAIN 512u

typedef struct CUmodule_st *CUmodule;
typedef struct CUlibrary_st *CUlibrary;

EXPORT CUresult cuModuleLoad(CUmodule *module, const char *path);
EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image);
EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, int *options, void **values);
EXPORT CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image);
EXPORT CUresult cuModuleUnload(CUmodule module);
EXPORT CUresult cuLibraryLoadData(CUlibrary *library, const void *image, int *options, void **values, unsigned count,
                                  int *library_options, void **library_values, unsigned library_count);
EXPORT CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, int *options, void **values, unsigned count,
                                      int *library_options, void **library_values, unsigned library_count);
EXPORT CUresult cuLibraryUnload(CUlibrary library);

static uint64_t bytes_of_file(const char *path)
{
    int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    off_t size = file < 0 ? 0 : lseek(file, 0, SEEK_END);
    void *image = size <= 0 ? MAP_FAILED : mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, file, 0);
    uint64_t bytes = image == MAP_FAILED ? 0 : image_bytes(image, (size_t)size);
    if (image != MAP_FAILED)
        munmap(image, (size_t)size);
    if (file >= 0)
        close(file);
    return bytes;
}

/* An image in memory is as long as it says. */
static uint64_t bytes_of_image(const void *image)
{
    return image == NULL ? 0 : image_bytes(image, SIZE_MAX);
}

static uint64_t number(const void *handle)
{
    return (uint64_t)(uintptr_t)handle;
}

static CUresult run_unload(uint64_t module)
{
    return CALL(cuModuleUnload, (CUmodule)(uintptr_t)module);
}

static CUresult run_library_unload(uint64_t library)
{
    return CALL(cuLibraryUnload, (CUlibrary)(uintptr_t)library);
}

/* Reserved was a grain at least, so that a share that is full is told so. */
static CUresult settle(CUresult result, uint64_t handle, struct charge *charge, uint64_t bytes)
{
    account_release(charge->device, charge->bytes - bytes);
    charge->bytes = bytes;
    if (charge_settle(CHARGE_MODULE, result, handle, charge))
        return result;
    run_unload(handle);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult unload(CUresult (*run)(uint64_t), enum charge_kind kind, uint64_t handle)
{
    struct charge charges[MAX_DEVICES];
    unsigned count = 0;
    while (count < MAX_DEVICES && charge_take(kind, handle, &charges[count]))
        count++;
    CUresult result = run(handle);
    for (unsigned i = 0; i < count; i++)
        charge_freed(kind, result, handle, &charges[i]);
    return result;
}

/* A library belongs to no context: it is in each that uses it, and may be loaded before there is one. So it is
 * charged on every device, and its end is its unloading. */
static bool reserve_library(uint64_t bytes, struct charge *charges, unsigned *count)
{
    int ordinals = 0, current = tenant_current_device();
    CALL(cuDeviceGetCount, &ordinals);
    *count = 0;
    for (CUdevice ordinal = 0; ordinal < ordinals && *count < MAX_DEVICES; ordinal++) {
        int device = tenant_device(ordinal);
        uint64_t least = device == current ? GRAIN : 0;
        struct charge charge = {NULL, bytes > least ? bytes : least, (unsigned)device};
        if (device < 0 || charge.bytes == 0)
            continue;
        if (!tenant_reserve(charge.device, charge.bytes)) {
            for (unsigned i = 0; i < *count; i++)
                account_release(charges[i].device, charges[i].bytes);
            return false;
        }
        charges[(*count)++] = charge;
    }
    return true;
}

static CUresult settle_library(CUresult result, const CUlibrary *made, struct charge *charges, unsigned count,
                               uint64_t bytes)
{
    uint64_t handle = result == 0 ? number(*made) : 0;
    bool kept = true;
    for (unsigned i = 0; i < count; i++) {
        account_release(charges[i].device, charges[i].bytes - bytes);
        charges[i].bytes = bytes;
        kept = charge_settle(CHARGE_LIBRARY, result, handle, &charges[i]) && kept;
    }
    if (kept)
        return result;
    unload(run_library_unload, CHARGE_LIBRARY, handle);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

#define LOAD(made, takes, call)                                                                           \
    uint64_t taken = takes;                                                                               \
    struct charge charge = {.bytes = taken > GRAIN ? taken : GRAIN};                                      \
    enum reservation reservation = charge_reserve(&charge);                                               \
    if (reservation == REFUSED)                                                                           \
        return refusal();                                                                                 \
    CUresult result = call;                                                                               \
    return reservation == RESERVED ? settle(result, result == 0 ? number(*(made)) : 0, &charge, taken) : result

#define LOAD_LIBRARY(made, takes, call)              \
    uint64_t taken = takes;                          \
    struct charge charges[MAX_DEVICES];              \
    unsigned count_;                                 \
    if (!reserve_library(taken, charges, &count_))   \
        return refusal();                            \
    CUresult result = call;                          \
    return settle_library(result, made, charges, count_, taken)

EXPORT CUresult cuModuleLoad(CUmodule *module, const char *path)
{
    LOAD(module, bytes_of_file(path), CALL(cuModuleLoad, module, path));
}

EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    LOAD(module, bytes_of_image(image), CALL(cuModuleLoadData, module, image));
}

EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, int *options, void **values)
{
    LOAD(module, bytes_of_image(image),
         CALL(cuModuleLoadDataEx, module, image, count, options, values));
}

EXPORT CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
    LOAD(module, bytes_of_image(image), CALL(cuModuleLoadFatBinary, module, image));
}

EXPORT CUresult cuModuleUnload(CUmodule module)
{
    return unload(run_unload, CHARGE_MODULE, number(module));
}

EXPORT CUresult cuLibraryLoadData(CUlibrary *library, const void *image, int *options, void **values, unsigned count,
                                  int *library_options, void **library_values, unsigned library_count)
{
    LOAD_LIBRARY(library, bytes_of_image(image),
         CALL(cuLibraryLoadData, library, image, options, values, count, library_options, library_values,
              library_count));
}

EXPORT CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, int *options, void **values, unsigned count,
                                      int *library_options, void **library_values, unsigned library_count)
{
    LOAD_LIBRARY(library, bytes_of_file(path),
         CALL(cuLibraryLoadFromFile, library, path, options, values, count, library_options, library_values,
              library_count));
}

EXPORT CUresult cuLibraryUnload(CUlibrary library)
{
    return unload(run_library_unload, CHARGE_LIBRARY, number(library));
}
