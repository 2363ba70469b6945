/* The messages between the driver's user-space parts and the daemon that plays its kernel part.
 *
 * Every frame is a header and one fixed structure. A request's length must be exactly that of
 * its type; whoever sends anything else is dropped. An answer carries a status (an NVML return
 * code) and, when that is 0, the structure of the request's type.
 */
#ifndef DIVVY_PROTOCOL_H
#define DIVVY_PROTOCOL_H

#include <stdint.h>

#define SIM_MAGIC 0x56564944u /* "DIVV" */
#define SIM_PROTOCOL 1
/* By the name that nvidia-persistenced has for its own: NVIDIA's CDI specifications mount it. */
#define SIM_SOCKET "/run/nvidia-persistenced/socket"

#define SIM_MAX_GPUS 16
#define SIM_MAX_PROFILES 24
#define SIM_MAX_STARTS 8
#define SIM_MAX_GIS 15
#define SIM_MAX_CIS 8
#define SIM_MAX_LINKS 18
#define SIM_MAX_PROCESSES 200
#define SIM_LINK_NONE (-1)
#define SIM_LINK_SWITCH (-2)
#define SIM_NO_ID 0xFFFFFFFFu
#define SIM_NO_LIMIT UINT64_MAX

enum sim_type {
    SIM_HELLO = 1,
    SIM_GPU,
    SIM_PROFILE,
    SIM_INSTANCES,
    SIM_PROCESSES,
    SIM_SET_MIG_MODE,
    SIM_CREATE_GI,
    SIM_DESTROY_GI,
    SIM_CREATE_CI,
    SIM_DESTROY_CI,
    SIM_SET_COMPUTE_MODE,
    SIM_SET_TIMESLICE,
    SIM_RESET,
    SIM_WATCH,
    SIM_EVENT, /* from the daemon alone, after SIM_WATCH */
    SIM_OPEN_CONTEXT,
    SIM_CLOSE_CONTEXT,
    SIM_ALLOCATE,
    SIM_FREE,
    SIM_BUSY, /* has no answer */
    SIM_REPORT_XID,
    SIM_FAULT,
    SIM_SWITCH_DRIVER,
    SIM_WORK,   /* adds GPU time to a context's queue and says how much is left of it */
    SIM_ATTACH, /* the connection stands for an open device node of one GPU */
    SIM_SEGMENT, /* holds memory that several processes can hold, or no longer */
    SIM_ADMIT,   /* from an MPS server alone: a process is its client, or no longer */
    SIM_MEMORY_LIMITS, /* of a control group, to be set or read */
    SIM_TYPE_COUNT
};

struct sim_header {
    uint32_t magic;
    uint16_t protocol;
    uint16_t type;
    uint32_t length; /* of what follows the header */
    int32_t status;  /* 0 in requests */
};

enum sim_client_kind { SIM_CLIENT_NVML = 1, SIM_CLIENT_CUDA, SIM_CLIENT_TOOL, SIM_CLIENT_MPS };

struct sim_hello {
    char version[32]; /* of the library; in the answer that of the loaded driver */
    uint32_t kind;
    uint32_t gpu_count;
};

/* One GPU: what it is and how it is at this moment. */
struct sim_gpu {
    uint32_t index;
    uint32_t minor;
    char product[96];
    char uuid[48];
    char bus_id[32];
    char serial[32];
    uint32_t architecture; /* NVML_DEVICE_ARCH_* */
    uint32_t cc_major, cc_minor;
    uint32_t pci_domain, pci_bus, pci_device;
    uint32_t pci_device_id, pci_subsystem_id;
    int32_t numa;
    uint64_t memory_total, memory_reserved, memory_used;
    uint64_t limit, limit_used; /* of the caller's control group; limit 0: none */
    uint32_t sms;
    uint32_t sm_clock_mhz, sm_clock_max_mhz, memory_clock_mhz;
    uint32_t power_mw, power_limit_mw;
    uint64_t energy_mj;
    uint32_t temperature;
    uint32_t utilisation, memory_utilisation;
    uint32_t link_count;
    int8_t link_peer[SIM_MAX_LINKS]; /* GPU index, SIM_LINK_SWITCH or SIM_LINK_NONE */
    uint8_t lost;
    uint8_t bad_arithmetic;
    uint8_t no_fabric; /* its NVLink switches are not set up */
    uint8_t hot;       /* the hardware slows it down */
    uint8_t narrow;    /* half of its PCIe lanes are down */
    uint8_t of_system; /* it has no memory of its own and uses the node's */
    uint8_t numa_node; /* its memory is a NUMA node of the system: 0, or the node's number */
    uint8_t recovery;  /* NVML_GPU_RECOVERY_ACTION_* */
    uint64_t link_errors; /* of its first NVLink */
    uint32_t compute_mode;
    uint32_t timeslice; /* of `nvidia-smi compute-policy`: 0 default, 1 short, 2 medium, 3 long */
    uint32_t mig_capable, mig_mode, mig_pending;
    uint32_t compute_slices, memory_slices, profile_count;
    uint64_t ecc_corrected_volatile, ecc_uncorrected_volatile;
    uint64_t ecc_corrected_aggregate, ecc_uncorrected_aggregate;
};

