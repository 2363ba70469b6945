/* Modules from PTX text, their functions and variables. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state.h"

#define MAX_PTX (64u << 20)
#define GRAIN 512u

/* Options of cuModuleLoadDataEx that are honoured. */
enum { JIT_INFO_LOG = 3, JIT_INFO_LOG_SIZE = 4, JIT_ERROR_LOG = 5, JIT_ERROR_LOG_SIZE = 6 };

static CUmodule modules;

static KNOWS(module_is_known, CUmodule, modules)

bool function_is_known(CUfunction wanted)
{
    for (CUmodule module = modules; module != NULL; module = module->next)
        for (CUfunction function = module->functions; function != NULL; function = function->next)
            if (function == wanted)
                return true;
    return false;
}

static void free_module(CUmodule module)
{
    UNLINK(modules, module);
    memory_drop_module(module);
    while (module->functions != NULL) {
        CUfunction gone = module->functions;
        module->functions = gone->next;
        free(gone->parameters);
        free(gone);
    }
    if (module->accounted > 0)
        memory_account(module->context, SIM_FREE, module->accounted, NULL);
    ptx_free(module->ptx);
    free(module);
}

void modules_drop(CUcontext context)
{
    for (CUmodule module = modules, next; module != NULL; module = next) {
        next = module->next;
        if (module->context == context)
            free_module(module);
    }
}

void modules_drop_library(CUlibrary library)
{
    for (CUmodule module = modules, next; module != NULL; module = next) {
        next = module->next;
        if (module->library == library)
            free_module(module);
    }
}

