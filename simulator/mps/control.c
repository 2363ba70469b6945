/* The daemon's loop: clients that come, wait and go, commands, a server that dies. */
#include "mps.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t ended;

static void end(int signal_number)
{
    (void)signal_number;
    ended = 1;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

unsigned clients(void)
{
    unsigned count = 0;
    for (int i = 0; i < MAX_PEERS; i++)
        count += control.peers[i].fd >= 0 && control.peers[i].admitted;
    return count;
}

void peer_close(struct peer *peer)
{
    if (peer->admitted && control.server != 0)
        server_change(SIM_MPS_FORGET, peer->pid, NULL);
    if (peer->is_client)
        note("Client %d disconnected", (int)peer->pid);
    close(peer->fd);
    peer->fd = -1;
}

static void server_died(void)
{
    note("Server %d died: its clients fail", (int)control.server);
    server_stop();
    for (int i = 0; i < MAX_PEERS; i++)
        if (control.peers[i].fd >= 0 && control.peers[i].admitted)
            peer_close(&control.peers[i]);
}

static void answer_client(struct peer *peer, int code, uint32_t percentage)
{
    struct mps_answer answer = {.magic = MPS_MAGIC, .code = code, .percentage = percentage};
    for (uint32_t i = 0; i < control.gpu_count; i++)
        answer.gpus |= 1u << control.gpus[i].index;
    if (send(peer->fd, &answer, sizeof answer, MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof answer || code != 0)
        peer_close(peer);
}

static bool is_full(void)
{
    uint32_t most = CLIENTS_SINCE_VOLTA;
    for (uint32_t i = 0; i < control.gpu_count; i++)
        if (control.gpus[i].cc_major < 7)
            most = CLIENTS_BEFORE_VOLTA;
    return clients() >= most;
}

static uint64_t lower(uint64_t one, uint64_t other)
{
    return one == 0 || (other != 0 && other < one) ? other : one;
}

/* A limit of a GPU that the client does not have lifts all of its limits, the server's too: measured
 * by NVIDIA with driver 615 (Dynamo's guide "Per-GPU Compute and Memory Limits with MPS"). */
static bool names_other_gpu(const struct peer *peer)
{
    for (uint32_t i = control.gpu_count; i < SIM_MAX_GPUS; i++)
        if (peer->request.limits[i] != 0)
            return true;
    return false;
}

/* Whether the client's file is in this process's /dev/shm too: containers have one of their own. */
static bool shares_memory(struct peer *peer)
{
    unsigned char nonce[MPS_NONCE];
    char path[PATH_MAX];
    struct stat status;
    struct mps_request *request = &peer->request;
    request->memory[MPS_MEMORY_NAME - 1] = '\0';
    if (request->memory[0] == '\0' || request->memory[0] == '.' || strchr(request->memory, '/') != NULL)
        return false;
    snprintf(path, sizeof path, "%s/%s", MPS_MEMORY, request->memory);
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool same = fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == peer->uid &&
                read(fd, nonce, MPS_NONCE) == MPS_NONCE && memcmp(nonce, request->nonce, MPS_NONCE) == 0;
    close(fd);
    return same;
}

/* Admit a client, or leave it waiting: the server of another user goes on until it has none left. */
static void admit(struct peer *peer)
{
    uint64_t limits[SIM_MAX_GPUS] = {0};
    if (control.stopping) {
        answer_client(peer, MPS_ERROR_SERVER_NOT_READY, 0);
        return;
    }
    if (control.server != 0 && !control.multiuser && control.server_uid != peer->uid) {
        if (clients() > 0)
            return;
        server_stop();
    }
    if (!shares_memory(peer)) {
        note("Client %d refused: its file %s is not in this daemon's %s", (int)peer->pid, peer->request.memory,
             MPS_MEMORY);
        answer_client(peer, MPS_ERROR_CONNECTION_FAILED, 0);
        return;
    }
    if (control.server == 0 && !server_start(control.multiuser ? geteuid() : peer->uid)) {
        answer_client(peer, MPS_ERROR_CONNECTION_FAILED, 0);
        return;
    }
    if (is_full()) {
        note("Client %d refused: the server has its maximum of clients", (int)peer->pid);
        answer_client(peer, MPS_ERROR_MAX_CLIENTS, 0);
        return;
    }
    uint32_t asked = peer->request.percentage, percentage = control.server_percentage;
    if (asked > 0 && asked < percentage)
        percentage = asked;
    for (uint32_t i = 0; i < control.gpu_count && !names_other_gpu(peer); i++)
        limits[i] = lower(control.server_limits[i], peer->request.limits[i]);
    int status = server_change(SIM_MPS_ADMIT, peer->pid, limits);
    /* It hangs in its initialisation until there is another server; or this one has just died, which
     * the loop is about to see. */
    if (status == SIM_ERR_MPS_HARMED || status == SIM_ERR_UNKNOWN)
        return;
    if (status != 0) {
        answer_client(peer, MPS_ERROR_CONNECTION_FAILED, 0);
        return;
    }
    peer->admitted = true;
    note("User did connect: client %d of user %u to server %d", (int)peer->pid, (unsigned)peer->uid,
         (int)control.server);
    answer_client(peer, 0, percentage);
}

static void admit_waiting(void)
{
    for (int i = 0; i < MAX_PEERS; i++)
        if (control.peers[i].fd >= 0 && control.peers[i].is_client && !control.peers[i].admitted)
            admit(&control.peers[i]);
}

static void accept_peer(int listener, bool privileged)
{
    struct ucred credentials;
    socklen_t length = sizeof credentials;
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    struct peer *peer = NULL;
    for (int i = 0; i < MAX_PEERS && peer == NULL; i++)
        if (control.peers[i].fd < 0)
            peer = &control.peers[i];
    if (peer == NULL || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) {
        close(fd);
        return;
    }
    *peer = (struct peer){.fd = fd, .pid = credentials.pid, .uid = credentials.uid, .privileged = privileged};
}

static void read_from(struct peer *peer)
{
    if (peer->got == sizeof peer->request) { /* all is said: this is its end, or rubbish */
        peer_close(peer);
        return;
    }
    ssize_t got = recv(peer->fd, (char *)&peer->request + peer->got, sizeof peer->request - peer->got, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        peer_close(peer);
        return;
    }
    peer->got += (size_t)got;
    if (peer->got < sizeof peer->request)
        return;
    if (peer->request.magic != MPS_MAGIC) {
        peer_close(peer);
    } else if (peer->request.kind == MPS_CLIENT) {
        peer->is_client = true;
        admit(peer);
    } else {
        peer->request.command[MPS_TEXT - 1] = '\0';
        command(peer);
        peer_close(peer);
    }
}

static bool goes_on(void)
{
    if (ended)
        return false;
    if (!control.stopping)
        return true;
    return clients() > 0 && (control.stop_at == 0 || seconds() < control.stop_at);
}

int control_run(int plain, int privileged)
{
    static struct pollfd polled[MAX_PEERS + 3];
    static struct peer *of[MAX_PEERS + 3];
    struct sigaction action = {.sa_handler = end};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    while (goes_on()) {
        nfds_t count = 3;
        polled[0] = (struct pollfd){.fd = plain, .events = POLLIN};
        polled[1] = (struct pollfd){.fd = privileged, .events = POLLIN};
        polled[2] = (struct pollfd){.fd = control.server_fd, .events = POLLIN};
        for (int i = 0; i < MAX_PEERS; i++)
            if (control.peers[i].fd >= 0) {
                of[count] = &control.peers[i];
                polled[count++] = (struct pollfd){.fd = control.peers[i].fd, .events = POLLIN};
            }
        if (poll(polled, count, control.stopping ? 50 : -1) < 0)
            continue;
        /* Nothing comes from a server unasked but its end. */
        if (control.server != 0 && polled[2].revents != 0)
            server_died();
        for (nfds_t p = 3; p < count; p++)
            if (polled[p].revents != 0 && of[p]->fd == polled[p].fd)
                read_from(of[p]);
        admit_waiting();
        if (polled[0].revents != 0)
            accept_peer(plain, false);
        if (polled[1].revents != 0)
            accept_peer(privileged, true);
    }
    server_stop();
    note("Exit");
    return 0;
}
