/* What the opaque pointers of NVML point at, and the connection behind them. */
#ifndef DIVVY_NVML_HANDLES_H
#define DIVVY_NVML_HANDLES_H

#include <stdbool.h>
#include <stddef.h>

#include "../common/protocol.h"
#include "nvml.h"

struct nvml_device { /* a GPU, or a MIG device (gi and ci set) */
    uint32_t gpu, minor;
    uint32_t gi, ci; /* SIM_NO_ID for a GPU */
    uint64_t serial;
};

struct nvml_instance { /* a GPU instance, or a compute instance (ci set) */
    uint32_t gpu, gi, ci;
    uint64_t serial;
};

/* session.c */
int session_request(enum sim_type type, void *body, size_t length);
bool session_open(void);
int session_gpu(uint32_t gpu, struct sim_gpu *state);      /* opens the GPU */
int session_identity(uint32_t gpu, struct sim_gpu *state); /* leaves it closed */
uint32_t session_all_gpus(void); /* of the node, visible or not */

/* handles.c */
nvmlDevice_t handle_gpu(uint32_t gpu, uint32_t minor);
nvmlDevice_t handle_mig(uint32_t gpu, uint32_t minor, uint32_t gi, uint32_t ci, uint64_t serial);
struct nvml_instance *handle_instance(uint32_t gpu, uint32_t gi, uint32_t ci, uint64_t serial);
bool handle_is_device(const void *pointer);
bool handle_is_instance(const void *pointer);

/* devices.c: checks of arguments that most functions begin with */
int device_state(nvmlDevice_t device, struct sim_gpu *state);     /* GPU or MIG device */
int gpu_state(nvmlDevice_t device, struct sim_gpu *state);        /* GPU alone; MIG: NOT_SUPPORTED */
int visible_gpu(unsigned index, struct sim_gpu *state);           /* the index-th visible one */
int mig_instances(nvmlDevice_t device, struct sim_instances *all);
int mig_of(nvmlDevice_t device, struct sim_instances *all, struct sim_gpu_instance **gi,
           struct sim_compute_instance **ci);
int profile_at(uint32_t gpu, uint32_t index, struct sim_profile *profile);
int copy_text(char *target, unsigned length, const char *source);
#define COPY_FIXED(target, source) snprintf(target, sizeof target, "%s", source)

/* A function that stores one value of a GPU's state; one of GPUs on which that is not supported. */
#define READING(name, type, value) READING_UNLESS(name, type, false, value)
#define READING_UNLESS(name, type, lacks, value)                  \
    EXPORT nvmlReturn_t name(nvmlDevice_t device, type *target)    \
    {                                                              \
        struct sim_gpu state;                                      \
        int status = gpu_state(device, &state);                    \
        if (status == 0 && target == NULL)                         \
            return SIM_ERR_INVALID_ARGUMENT;                       \
        if (status == 0 && (lacks))                                \
            return SIM_ERR_NOT_SUPPORTED;                          \
        if (status == 0)                                           \
            *target = (value);                                     \
        return status;                                             \
    }

/* gpu_instances.c */
int instance_state(nvmlGpuInstance_t instance, struct sim_gpu *state, struct sim_instances *all,
                   struct sim_gpu_instance **gi);

/* cap_nodes.c */
void cap_nodes_make(uint32_t gpu_minor, uint32_t gi, uint32_t ci);

#endif
