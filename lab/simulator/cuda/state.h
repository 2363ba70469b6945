/* What libcuda knows of its process. All of it is guarded by one lock, which every call takes. */
#ifndef DIVVY_CUDA_STATE_H
#define DIVVY_CUDA_STATE_H

#include <stdbool.h>

#include "../common/protocol.h"
#include "../ptx/ptx.h"
#include "cuda.h"

#define MAX_DEVICES SIM_MAX_GPUS
/* Shared memory that a block may have by choice, in bytes. */
#define OPT_IN(gpu) (((gpu)->cc_major == 7 ? 64u : (gpu)->cc_major == 8 ? ((gpu)->cc_minor == 0 ? 163u : 99u) : 227u) << 10)

struct device { /* a GPU, or a MIG device */
    CUdevice ordinal;
    struct sim_gpu gpu;
    uint32_t gi, ci; /* SIM_NO_ID for a whole GPU */
    char name[160];
    char uuid[48]; /* of the MIG device, or of the GPU */
    uint64_t memory_total;
    uint32_t sms;
    CUcontext primary;
    unsigned primary_users, primary_flags;
};

struct cuda_context {
    struct device *device;
    bool is_primary;
    unsigned flags;
    size_t limits[6];
    uint64_t heap;  /* memory for malloc in kernels, at the daemon */
    bool has_modules; /* or had: then it has its heap */
    bool has_work;  /* the daemon may have GPU time of it queued */
    uint64_t work;  /* nanoseconds of GPU time that it has queued so far */
    CUstream legacy; /* the default stream of all threads, once it is used */
    CUresult error; /* once something went wrong on the device, every call says so */
    CUcontext next;
};

struct cuda_function {
    CUmodule module;
    struct ptx_kernel *kernel;
    struct ptx_kernel_facts facts;
    unsigned max_dynamic_shared;
    /* The old way of launching sets these one by one. */
    unsigned block[3], dynamic_shared;
    uint8_t *parameters;
    struct cuda_function *next;
};

struct cuda_module {
    CUcontext context;
    CUlibrary library; /* that it is the context's own of; NULL when the program loaded it */
    struct ptx_module *ptx;
    struct cuda_function *functions;
    uint64_t accounted; /* its variables, at the daemon */
    CUmodule next;
};

enum memory_kind {
    MEMORY_DEVICE,
    MEMORY_MANAGED,
    MEMORY_HOST,
    MEMORY_REGISTERED,
    MEMORY_MODULE,
    MEMORY_ARRAY,
    MEMORY_GRAPH,  /* that a launch of a graph allocated */
    MEMORY_CACHED, /* freed, and still its pool's */
    MEMORY_MAPPED, /* of an allocation handle, or another process's */
};

struct allocation {
    uint64_t begin, size;
    uint64_t accounted; /* at the daemon */
    enum memory_kind kind;
    CUcontext context;
    CUmodule module;
    CUmemoryPool pool;
    int file;           /* what other processes can map, -1 for none */
    int preferred;      /* managed memory: cuMemAdvise's location, of no kind but a device or the CPU */
    int prefetched;     /* where to it went last */
};

/* session.c */
void driver_lock(void);
void driver_unlock(void);
void driver_pause(double seconds); /* gives the lock away until something changed, or so long (0: forever) */
void driver_changed(void);         /* ends the pauses of all threads */
CUresult driver_start(void);
CUresult driver_ready(void); /* initialised, not in a forked child, not in a host function */
void driver_in_host_function(bool inside); /* this thread */
CUresult driver_call(enum sim_type type, void *body, size_t length, CUresult no_memory);
void driver_tell(enum sim_type type, const void *body, size_t length);
double driver_seconds(void);

/* devices.c, visible.c */
unsigned find_visible_devices(struct device *devices, uint32_t gpu_count);
struct device *device_at(CUdevice ordinal);
unsigned device_count(void);
void devices_find(uint32_t gpu_count);

/* mps.c */
CUresult mps_join(void);
void mps_leave(void);
bool mps_hides(uint32_t gpu); /* the server does not have it */
uint32_t mps_sms(uint32_t sms); /* those that the client may use */

/* contexts.c */
CUresult context_current(CUcontext *context); /* the calling thread's, sound and without error */
bool context_is_known(CUcontext context);
CUresult context_make(struct device *device, unsigned flags, bool is_primary, CUcontext *made);
void context_end(CUcontext context);
CUresult context_heap(CUcontext context); /* takes what the limit says */