CUresult jit_logs_find(unsigned count, const int *options, void **values, struct jit_logs *logs)
{
    memset(logs, 0, sizeof *logs);
    if (count > 0 && (options == NULL || values == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++)
        if (options[i] == JIT_ERROR_LOG)
            logs->error = values[i];
        else if (options[i] == JIT_ERROR_LOG_SIZE) {
            logs->error_size = (unsigned)(uintptr_t)values[i];
            logs->error_length = &values[i];
        } else if (options[i] == JIT_INFO_LOG_SIZE)
            logs->info_length = &values[i];
    return 0;
}

static void write_logs(const struct jit_logs *logs, const char *message)
{
    size_t written = 0;
    if (logs->error != NULL && logs->error_size > 0) {
        snprintf(logs->error, logs->error_size, "%s", message);
        written = strlen(logs->error);
    }
    if (logs->error_length != NULL)
        *logs->error_length = (void *)(uintptr_t)written;
    if (logs->info_length != NULL)
        *logs->info_length = NULL;
}

static CUresult parse_text(const struct sim_gpu *gpu, const char *text, size_t length,
                           const struct jit_logs *logs, struct ptx_module **made)
{
    static const CUresult results[] = {[PTX_FINE] = 0, [PTX_INVALID] = CUDA_ERROR_INVALID_PTX,
        [PTX_NEWER_ISA] = CUDA_ERROR_UNSUPPORTED_PTX_VERSION, [PTX_NONE] = CUDA_ERROR_INVALID_IMAGE};
    char message[512];
    enum ptx_problem problem;
    *made = ptx_load(text, length, gpu->cc_major * 10 + gpu->cc_minor, &problem, message, sizeof message);
    write_logs(logs, message);
    return *made == NULL ? results[problem] : 0;
}

CUresult image_parse(const struct sim_gpu *gpu, const void *image, const struct jit_logs *logs,
                     struct ptx_module **made)
{
    uint32_t magic;
    memcpy(&magic, image, sizeof magic);
    /* ELF and two kinds of fat binaries hold machine code of real GPUs. */
    if (magic == 0x464c457fu || magic == 0x466243b1u || magic == 0xba55ed50u) {
        write_logs(logs, "machine code of GPUs does not run on a simulated one; PTX does");
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    return parse_text(gpu, image, strnlen(image, MAX_PTX), logs, made);
}

CUresult module_add(CUcontext context, struct ptx_module *ptx, CUlibrary library, CUmodule *made)
{
    uint64_t bytes = (ptx_variable_bytes(ptx) + GRAIN - 1) / GRAIN * GRAIN;
    CUmodule module = calloc(1, sizeof *module);
    CUresult result = module == NULL ? CUDA_ERROR_OUT_OF_MEMORY : context_heap(context);
    if (result == 0 && bytes > 0)
        result = memory_account(context, SIM_ALLOCATE, bytes, NULL);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && module != NULL && pools_give_up(context->device))
        result = memory_account(context, SIM_ALLOCATE, bytes, NULL);
    if (result != 0) {
        free(module);
        ptx_free(ptx);
        return result;
    }
    *module = (struct cuda_module){.context = context, .library = library, .ptx = ptx, .accounted = bytes,
                                   .next = modules};
    modules = module;
    *made = module;
    return 0;
}

CUmodule module_of_library(CUlibrary library, CUcontext context)
{
    CUmodule module = modules;
    while (module != NULL && (module->library != library || module->context != context))
        module = module->next;
    return module;
}

EXPORT CUresult cuModuleLoadDataEx(CUmodule *made, const void *image, unsigned count, int *options,
                                   void **values)
{
    WITH_CONTEXT(context);
    struct jit_logs logs;
    if (made == NULL || image == NULL)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    struct ptx_module *ptx;
    CUresult result = capture_refuses_unsafe();
    if (result == 0)
        result = jit_logs_find(count, options, values, &logs);
    if (result == 0)
        result = image_parse(&context->device->gpu, image, &logs, &ptx);
    FINISH(result != 0 ? result : module_add(context, ptx, NULL, made));
}

EXPORT CUresult cuModuleLoadData(CUmodule *made, const void *image)
{
    return cuModuleLoadDataEx(made, image, 0, NULL, NULL);
}

EXPORT CUresult cuModuleLoadFatBinary(CUmodule *made, const void *image)
{
    return cuModuleLoadDataEx(made, image, 0, NULL, NULL);
}

/* The whole file, with a zero behind it. */
CUresult file_read(const char *name, char **text)
{
    FILE *file = fopen(name, "re");
    *text = NULL;
    if (file == NULL)
        return CUDA_ERROR_FILE_NOT_FOUND;
    size_t room = 0, length = 0, got = 1;
    while (got > 0 && length < MAX_PTX) {
        if (room - length < 65536) {
            char *grown = realloc(*text, room = room * 2 + 131072);
            if (grown == NULL)
                break;
            *text = grown;
        }
        got = fread(*text + length, 1, 65535, file);
        length += got;
        (*text)[length] = '\0';
    }
    fclose(file);
    CUresult result = *text == NULL || got > 0 ? CUDA_ERROR_OUT_OF_MEMORY
                      : length < 4             ? CUDA_ERROR_INVALID_IMAGE
                                               : 0;
    if (result != 0) {
        free(*text);
        *text = NULL;
    }
    return result;
}

EXPORT CUresult cuModuleLoad(CUmodule *made, const char *name)
{
    WITH_CONTEXT(context);
    char *text;
    if (made == NULL || name == NULL)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    CUresult result = file_read(name, &text);
    if (result == 0)
        result = cuModuleLoadData(made, text);
    free(text);
    FINISH(result);
}

EXPORT CUresult cuModuleUnload(CUmodule module)
{
    WITH_CONTEXT(context);
    if (!module_is_known(module))
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    if (module->library != NULL) /* cuLibraryUnload ends it */
        FINISH(CUDA_ERROR_NOT_PERMITTED);
    free_module(module);
    FINISH(0);
}

CUresult module_function(CUmodule module, const char *name, CUfunction *made)
{
    struct ptx_kernel *kernel = ptx_kernel_named(module->ptx, name);
    if (kernel == NULL)
        return CUDA_ERROR_NOT_FOUND;
    CUfunction function = module->functions;
    while (function != NULL && function->kernel != kernel)
        function = function->next;
    if (function == NULL) {
        function = calloc(1, sizeof *function);
        if (function == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        ptx_facts(kernel, &function->facts);
        function->parameters = calloc(1, function->facts.parameter_bytes + 1);
        if (function->parameters == NULL) {
            free(function);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        function->module = module;
        function->kernel = kernel;
        function->max_dynamic_shared = function_default_shared(&function->facts);
        function->block[0] = function->block[1] = function->block[2] = 1;
        function->next = module->functions;
        module->functions = function;
    }
    *made = function;
    return 0;
}

EXPORT CUresult cuModuleGetFunction(CUfunction *made, CUmodule module, const char *name)
{
    WITH_CONTEXT(context);
    if (made == NULL || name == NULL)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    FINISH(module_is_known(module) ? module_function(module, name, made) : CUDA_ERROR_INVALID_HANDLE);
}

EXPORT CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *size, CUmodule module, const char *name)
{
    WITH_CONTEXT(context);
    uint64_t begin, bytes;
    if (name == NULL)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    if (!module_is_known(module))
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    if (!ptx_variable(module->ptx, name, &begin, &bytes))
        FINISH(CUDA_ERROR_NOT_FOUND);
    /* From now on copies may go there. */
    if (memory_at(begin) == NULL && !memory_add_module(module, begin, bytes))
        FINISH(CUDA_ERROR_OUT_OF_MEMORY);
    if (address != NULL)
        *address = begin;
    if (size != NULL)
        *size = bytes;
    FINISH(0);
}

EXPORT CUresult cuModuleGetLoadingMode(int *mode)
{
    if (mode == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = 2; /* lazy: code of libraries, in each context at its first use */
    return 0;
}
