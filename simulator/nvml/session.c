/* nvmlInit and nvmlShutdown, and the one connection that requests go through. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include "../common/version.h"
#include "../common/wire.h"
#include "handles.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned users;
static int connection = -1;
static uint32_t gpu_count;

/* A child must not hold its parent's connection: the daemon sees deaths by the end of it. */
static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void after_fork_parent(void)
{
    pthread_mutex_unlock(&lock);
}

static void after_fork_child(void)
{
    if (connection >= 0)
        close(connection);
    connection = -1;
    pthread_mutex_unlock(&lock);
}

static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

static int connect_locked(void)
{
    struct sim_hello hello;
    int fd = sim_connect(sim_root(), SIM_CLIENT_NVML, &hello);
    if (fd < 0)
        return -fd;
    connection = fd;
    gpu_count = hello.gpu_count;
    return 0;
}

static int control_node(void)
{
    switch (sim_node_hidden("/dev/nvidiactl", O_RDWR)) {
    case 0:
        return 0;
    case ENOENT:
        return SIM_ERR_DRIVER_NOT_LOADED;
    case EACCES:
        return SIM_ERR_NO_PERMISSION;
    default: /* as when a device cgroup forbids it */
        return SIM_ERR_UNKNOWN;
    }
}

static nvmlReturn_t initialise(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&lock);
    int status = users > 0 && connection >= 0 ? 0 : control_node();
    if (status == 0 && connection < 0)
        status = connect_locked();
    if (status == 0)
        users++;
    pthread_mutex_unlock(&lock);
    return status;
}

EXPORT nvmlReturn_t nvmlInit(void)
{
    return initialise();
}

EXPORT nvmlReturn_t nvmlInit_v2(void)
{
    return initialise();
}

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
    return flags > 7 ? SIM_ERR_INVALID_ARGUMENT : initialise();
}

EXPORT nvmlReturn_t nvmlShutdown(void)
{
    pthread_mutex_lock(&lock);
    int status = users == 0 ? SIM_ERR_UNINITIALIZED : 0;
    if (users > 0 && --users == 0 && connection >= 0) {
        close(connection);
        connection = -1;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

bool session_open(void)
{
    pthread_mutex_lock(&lock);
    bool open = users > 0;
    pthread_mutex_unlock(&lock);
    return open;
}

uint32_t session_all_gpus(void)
{
    return gpu_count;
}

int session_request(enum sim_type type, void *body, size_t length)
{
    pthread_mutex_lock(&lock);
    int status = users == 0 ? SIM_ERR_UNINITIALIZED : 0;
    if (status == 0 && connection < 0) /* after a fork */
        status = connect_locked();
    if (status == 0)
        status = sim_call(connection, type, body, length);
    pthread_mutex_unlock(&lock);
    return status;
}

int session_gpu(uint32_t gpu, struct sim_gpu *state)
{
    state->index = gpu;
    int status = session_request(SIM_GPU, state, sizeof *state);
    return status == 0 && state->lost ? SIM_ERR_GPU_IS_LOST : status;
}
