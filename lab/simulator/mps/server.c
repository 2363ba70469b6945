/* The server: a process of its own that has the GPUs open, and tells the driver its clients. */
#include "mps.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../common/version.h"
#include "../common/wire.h"

/* To the server: an admission for each of its GPUs; back comes an NVML code. */
struct order {
    uint32_t change;
    int32_t pid;
    uint64_t limits[SIM_MAX_GPUS];
};

static int carry_out(int driver, uint32_t gpus, const struct order *order)
{
    int status = 0;
    for (uint32_t i = 0; i < control.gpu_count; i++) {
        struct sim_admission admission = {.gpu = control.gpus[i].index, .pid = (uint32_t)order->pid,
                                          .change = order->change, .limit = order->limits[i]};
        int answer = (gpus >> i & 1) == 0 ? 0 : sim_call(driver, SIM_ADMIT, &admission, sizeof admission);
        status = status == 0 ? answer : status;
    }
    return status;
}

/* Runs until the control daemon is gone, however it went. */
static void serve(int orders, uint32_t gpus)
{
    struct sim_hello hello;
    struct order order;
    int driver = sim_connect(sim_root(), SIM_CLIENT_MPS, &hello);
    int status = driver < 0 ? -driver : 0;
    for (uint32_t i = 0; status == 0 && i < control.gpu_count; i++) {
        struct sim_context context = {.gpu = control.gpus[i].index, .gi = SIM_NO_ID, .ci = SIM_NO_ID};
        if (gpus >> i & 1)
            status = sim_call(driver, SIM_OPEN_CONTEXT, &context, sizeof context);
    }
    if (send(orders, &status, sizeof status, MSG_NOSIGNAL) != sizeof status || status != 0)
        _exit(1);
    while (recv(orders, &order, sizeof order, MSG_WAITALL) == sizeof order) {
        status = carry_out(driver, gpus, &order);
        if (send(orders, &status, sizeof status, MSG_NOSIGNAL) != sizeof status)
            break;
    }
    _exit(0);
}

bool server_start(struct server *server, uid_t uid, uint32_t gpus)
{
    int ends[2], status = SIM_ERR_UNKNOWN;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return false;
    note("Starting new server with user id %u", (unsigned)uid);
    fflush(control.log);
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < MAX_PEERS; i++)
            if (control.peers[i].fd >= 0)
                close(control.peers[i].fd);
        for (int i = 0; i < MAX_SERVERS; i++)
            if (control.servers[i].pid != 0)
                close(control.servers[i].fd); /* whose end is the daemon's to tell */
        close(ends[0]);
        signal(SIGTERM, SIG_DFL);
        prctl(PR_SET_NAME, "nvidia-cuda-mps");
        if (!control.multiuser && uid != geteuid() && setuid(uid) != 0)
            _exit(1);
        serve(ends[1], gpus);
    }
    close(ends[1]);
    if (child < 0 || recv(ends[0], &status, sizeof status, MSG_WAITALL) != sizeof status || status != 0) {
        note("Server %d exited: the driver answered %d", (int)child, status);
        close(ends[0]);
        if (child > 0)
            waitpid(child, NULL, 0);
        return false;
    }
    server->pid = child;
    server->uid = uid;
    server->fd = ends[0];
    server->gpus = gpus;
    server->percentage = control.percentage;
    memcpy(server->limits, control.limits, sizeof control.limits);
    note("New server %d is ready", (int)child);
    return true;
}

void server_stop(struct server *server)
{
    if (server->pid == 0)
        return;
    close(server->fd);
    kill(server->pid, SIGKILL);
    waitpid(server->pid, NULL, 0);
    note("Server %d exited", (int)server->pid);
    server->pid = 0;
    server->fd = -1;
}

int server_change(struct server *server, uint32_t change, pid_t pid, const uint64_t *limits)
{
    struct order order = {.change = change, .pid = pid};
    int status = SIM_ERR_UNKNOWN;
    if (limits != NULL)
        memcpy(order.limits, limits, sizeof order.limits);
    if (send(server->fd, &order, sizeof order, MSG_NOSIGNAL) != sizeof order ||
        recv(server->fd, &status, sizeof status, MSG_WAITALL) != sizeof status)
        return SIM_ERR_UNKNOWN;
    return status;
}
