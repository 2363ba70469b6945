/* nvmlInit and nvmlShutdown, and the connections that requests go through.
 *
 * As the real library has /dev/nvidiactl and one /dev/nvidia<N> for each GPU that somebody has
 * asked for a handle of, there is a control connection and one for each such GPU: a GPU that
 * does not answer holds up only those who ask it. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "../common/version.h"
#include "../common/wire.h"
#include "handles.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned users;
static int connection = -1;
static uint32_t gpu_count;

struct gpu_connection {
    pthread_mutex_t lock;
    int fd; /* -1: not open */
};
static struct gpu_connection gpus[SIM_MAX_GPUS];

static void forget_gpus(void)
{
    for (uint32_t gpu = 0; gpu < SIM_MAX_GPUS; gpu++) {
        pthread_mutex_init(&gpus[gpu].lock, NULL);
        gpus[gpu].fd = -1;
    }
}

/* A child must not hold its parent's connection: the daemon sees deaths by the end of it. */
static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void after_fork_parent(void)
{
    pthread_mutex_unlock(&lock);
}

static void close_gpus(void)
{
    for (uint32_t gpu = 0; gpu < SIM_MAX_GPUS; gpu++) {
        if (gpus[gpu].fd >= 0)
            close(gpus[gpu].fd);
        gpus[gpu].fd = -1;
    }
}

static void after_fork_child(void)
{
    if (connection >= 0)
        close(connection);
    connection = -1;
    close_gpus();
    forget_gpus(); /* a thread that held a lock when the process forked is not in the child */
    pthread_mutex_unlock(&lock);
}

static void set_up(void)
{
    forget_gpus();
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
    pthread_once(&once, set_up);
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
        close_gpus();
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

/* Control requests are answered at once, whatever state a GPU is in. */
static int control_request(enum sim_type type, void *body, size_t length)
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

static int attach_locked(struct gpu_connection *to, uint32_t gpu)
{
    struct sim_hello hello;
    struct sim_setting attach = {.gpu = gpu};
    int fd = sim_connect(sim_root(), SIM_CLIENT_NVML, &hello);
    if (fd < 0)
        return -fd;
    int status = sim_call(fd, SIM_ATTACH, &attach, sizeof attach);
    if (status == 0)
        to->fd = fd;
    else
        close(fd);
    return status;
}

int session_request(enum sim_type type, void *body, size_t length)
{
    uint32_t gpu;
    memcpy(&gpu, body, sizeof gpu); /* every request begins with it */
    if (gpu >= SIM_MAX_GPUS)
        return SIM_ERR_NOT_FOUND;
    if (!session_open())
        return SIM_ERR_UNINITIALIZED;
    struct gpu_connection *to = &gpus[gpu];
    pthread_mutex_lock(&to->lock);
    int status = to->fd < 0 ? attach_locked(to, gpu) : 0;
    if (status == 0)
        status = sim_call(to->fd, type, body, length);
    pthread_mutex_unlock(&to->lock);
    return status;
}

int session_identity(uint32_t gpu, struct sim_gpu *state)
{
    state->index = gpu;
    return control_request(SIM_GPU, state, sizeof *state);
}

int session_gpu(uint32_t gpu, struct sim_gpu *state)
{
    state->index = gpu;
    int status = session_request(SIM_GPU, state, sizeof *state);
    return status == 0 && state->lost ? SIM_ERR_GPU_IS_LOST : status;
}
