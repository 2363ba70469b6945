/* cuInit, the lock and the connection to the daemon. */
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../common/codes.h"
#include "../common/version.h"
#include "../common/wire.h"
#include "state.h"

static pthread_mutex_t lock;
static pthread_cond_t change;
static _Thread_local bool in_host_function;
static _Thread_local unsigned depth; /* of this thread's locks */
static _Thread_local int cancelling; /* whether it could be cancelled before the first of them */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int connection = -1;
static bool started, forked;

static void make_lock(void)
{
    pthread_mutexattr_t recursive;
    pthread_condattr_t clock;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&lock, &recursive);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&change, &clock);
}

static void in_child(void)
{
    /* A context does not survive a fork, and the daemon must see the parent's death. */
    if (connection >= 0)
        close(connection);
    connection = -1;
    mps_leave();
    forked = started;
    make_lock();
    depth = 0;
    pthread_setcancelstate(cancelling, NULL);
}

static void prepare(void)
{
    make_lock();
    pthread_atfork(driver_lock, driver_unlock, in_child);
}

/* A thread is not cancelled in a call: a real driver's are ioctls, which are no points of cancellation. */
void driver_lock(void)
{
    int state = PTHREAD_CANCEL_ENABLE; /* of a program without threads nothing is said */
    pthread_once(&once, prepare);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    pthread_mutex_lock(&lock);
    if (depth++ == 0)
        cancelling = state;
}

void driver_unlock(void)
{
    bool last = --depth == 0;
    pthread_mutex_unlock(&lock);
    if (last)
        pthread_setcancelstate(cancelling, NULL);
}

void driver_pause(double seconds)
{
    struct timespec end;
    if (seconds <= 0) {
        pthread_cond_wait(&change, &lock);
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    long nanoseconds = end.tv_nsec + (long)((seconds - (double)(time_t)seconds) * 1e9);
    end.tv_sec += (time_t)seconds + nanoseconds / 1000000000;
    end.tv_nsec = nanoseconds % 1000000000;
    pthread_cond_timedwait(&change, &lock, &end);
}

void driver_changed(void)
{
    pthread_cond_broadcast(&change);
}

void driver_in_host_function(bool inside)
{
    in_host_function = inside;
}

double driver_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

CUresult driver_start(void)
{
    struct sim_hello hello;
    if (forked)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (started)
        return device_count() > 0 ? 0 : CUDA_ERROR_NO_DEVICE;
    if (sim_node_hidden("/dev/nvidiactl", O_RDWR) != 0)
        return CUDA_ERROR_NO_DEVICE;
    if (sim_node_hidden("/dev/nvidia-uvm", O_RDWR) != 0)
        return CUDA_ERROR_UNKNOWN;
    int fd = sim_connect(sim_root(), SIM_CLIENT_CUDA, &hello);
    if (fd < 0)
        return -fd == SIM_ERR_VERSION_MISMATCH ? CUDA_ERROR_SYSTEM_DRIVER_MISMATCH : CUDA_ERROR_NO_DEVICE;
    connection = fd;
    CUresult joined = mps_join();
    if (joined != 0) {
        close(fd);
        connection = -1;
        return joined;
    }
    started = true;
    devices_find(hello.gpu_count);
    return device_count() > 0 ? 0 : CUDA_ERROR_NO_DEVICE;
}

CUresult driver_ready(void)
{
    /* cuLaunchHostFunc: "using a CUDA API may result in CUDA_ERROR_NOT_PERMITTED". */
    if (in_host_function)
        return CUDA_ERROR_NOT_PERMITTED;
    return started && !forked ? 0 : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult driver_call(enum sim_type type, void *body, size_t length, CUresult no_memory)
{
    if (connection < 0)
        return CUDA_ERROR_NOT_INITIALIZED;
    switch (sim_call(connection, type, body, length)) {
    case 0:
        return 0;
    case SIM_ERR_MEMORY:
        return no_memory;
    case SIM_ERR_VERSION_MISMATCH:
        return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
    case SIM_ERR_IN_USE:
    case SIM_ERR_NO_PERMISSION:
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    case SIM_ERR_NOT_FOUND: /* a MIG device that is gone */
    case SIM_ERR_NOT_SUPPORTED:
        return CUDA_ERROR_INVALID_DEVICE;
    case SIM_ERR_MPS_HARMED:
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    case SIM_ERR_MPS_SERVER_GONE:
        return CUDA_ERROR_MPS_RPC_FAILURE;
    case SIM_ERR_MPS_TERMINATED:
        return CUDA_ERROR_MPS_CLIENT_TERMINATED;
    default:
        return CUDA_ERROR_UNKNOWN;
    }
}

void driver_tell(enum sim_type type, const void *body, size_t length)
{
    if (connection >= 0)
        sim_tell(connection, type, body, length);
}

EXPORT CUresult cuInit(unsigned flags)
{
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    driver_lock();
    FINISH(driver_start());
}

EXPORT CUresult cuDriverGetVersion(int *version)
{
    if (version == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *version = sim_cuda_version(sim_version());
    return 0;
}
