/* A loaded module: its kernels and variables. */
#include <stdlib.h>
#include <string.h>

#include "code.h"

static void free_kernel(struct ptx_kernel *kernel)
{
    for (unsigned i = 0; i < kernel->parameter_count; i++)
        free(kernel->parameters[i].name);
    free(kernel->parameters);
    free(kernel->filled);
    free(kernel->code);
    free(kernel->name);
    free(kernel);
}

void ptx_free(struct ptx_module *module)
{
    if (module == NULL)
        return;
    while (module->kernels != NULL) {
        struct ptx_kernel *gone = module->kernels;
        module->kernels = gone->next;
        free_kernel(gone);
    }
    while (module->variables != NULL) {
        struct variable *gone = module->variables;
        module->variables = gone->next;
        free(gone->name);
        free(gone->block);
        free(gone);
    }
    free(module);
}

struct ptx_kernel *ptx_kernel_named(struct ptx_module *module, const char *name)
{
    struct ptx_kernel *kernel = module->kernels;
    while (kernel != NULL && strcmp(kernel->name, name) != 0)
        kernel = kernel->next;
    return kernel;
}

struct ptx_kernel *ptx_kernel_after(struct ptx_module *module, const struct ptx_kernel *kernel)
{
    return kernel == NULL ? module->kernels : kernel->next;
}

const char *ptx_kernel_name(const struct ptx_kernel *kernel)
{
    return kernel->name;
}

bool ptx_variable(struct ptx_module *module, const char *name, uint64_t *address, uint64_t *size)
{
    for (struct variable *v = module->variables; v != NULL; v = v->next)
        if (strcmp(v->name, name) == 0) {
            *address = (uint64_t)(uintptr_t)v->memory;
            *size = v->size;
            return true;
        }
    return false;
}

uint64_t ptx_variable_bytes(const struct ptx_module *module)
{
    uint64_t bytes = 0;
    for (const struct variable *v = module->variables; v != NULL; v = v->next)
        bytes += v->size;
    return bytes;
}

void ptx_facts(const struct ptx_kernel *kernel, struct ptx_kernel_facts *facts)
{
    *facts = (struct ptx_kernel_facts){
        /* As if a register allocator had been at work, within the hardware's limit. */
        .registers = kernel->register_count < 32 ? kernel->register_count : 32,
        .shared_bytes = kernel->shared_bytes, .local_bytes = kernel->local_bytes,
        .max_threads = kernel->max_threads, .target = kernel->module->target,
        .parameter_count = kernel->parameter_count,
        .parameter_bytes = kernel->parameter_bytes};
}

void ptx_parameter(const struct ptx_kernel *kernel, unsigned index, size_t *offset, size_t *size)
{
    *offset = kernel->parameters[index].offset;
    *size = kernel->parameters[index].size;
}
