/* Contexts. What one takes is the driver's secret: it is charged by what NVML last saw contexts of the
 * share take. The end of a context is the end of what was allocated in it. */
#include <pthread.h>

#include "driver.h"
#include "gate.h"
#include "memory.h"

#define LIMIT_STACK 0 /* to the last: stack, buffer of printf, heap */
#define LIMIT_HEAP 2
#define MULTIPROCESSORS 16 /* of cuDeviceGetAttribute */
#define THREADS_OF_ONE 39

EXPORT CUresult cuCtxCreate(void **context, unsigned flags, CUdevice device);
EXPORT CUresult cuCtxCreate_v2(void **context, unsigned flags, CUdevice device);
EXPORT CUresult cuCtxCreate_v3(void **context, void *affinity, int count, unsigned flags, CUdevice device);
EXPORT CUresult cuCtxCreate_v4(void **context, void *parameters, unsigned flags, CUdevice device);
EXPORT CUresult cuCtxDestroy(void *context);
EXPORT CUresult cuCtxDestroy_v2(void *context);
EXPORT CUresult cuCtxSetLimit(int which, size_t value);
EXPORT CUresult cuDevicePrimaryCtxRetain(void **context, CUdevice device);
EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device);
EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device);
EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice device);
EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device);

CUresult cuCtxGetLimit(size_t *value, int which);
CUresult cuDeviceGetAttribute(int *value, int which, CUdevice device);
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active);

/* One primary context is made once, and a limit asked for once. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void contexts_in_child(void)
{
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

static CUresult reserve(struct charge *charge, CUdevice ordinal, bool *of_share)
{
    int device = tenant_device(ordinal);
    if (device == FOREIGN) {
        tenant_say_foreign();
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    }
    *of_share = device >= 0 && (account_attached() || tenant_start() == 0);
    if (!*of_share)
        return 0;
    *charge = (struct charge){.device = (unsigned)device, .bytes = account_context()};
    /* Also where nothing is known yet: none in a share that is full. */
    uint64_t least = charge->bytes == 0 ? 1 : charge->bytes;
    if (!tenant_reserve(charge->device, least))
        return CUDA_ERROR_OUT_OF_MEMORY;
    account_release(charge->device, least - charge->bytes);
    return 0;
}

static CUresult settle(CUresult result, void **context, struct charge *charge)
{
    if (result == 0)
        charge->context = *context;
    /* If the table cannot grow it is not charged: NVML's figure has it soon. */
    charge_settle(CHARGE_CONTEXT, result, result == 0 ? (uint64_t)(uintptr_t)*context : 0, charge);
    return result;
}

#define MAKE(call, context, device)                                                     \
    struct charge charge;                                                               \
    bool of_share;                                                                      \
    CUresult refusal = reserve(&charge, device, &of_share);                             \
    if (refusal != 0)                                                                   \
        return refusal;                                                                 \
    CUresult result = call;                                                             \
    return of_share ? settle(result, context, &charge) : result

EXPORT CUresult cuCtxCreate(void **context, unsigned flags, CUdevice device)
{
    MAKE(CALL(cuCtxCreate, context, flags, device), context, device);
}

EXPORT CUresult cuCtxCreate_v2(void **context, unsigned flags, CUdevice device)
{
    MAKE(CALL(cuCtxCreate_v2, context, flags, device), context, device);
}

EXPORT CUresult cuCtxCreate_v3(void **context, void *affinity, int count, unsigned flags, CUdevice device)
{
    MAKE(CALL(cuCtxCreate_v3, context, affinity, count, flags, device), context, device);
}

EXPORT CUresult cuCtxCreate_v4(void **context, void *parameters, unsigned flags, CUdevice device)
{
    MAKE(CALL(cuCtxCreate_v4, context, parameters, flags, device), context, device);
}

static bool is_active(CUdevice device)
{
    unsigned flags;
    int active = 0;
    return CALL(cuDevicePrimaryCtxGetState, device, &flags, &active) == 0 && active != 0;
}

static CUresult make_primary(void **context, CUdevice device)
{
    MAKE(CALL(cuDevicePrimaryCtxRetain, context, device), context, device);
}

EXPORT CUresult cuDevicePrimaryCtxRetain(void **context, CUdevice device)
{
    pthread_mutex_lock(&lock);
    CUresult result = is_active(device) ? CALL(cuDevicePrimaryCtxRetain, context, device) : make_primary(context, device);
    pthread_mutex_unlock(&lock);
    return result;
}

/* Around a call that may end a context: as soon as it has, another thread may be given a new one at the same
 * address. So what the old one has is put aside before, at an address that is no context's. */
static void begin_end(void *context, void *aside)
{
    gates_end(context);
    charges_move(context, aside);
}

