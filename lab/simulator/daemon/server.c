/* The socket loop: accepts, reads whole frames, writes answers and events, notices deaths. */
#include "state.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "../common/wire.h"

static volatile sig_atomic_t stopping;

static void stop(int signal_number)
{
    (void)signal_number;
    stopping = 1;
}

static bool append(struct client *client, const struct sim_header *header, const void *body)
{
    size_t length = sizeof *header + header->length;
    if (client->out_length + length > sizeof client->out)
        return false;
    memcpy(client->out + client->out_length, header, sizeof *header);
    if (header->length > 0)
        memcpy(client->out + client->out_length + sizeof *header, body, header->length);
    client->out_length += length;
    return true;
}

bool server_answer(struct client *client, unsigned type, int status, const void *body, size_t length)
{
    struct sim_header header = {.magic = SIM_MAGIC, .protocol = SIM_PROTOCOL,
        .type = (uint16_t)type, .length = status == 0 ? (uint32_t)length : 0, .status = status};
    return append(client, &header, body);
}

void server_drop(struct client *client)
{
    mps_died(client);
    contexts_drop(client);
    mps_drop(client);
    close(client->fd);
    client->fd = -1;
    while (sim.client_top > 0 && sim.clients[sim.client_top - 1].fd < 0)
        sim.client_top--;
}

static void accept_client(int listener)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    struct ucred peer;
    socklen_t length = sizeof peer;
    struct client *client = NULL;
    for (int i = 0; i < MAX_CLIENTS && client == NULL; i++)
        if (sim.clients[i].fd < 0)
            client = &sim.clients[i];
    if (client == NULL || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
        close(fd);
        return;
    }
    if (client - sim.clients >= sim.client_top)
        sim.client_top = (int)(client - sim.clients) + 1;
    client->fd = fd;
    client->pid = peer.pid;
    client->uid = peer.uid;
    client->greeted = client->wedged = false;
    client->in_length = client->out_length = 0;
    client->event_count = 0;
    client->knows_groups = false;
    client->answer_at = 0;
    memset(client->attached, 0, sizeof client->attached);
    memset(client->watched, 0, sizeof client->watched);
    memset(client->contexts, 0, sizeof client->contexts);
}

/* Handle the frames that lie complete in the buffer; false: rubbish. */
static bool consume(struct client *client)
{
    /* A structure that is read in place must be aligned. */
    static union {
        uint64_t align;
        uint8_t bytes[SIM_MAX_BODY];
    } body;
    while (client->in_length >= sizeof(struct sim_header) && client->answer_at == 0) {
        struct sim_header header;
        memcpy(&header, client->in, sizeof header);
        size_t expected = sim_body_length(header.type);
        if (header.magic != SIM_MAGIC || header.protocol != SIM_PROTOCOL || header.status != 0 ||
            expected == 0 || header.length != expected)
            return false;
        size_t whole = sizeof header + expected;
        if (client->in_length < whole)
            return true;
        memcpy(body.bytes, client->in + sizeof header, expected);
        memmove(client->in, client->in + whole, client->in_length - whole);
        client->in_length -= whole;
        if (!request_handle(client, header.type, body.bytes, expected))
            return false;
    }
    return true;
}

static bool read_from(struct client *client)
{
    ssize_t got = recv(client->fd, client->in + client->in_length,
                       sizeof client->in - client->in_length, 0);
    if (got < 0)
        return errno == EAGAIN || errno == EINTR;
    if (got == 0)
        return false;
    client->in_length += (size_t)got;
    return consume(client);
}

static void queue_events(struct client *client)
{
    unsigned sent = 0;
    while (sent < client->event_count &&
           server_answer(client, SIM_EVENT, 0, &client->events[sent], sizeof *client->events))
        sent++;
    client->event_count -= sent;
    memmove(client->events, client->events + sent, client->event_count * sizeof *client->events);
}

static bool write_to(struct client *client)
{
    ssize_t sent = send(client->fd, client->out, client->out_length, MSG_NOSIGNAL);
    if (sent < 0)
        return errno == EAGAIN || errno == EINTR;
    client->out_length -= (size_t)sent;
    memmove(client->out, client->out + sent, client->out_length);
    return true;
}

/* Bring a client to rest: what can be answered is; returns false when it must go. */
static bool settle(struct client *client, double now)
{
    if (client->answer_at != 0 && now >= client->answer_at) {
        client->answer_at = 0;
        if (!consume(client))
            return false;
    }
    if (client->answer_at != 0)
        return true;
    queue_events(client);
    return client->out_length == 0 || write_to(client);
}

int server_run(int listener)
{
    static struct pollfd polled[MAX_CLIENTS + 1];
    static int slots[MAX_CLIENTS + 1];
    struct sigaction action = {.sa_handler = stop};
    sigset_t ends, waiting;
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    /* The signals come only while we wait, so that none slips in between. */
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    sigprocmask(SIG_BLOCK, &ends, &waiting);
    sigdelset(&waiting, SIGTERM);
    sigdelset(&waiting, SIGINT);
    while (!stopping) {
        double now = now_seconds(), wake = 0;
        nfds_t count = 1;
        polled[0] = (struct pollfd){.fd = listener, .events = POLLIN};
        for (int i = 0; i < sim.client_top; i++) {
            struct client *client = &sim.clients[i];
            if (client->fd >= 0 && !settle(client, now))
                server_drop(client);
            if (client->fd < 0)
                continue;
            bool waits = client->answer_at != 0;
            if (waits && (wake == 0 || client->answer_at < wake))
                wake = client->answer_at;
            bool room = client->in_length < sizeof client->in;
            slots[count] = i;
            polled[count++] = (struct pollfd){.fd = client->fd,
                .events = (short)((room ? POLLIN : 0) |
                                  (!waits && client->out_length > 0 ? POLLOUT : 0))};
        }
        double left = wake <= now ? 0 : wake - now;
        struct timespec timeout = {(time_t)left, (long)((left - (double)(time_t)left) * 1e9)};
        if (ppoll(polled, count, wake == 0 ? NULL : &timeout, &waiting) < 0) {
            if (errno != EINTR)
                return 1;
            continue;
        }
        for (nfds_t p = 1; p < count; p++) {
            struct client *client = &sim.clients[slots[p]];
            if ((polled[p].revents & (POLLIN | POLLHUP | POLLERR)) != 0 && !read_from(client))
                server_drop(client);
        }
        if ((polled[0].revents & POLLIN) != 0)
            accept_client(listener);
    }
    return 0;
}