struct sim_placement {
    uint32_t start, size;
};

/* One GPU-instance profile of a GPU's model. */
struct sim_profile {
    uint32_t gpu, index; /* the request */
    char name[32];
    uint32_t id, nvml_profile;
    uint32_t compute_slices, memory_slices, max_count, sms;
    uint32_t copy_engines, decoders, encoders, jpegs, ofas;
    uint64_t memory_mib;
    uint32_t media_extensions; /* 1: at most one such instance on a GPU */
    uint32_t start_count;
    uint32_t starts[SIM_MAX_STARTS];
    uint32_t room; /* how many more fit now */
};

struct sim_compute_instance {
    uint32_t id, profile; /* profile: NVML_COMPUTE_INSTANCE_PROFILE_* */
    uint32_t slices, start, sms, reserved;
    uint64_t serial;
    char uuid[48];
};

struct sim_gpu_instance {
    uint32_t id, profile_index;
    struct sim_placement placement;
    uint64_t serial;
    uint64_t memory_total, memory_used;
    uint32_t ci_count, reserved;
    struct sim_compute_instance ci[SIM_MAX_CIS];
};

struct sim_instances {
    uint32_t gpu, count;
    struct sim_gpu_instance gi[SIM_MAX_GIS];
};

struct sim_process {
    uint32_t pid, gi, ci;
    uint32_t by_mps; /* 1: a client of an MPS server */
    uint64_t bytes;
    uint32_t utilisation, reserved; /* per cent of the GPU's time */
};

struct sim_processes {
    uint32_t gpu, count;
    struct sim_process process[SIM_MAX_PROCESSES];
};

/* MIG mode, compute mode, reset: a GPU, a value, and what NVML calls the activation status. */
struct sim_setting {
    uint32_t gpu, value;
    int32_t activation;
    uint32_t reserved;
};

/* Create or destroy an instance; `start` SIM_NO_ID lets the driver choose. */
struct sim_instance_change {
    uint32_t gpu, gi, ci, profile;
    uint32_t start, size;
    uint64_t serial;
};

/* Subscribe to events of a GPU: bits as in nvmlEventType*. */
struct sim_watch {
    uint32_t gpu, reserved;
    uint64_t types;
};

struct sim_event {
    uint32_t gpu, gi, ci, reserved;
    uint64_t type, data;
};

/* A context on a GPU (gi and ci SIM_NO_ID) or a MIG device, and memory in it. */
struct sim_context {
    uint32_t gpu, gi, ci, reserved;
    uint64_t bytes;
    uint64_t total, free;
};

/* Memory that processes share, by a number that only they and the kernel know. */
struct sim_segment {
    uint32_t gpu, gi, ci, hold;
    uint64_t id, bytes;
};

/* GPU time in nanoseconds: what to add, and how long until the context's queue is empty. */
struct sim_work {
    uint32_t gpu, gi, ci, reserved;
    uint64_t add, left;
};

enum sim_admission_change { SIM_MPS_ADMIT = 1, SIM_MPS_FORGET, SIM_MPS_TERMINATE };

/* A process as an MPS server's client: what it may take of a GPU's memory, 0 without a limit. */
struct sim_admission {
    uint32_t gpu, pid, change, reserved;
    uint64_t limit;
};

/* What the processes of a control group, named by its directory's inode, may take of a GPU. */
struct sim_memory_limits {
    uint32_t gpu, set;
    uint64_t group;
    uint64_t soft, hard; /* hard SIM_NO_LIMIT: none */
    uint64_t used;       /* in the answer */
};

struct sim_busy {
    uint32_t gpu, reserved;
    uint64_t nanoseconds;
};

enum sim_fault {
    SIM_FAULT_CLEAR = 1,
    SIM_FAULT_XID,
    SIM_FAULT_LOST,
    SIM_FAULT_ECC,
    SIM_FAULT_SLOW,
    SIM_FAULT_BAD_MATH,
    SIM_FAULT_NO_ACTIVATION,
    SIM_FAULT_LOAD,
    SIM_FAULT_CODE,
    SIM_FAULT_CONTEXT_MEMORY,
    SIM_FAULT_NO_FABRIC,
    SIM_FAULT_HOT,
    SIM_FAULT_NARROW,
    SIM_FAULT_NUMA_NODE,
    SIM_FAULT_LINK_ERRORS,
    SIM_FAULT_RECOVERY,
    SIM_FAULT_MPS_WEDGE,
    SIM_FAULT_COUNT
};

struct sim_fault_order {
    uint32_t gpu, kind;
    uint64_t value;
    uint32_t gi, ci;
};

struct sim_switch {
    char version[32];
};

#define SIM_MAX_BODY (sizeof(struct sim_instances))

#endif
