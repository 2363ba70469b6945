/* The daemon's loop: clients that come, wait and go, commands, a server that dies. */
#include "mps.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
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

unsigned clients(const struct server *server, const struct namespace *space)
{
    unsigned count = 0;
    for (int i = 0; i < MAX_PEERS; i++) {
        const struct peer *peer = &control.peers[i];
        count += peer->fd >= 0 && peer->admitted && (server == NULL || peer->server == server) &&
                 (space == NULL || peer->space == space);
    }
    return count;
}

void peer_close(struct peer *peer)
{
    if (peer->admitted && peer->server->pid != 0)
        server_change(peer->server, SIM_MPS_FORGET, peer->pid, NULL);
    if (peer->is_client)
        note("Client %d disconnected", (int)peer->pid);
    close(peer->fd);
    peer->fd = -1;
}

/* Those that it serves, and of version 3 those that came to its sockets. */
void clients_fail(const struct server *server)
{
    for (int i = 0; i < MAX_PEERS; i++) {
        struct peer *peer = &control.peers[i];
        if (peer->fd >= 0 && peer->server == server && (peer->admitted || (peer->is_client && control.protocol == 3)))
            peer_close(peer);
    }
}

static void server_died(struct server *server)
{
    note("Server %d died: its clients fail", (int)server->pid);
    server_stop(server);
    clients_fail(server);
    if (control.protocol == 3)
        server_remove(server, false);
}

static void admit_waiting(void)
{
    for (int i = 0; i < MAX_PEERS; i++)
        if (control.peers[i].fd >= 0 && control.peers[i].is_client && !control.peers[i].admitted)
            admit(&control.peers[i]);
}

static void accept_peer(int listener, bool privileged, struct server *server, struct namespace *space)
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
    *peer = (struct peer){.fd = fd, .pid = credentials.pid, .uid = credentials.uid,
                           .privileged = privileged, .server = server, .space = space};
}

static void answer_command(struct peer *peer)
{
    static struct reply reply;
    reply.code = 0;
    reply.length = 0;
    peer->request.command[MPS_TEXT - 1] = '\0';
    if (control.protocol == 3)
        module_command(peer, &reply);
    else
        command(peer, &reply);
    struct mps_answer answer = {.magic = MPS_MAGIC, .code = reply.code, .length = (uint32_t)reply.length};
    if (send(peer->fd, &answer, sizeof answer, MSG_NOSIGNAL | MSG_MORE) == sizeof answer)
        send(peer->fd, reply.text, reply.length, MSG_NOSIGNAL);
    peer_close(peer);
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
        answer_command(peer);
    }
}

static bool goes_on(void)
{
    if (ended)
        return false;
    if (!control.stopping)
        return true;
    return clients(NULL, NULL) > 0 && (control.stop_at == 0 || seconds() < control.stop_at);
}

/* What is polled, and what an event there is about. */
static struct watched {
    enum { LISTENER, SERVER, PEER } kind;
    bool privileged;
    struct server *server;
    struct namespace *space;
    struct peer *peer;
} watched[MAX_PEERS + MAX_SERVERS * (MAX_NAMESPACES + 2) + 2];
static struct pollfd polled[sizeof watched / sizeof *watched];
static nfds_t watched_count;

static void watch(int fd, struct watched what)
{
    if (fd < 0)
        return;
    watched[watched_count] = what;
    polled[watched_count++] = (struct pollfd){.fd = fd, .events = POLLIN};
}

static void watch_all(int plain, int privileged)
{
    watched_count = 0;
    for (int i = 0; i < MAX_SERVERS; i++) {
        struct server *server = &control.servers[i];
        if (server->pid == 0)
            continue;
        watch(server->fd, (struct watched){.kind = SERVER, .server = server});
    }
    for (int i = 0; i < MAX_PEERS; i++)
        watch(control.peers[i].fd, (struct watched){.kind = PEER, .peer = &control.peers[i]});
    watch(plain, (struct watched){.kind = LISTENER});
    watch(privileged, (struct watched){.kind = LISTENER, .privileged = true});
    for (int i = 0; control.protocol == 3 && i < MAX_SERVERS; i++) {
        struct server *server = &control.servers[i];
        if (server->pid == 0)
            continue;
        watch(server->listener, (struct watched){.kind = LISTENER, .server = server});
        for (int n = 0; n < MAX_NAMESPACES; n++)
            if (server->namespaces[n].name[0] != '\0')
                watch(server->namespaces[n].listener,
                      (struct watched){.kind = LISTENER, .server = server, .space = &server->namespaces[n]});
    }
}

static bool listens(const struct watched *what, int fd)
{
    return what->server == NULL || (what->space == NULL ? what->server->listener : what->space->listener) == fd;
}

/* An event is void where an earlier one of the same round has closed what it is about. */
static void take(const struct watched *what, int fd)
{
    if (what->kind == SERVER && what->server->pid != 0 && what->server->fd == fd)
        server_died(what->server); /* nothing comes from a server unasked but its end */
    else if (what->kind == PEER && what->peer->fd == fd)
        read_from(what->peer);
    else if (what->kind == LISTENER && listens(what, fd))
        accept_peer(fd, what->privileged, what->server, what->space);
}

int control_run(int plain, int privileged)
{
    struct sigaction action = {.sa_handler = end};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    while (goes_on()) {
        watch_all(plain, privileged);
        if (poll(polled, watched_count, control.stopping ? 50 : -1) < 0)
            continue;
        nfds_t first_listener = watched_count;
        for (nfds_t i = 0; i < watched_count; i++) {
            if (watched[i].kind == LISTENER && first_listener == watched_count) {
                first_listener = i;
                admit_waiting();
            }
            if (polled[i].revents != 0)
                take(&watched[i], polled[i].fd);
        }
    }
    for (int i = 0; i < MAX_SERVERS; i++)
        server_stop(&control.servers[i]);
    note("Exit");
    return 0;
}
