/* Which clients get in, to which server, with what of its GPUs. */
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mps.h"

static void answer_client(struct peer *peer, int code, uint32_t percentage)
{
    struct mps_answer answer = {.magic = MPS_MAGIC, .code = code, .percentage = percentage};
    for (uint32_t i = 0; code == 0 && i < control.gpu_count; i++)
        if (peer->server->gpus >> i & 1)
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
    return clients(NULL, NULL) >= most;
}

static uint64_t lower(uint64_t one, uint64_t other)
{
    return one == 0 || (other != 0 && other < one) ? other : one;
}

/* What a client may use of each GPU of its server.
 *
 * A limit of a GPU that it does not have lifts all of its limits, the server's too: measured by NVIDIA
 * with driver 615 (Dynamo's guide "Per-GPU Compute and Memory Limits with MPS").
 */
static void limits_of(const struct peer *peer, uint64_t *limits)
{
    uint32_t ordinal = 0; /* as the client counts */
    for (uint32_t i = 0; i < control.gpu_count; i++)
        if (peer->server->gpus >> i & 1) {
            uint64_t most = peer->space == NULL ? peer->server->limits[i] : peer->space->limit;
            limits[i] = lower(most, peer->request.limits[ordinal++]);
        }
    for (; ordinal < SIM_MAX_GPUS; ordinal++)
        if (peer->request.limits[ordinal] != 0)
            memset(limits, 0, SIM_MAX_GPUS * sizeof *limits);
}

/* Measured by NVIDIA with driver 615 (gpu-fractioning): what a client asks for can lower what its
 * namespace has, and not raise it. */
static uint32_t percentage_of(const struct peer *peer)
{
    uint32_t asked = peer->request.percentage;
    uint32_t most = peer->space == NULL ? peer->server->percentage : peer->space->percentage;
    return asked > 0 && asked < most ? asked : most;
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

/* Find a client's server of version 2; false: it waits, for the server of another user goes on until
 * it has no clients left. */
static bool only_server(struct peer *peer)
{
    struct server *server = control.servers;
    if (server->pid != 0 && !control.multiuser && server->uid != peer->uid) {
        if (clients(NULL, NULL) > 0)
            return false;
        server_stop(server);
    }
    peer->server = server;
    return true;
}

/* Find a client's server and namespace of version 3: by its socket, else by its user. */
static int named_server(struct peer *peer)
{
    if (peer->server == NULL)
        peer->server = server_of_user(control.multiuser ? geteuid() : peer->uid);
    if (peer->server == NULL || peer->server->pid == 0)
        return MPS_ERROR_CONNECTION_FAILED;
    if (peer->space == NULL)
        peer->space = peer->server->namespaces;
    return control.multiuser || peer->server->uid == peer->uid ? 0 : MPS_ERROR_NOT_PERMITTED;
}

static int problem_of(struct peer *peer)
{
    if (control.stopping)
        return MPS_ERROR_SERVER_NOT_READY;
    if (!shares_memory(peer)) {
        note("Client %d refused: its file %s is not in this daemon's %s", (int)peer->pid, peer->request.memory,
             MPS_MEMORY);
        return MPS_ERROR_CONNECTION_FAILED;
    }
    if (control.protocol == 3) {
        int problem = named_server(peer);
        if (problem != 0)
            return problem;
    } else if (peer->server->pid == 0 &&
               !server_start(peer->server, control.multiuser ? geteuid() : peer->uid, ~0u))
        return MPS_ERROR_CONNECTION_FAILED;
    if (is_full()) {
        note("Client %d refused: the server has its maximum of clients", (int)peer->pid);
        return MPS_ERROR_MAX_CLIENTS;
    }
    return 0;
}

/* Admit a client, or leave it waiting. */
void admit(struct peer *peer)
{
    uint64_t limits[SIM_MAX_GPUS] = {0};
    if (control.protocol == 2 && !control.stopping && !only_server(peer))
        return;
    int problem = problem_of(peer);
    if (problem != 0) {
        answer_client(peer, problem, 0);
        return;
    }
    limits_of(peer, limits);
    int status = server_change(peer->server, SIM_MPS_ADMIT, peer->pid, limits);
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
         (int)peer->server->pid);
    answer_client(peer, 0, percentage_of(peer));
}