/* memory.c */
CUresult memory_new(CUcontext context, size_t bytes, enum memory_kind kind, uint64_t *address);
struct allocation *memory_at(uint64_t address); /* the allocation that holds it */
bool memory_holds(uint64_t address, size_t bytes);
bool memory_add_module(CUmodule module, uint64_t address, uint64_t size);
void memory_drop_module(CUmodule module);
void memory_drop_context(CUcontext context);

struct allocation *memory_exactly(uint64_t address, enum memory_kind kind); /* that begins there */
bool memory_add(struct allocation one);
void memory_drop(struct allocation *one); /* gives it back to the system */
CUresult memory_give_back(uint64_t address); /* in the order of a stream */
CUresult memory_account(CUcontext context, enum sim_type type, uint64_t bytes, struct sim_context *answer);
struct allocation *memory_each(size_t at); /* NULL behind the last */

/* pools.c */
void pools_trim(const struct device *device); /* to what their thresholds let them keep */
bool pool_take_back(struct allocation *one);
void pool_lose(struct allocation *one);
bool pools_give_up(const struct device *device); /* whether anything came free */

/* graph_memory.c */
CUresult graph_memory_take(CUcontext context, CUdeviceptr address);
void graph_memory_left(CUdeviceptr address); /* it is no longer an allocation */
CUresult graph_memory_trim(const struct device *device);

/* work.c */
CUresult work_queue(CUcontext context, uint64_t nanoseconds);
bool work_done(CUcontext context, uint64_t mark);
void work_wait(CUcontext context, uint64_t mark); /* gives the lock away meanwhile */

/* captures.c */
CUresult capture_refuses_unsafe(void); /* what captures do not see */

/* launch.c */
struct launch {
    CUfunction function;
    unsigned grid[3], block[3], shared;
    uint8_t parameters[4096];
};
CUresult launch_check(const struct launch *launch);
CUresult launch_parameters(CUfunction function, void **pointers, void **extra, uint8_t *parameters);
CUresult launch_run(CUcontext context, const struct launch *launch);

/* copies.c */
CUresult fill_check(CUdeviceptr to, unsigned width, size_t elements);
void fill_run(CUdeviceptr to, uint32_t value, unsigned width, size_t elements);

/* modules.c */
struct jit_logs {
    char *error;
    size_t error_size;
    void **error_length; /* where to say how much was written */
    void **info_length;
};
CUresult jit_logs_find(unsigned count, const int *options, void **values, struct jit_logs *logs);
CUresult image_parse(const struct sim_gpu *gpu, const void *image, const struct jit_logs *logs,
                     struct ptx_module **made);
CUresult file_read(const char *name, char **text);
CUresult module_add(CUcontext context, struct ptx_module *ptx, CUlibrary library, CUmodule *made);
CUmodule module_of_library(CUlibrary library, CUcontext context); /* NULL where it has not been used yet */
CUresult module_function(CUmodule module, const char *name, CUfunction *made);
CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *size, CUmodule module, const char *name);
void modules_drop(CUcontext context);
void modules_drop_library(CUlibrary library);
bool function_is_known(CUfunction function);

/* libraries.c */
CUresult function_resolve(CUcontext context, CUfunction *function); /* a kernel is one in each context */

/* functions.c */
CUresult function_fact(const struct sim_gpu *gpu, const struct ptx_kernel_facts *facts, unsigned max_dynamic_shared,
                       int which, int *value);
bool function_takes_shared(const struct sim_gpu *gpu, const struct ptx_kernel_facts *facts, int bytes);
unsigned function_default_shared(const struct ptx_kernel_facts *facts);

/* A function that says whether something is in a list, and its end there. */
#define KNOWS(function, type, list)                      \
    bool function(type wanted)                           \
    {                                                    \
        type at = list;                                  \
        while (at != NULL && at != wanted)               \
            at = at->next;                               \
        return at != NULL;                               \
    }
#define UNLINK(list, member)                             \
    do {                                                 \
        __typeof__(list) *at_ = &(list);                 \
        while (*at_ != (member))                         \
            at_ = &(*at_)->next;                         \
        *at_ = (member)->next;                           \
    } while (0)

/* Begin and end of an entry point: takes the lock and checks for the current context. */
#define WITH_CONTEXT(context)                            \
    CUcontext context;                                   \
    driver_lock();                                       \
    CUresult result_ = context_current(&context);        \
    if (result_ != 0) {                                  \
        driver_unlock();                                 \
        return result_;                                  \
    }                                                    \
    (void)context
#define FINISH(result)                                   \
    do {                                                 \
        CUresult end_ = (result);                        \
        driver_unlock();                                 \
        return end_;                                     \
    } while (0)

#endif