static void finish_end(void *context, void *aside, bool gone)
{
    gates_ended(context, gone);
    if (!gone) {
        charges_move(aside, context);
        return;
    }
    charges_end(aside);
    pools_refresh(); /* they may have had memory in it */
}

static CUresult destroy(CUresult (*run)(void *), void *context)
{
    begin_end(context, &context);
    CUresult result = run(context);
    finish_end(context, &context, result == 0);
    return result;
}

static CUresult run_destroy(void *context)
{
    return CALL(cuCtxDestroy, context);
}

static CUresult run_destroy_v2(void *context)
{
    return CALL(cuCtxDestroy_v2, context);
}

EXPORT CUresult cuCtxDestroy(void *context)
{
    return destroy(run_destroy, context);
}

EXPORT CUresult cuCtxDestroy_v2(void *context)
{
    return destroy(run_destroy_v2, context);
}

/* The primary context of a device, which is only told to who retains it. */
static void *primary(CUdevice device)
{
    void *context = NULL;
    if (is_active(device) && CALL(cuDevicePrimaryCtxRetain, &context, device) == 0)
        CALL(cuDevicePrimaryCtxRelease_v2, device);
    return context;
}

static CUresult end_primary(CUresult (*run)(CUdevice), CUdevice device, bool whoever_uses_it)
{
    pthread_mutex_lock(&lock);
    void *context = primary(device);
    if (context != NULL)
        begin_end(context, &context);
    CUresult result = run(device);
    if (context != NULL)
        finish_end(context, &context, result == 0 && (whoever_uses_it || !is_active(device)));
    pthread_mutex_unlock(&lock);
    return result;
}

#define END_PRIMARY(name, whoever_uses_it)      \
    static CUresult run_##name(CUdevice device) \
    {                                           \
        return CALL(name, device);              \
    }                                           \
    EXPORT CUresult name(CUdevice device)       \
    {                                           \
        return end_primary(run_##name, device, whoever_uses_it); \
    }

END_PRIMARY(cuDevicePrimaryCtxRelease, false)
END_PRIMARY(cuDevicePrimaryCtxRelease_v2, false)
END_PRIMARY(cuDevicePrimaryCtxReset, true)
END_PRIMARY(cuDevicePrimaryCtxReset_v2, true)

/* What the driver takes for a limit of the current context: a stack for every thread that can run at once. */
static uint64_t bytes_of(int which, size_t value)
{
    CUdevice device;
    int multiprocessors = 1, threads = 1;
    uint64_t bytes;
    if (which == LIMIT_STACK && CALL(cuCtxGetDevice, &device) == 0) {
        CALL(cuDeviceGetAttribute, &multiprocessors, MULTIPROCESSORS, device);
        CALL(cuDeviceGetAttribute, &threads, THREADS_OF_ONE, device);
    }
    return __builtin_mul_overflow((uint64_t)multiprocessors * (uint64_t)threads, value, &bytes) ? UINT64_MAX : bytes;
}

/* What the driver gives each context on a device, asked for before the first change; 0 where it does not say. */
static size_t own_value(unsigned device, int which)
{
    static size_t values[MAX_DEVICES][LIMIT_HEAP + 1];
    pthread_mutex_lock(&lock);
    size_t *value = &values[device][which];
    if (*value == 0 && CALL(cuCtxGetLimit, value, which) != 0)
        *value = 0;
    size_t own = *value;
    pthread_mutex_unlock(&lock);
    return own;
}

/* The driver's own values are part of what a context takes; what goes beyond them is charged until the end of the
 * context, as the driver gives none of it back before. */
EXPORT CUresult cuCtxSetLimit(int which, size_t value)
{
    void *context;
    struct charge charge = {.bytes = 0};
    int device = which < LIMIT_STACK || which > LIMIT_HEAP ? -1 : tenant_current_device();
    size_t own = device < 0 ? 0 : own_value((unsigned)device, which);
    if (device < 0 || value <= own || CALL(cuCtxGetCurrent, &context) != 0)
        return CALL(cuCtxSetLimit, which, value);
    uint64_t handle = (uint64_t)(uintptr_t)context + (unsigned)which;
    uint64_t wanted = bytes_of(which, value - own);
    charge_take(CHARGE_LIMIT, handle, &charge);
    uint64_t more = wanted > charge.bytes ? wanted - charge.bytes : 0;
    charge = (struct charge){context, charge.bytes, (unsigned)device};
    bool fits = more == 0 || tenant_reserve(charge.device, more);
    CUresult result = fits ? CALL(cuCtxSetLimit, which, value) : refusal();
    if (result == 0)
        charge.bytes += more;
    else if (fits)
        account_release(charge.device, more);
    if (charge.bytes > 0)
        charge_settle(CHARGE_LIMIT, 0, handle, &charge);
    return result;
}
