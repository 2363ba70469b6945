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

static int admit(int driver, const struct order *order)
{
    int status = 0;
    for (uint32_t i = 0; i < control.gpu_count; i++) {
        struct sim_admission admission = {.gpu = control.gpus[i].index, .pid = (uint32_t)order->pid,
                                          .change = order->change, .limit = order->limits[i]};
        int answer = sim_call(driver, SIM_ADMIT, &admission, sizeof admission);
        status = status == 0 ? answer : status;
    }
    return status;
}

/* Runs until the control daemon is gone, however it went. */
static void serve(int orders)
{
    struct sim_hello hello;
    struct order order;
    int driver = sim_connect(sim_root(), SIM_CLIENT_MPS, &hello);
    int status = driver < 0 ? -driver : 0;
    for (uint32_t i = 0; status == 0 && i < control.gpu_count; i++) {
        struct sim_context context = {.gpu = control.gpus[i].index, .gi = SIM_NO_ID, .ci = SIM_NO_ID};
        status = sim_call(driver, SIM_OPEN_CONTEXT, &context, sizeof context);
    }
    if (send(orders, &status, sizeof status, MSG_NOSIGNAL) != sizeof status || status != 0)
        _exit(1);
    while (recv(orders, &order, sizeof order, MSG_WAITALL) == sizeof order) {
        status = admit(driver, &order);
        if (send(orders, &status, sizeof status, MSG_NOSIGNAL) != sizeof status)
            break;
    }
    _exit(0);
}

bool server_start(uid_t uid)
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
        close(ends[0]);
        signal(SIGTERM, SIG_DFL);
        prctl(PR_SET_NAME, "nvidia-cuda-mps");
        if (!control.multiuser && uid != geteuid() && setuid(uid) != 0)
            _exit(1);
        serve(ends[1]);
    }
    close(ends[1]);
    if (child < 0 || recv(ends[0], &status, sizeof status, MSG_WAITALL) != sizeof status || status != 0) {
        note("Server %d exited: the driver answered %d", (int)child, status);
        close(ends[0]);
        if (child > 0)
            waitpid(child, NULL, 0);
        return false;
    }
    control.server = child;
    control.server_uid = uid;
    control.server_fd = ends[0];
    control.server_percentage = control.percentage;
    memcpy(control.server_limits, control.limits, sizeof control.limits);
    note("New server %d is ready", (int)child);
    return true;
}

void server_stop(void)
{
    if (control.server == 0)
        return;
    close(control.server_fd);
    kill(control.server, SIGKILL);
    waitpid(control.server, NULL, 0);
    note("Server %d exited", (int)control.server);
    control.server = 0;
    control.server_fd = -1;
}

int server_change(uint32_t change, pid_t pid, const uint64_t *limits)
{
    struct order order = {.change = change, .pid = pid};
    int status = SIM_ERR_UNKNOWN;
    if (limits != NULL)
        memcpy(order.limits, limits, sizeof order.limits);
    if (send(control.server_fd, &order, sizeof order, MSG_NOSIGNAL) != sizeof order ||
        recv(control.server_fd, &status, sizeof status, MSG_WAITALL) != sizeof status)
        return SIM_ERR_UNKNOWN;
    return status;
}
