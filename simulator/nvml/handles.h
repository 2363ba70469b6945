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

/* cap_nodes.c */
void cap_nodes_make(uint32_t gpu_minor, uint32_t gi, uint32_t ci);

#endif
