/* The PTX interpreter, as libcuda uses it. */
#ifndef DIVVY_PTX_H
#define DIVVY_PTX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ptx_module;
struct ptx_kernel;

enum ptx_problem {
    PTX_FINE,
    PTX_INVALID,   /* not of the subset, or of a newer .target than the GPU */
    PTX_NEWER_ISA, /* its .version is newer than ours */
    PTX_NONE       /* it does not begin with .version */
};

/* Read PTX for a GPU of compute capability 10 * major + minor. On a problem the result is NULL
 * and `message` says which, with line and opcode. */
struct ptx_module *ptx_load(const char *text, size_t length, unsigned capability,
                            enum ptx_problem *problem, char *message, size_t message_size);
void ptx_free(struct ptx_module *module);

struct ptx_kernel *ptx_kernel_named(struct ptx_module *module, const char *name);
struct ptx_kernel *ptx_kernel_after(struct ptx_module *module, const struct ptx_kernel *kernel); /* NULL: the first */
const char *ptx_kernel_name(const struct ptx_kernel *kernel);

/* Module variables in global and constant memory; false if there is none of that name. */
bool ptx_variable(struct ptx_module *module, const char *name, uint64_t *address, uint64_t *size);

uint64_t ptx_variable_bytes(const struct ptx_module *module); /* of all of them */

struct ptx_kernel_facts {
    unsigned registers, shared_bytes, local_bytes, max_threads;
    unsigned target; /* 75: sm_75 */
    unsigned parameter_count;
    size_t parameter_bytes;
};
void ptx_facts(const struct ptx_kernel *kernel, struct ptx_kernel_facts *facts);
void ptx_parameter(const struct ptx_kernel *kernel, unsigned index, size_t *offset, size_t *size);

enum ptx_stop { PTX_DONE, PTX_ILLEGAL_ADDRESS, PTX_MISALIGNED, PTX_TRAP, PTX_ASSERT, PTX_NO_MEMORY };

struct ptx_launch {
    const struct ptx_kernel *kernel;
    unsigned grid[3], block[3];
    unsigned dynamic_shared;
    const uint8_t *parameters; /* parameter_bytes of them */
    /* The allocation around an address of device memory: its begin and end. */
    bool (*allocation)(void *context, uint64_t address, uint64_t *begin, uint64_t *end);
    void *context;
    uint64_t spoil; /* 0, or a number that picks one result to be computed wrongly */
    /* Filled in: nanoseconds that its longest block slept, and where it stopped. */
    uint64_t slept;
    unsigned line;
    uint64_t address;
};
enum ptx_stop ptx_run(struct ptx_launch *launch);

#endif
