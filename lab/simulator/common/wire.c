#include "wire.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "codes.h"
#include "version.h"

size_t sim_body_length(unsigned type)
{
    static const size_t lengths[SIM_TYPE_COUNT] = {
        [SIM_HELLO] = sizeof(struct sim_hello),
        [SIM_GPU] = sizeof(struct sim_gpu),
        [SIM_ATTACH] = sizeof(struct sim_setting),
        [SIM_PROFILE] = sizeof(struct sim_profile),
        [SIM_INSTANCES] = sizeof(struct sim_instances),
        [SIM_PROCESSES] = sizeof(struct sim_processes),
        [SIM_SET_MIG_MODE] = sizeof(struct sim_setting),
        [SIM_CREATE_GI] = sizeof(struct sim_instance_change),
        [SIM_DESTROY_GI] = sizeof(struct sim_instance_change),
        [SIM_CREATE_CI] = sizeof(struct sim_instance_change),
        [SIM_DESTROY_CI] = sizeof(struct sim_instance_change),
        [SIM_SET_COMPUTE_MODE] = sizeof(struct sim_setting),
        [SIM_SET_TIMESLICE] = sizeof(struct sim_setting),
        [SIM_RESET] = sizeof(struct sim_setting),
        [SIM_WATCH] = sizeof(struct sim_watch),
        [SIM_EVENT] = sizeof(struct sim_event),
        [SIM_OPEN_CONTEXT] = sizeof(struct sim_context),
        [SIM_CLOSE_CONTEXT] = sizeof(struct sim_context),
        [SIM_ALLOCATE] = sizeof(struct sim_context),
        [SIM_FREE] = sizeof(struct sim_context),
        [SIM_SEGMENT] = sizeof(struct sim_segment),
        [SIM_ADMIT] = sizeof(struct sim_admission),
        [SIM_MEMORY_LIMITS] = sizeof(struct sim_memory_limits),
        [SIM_WORK] = sizeof(struct sim_work),
        [SIM_BUSY] = sizeof(struct sim_busy),
        [SIM_REPORT_XID] = sizeof(struct sim_fault_order),
        [SIM_FAULT] = sizeof(struct sim_fault_order),
        [SIM_SWITCH_DRIVER] = sizeof(struct sim_switch),
    };
    return type < SIM_TYPE_COUNT ? lengths[type] : 0;
}

static int send_frame(int fd, enum sim_type type, const void *body, size_t length)
{
    struct sim_header header = {.magic = SIM_MAGIC,
                                .protocol = SIM_PROTOCOL,
                                .type = (uint16_t)type,
                                .length = (uint32_t)length};
    struct iovec parts[2] = {{&header, sizeof header}, {(void *)(uintptr_t)body, length}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    ssize_t sent;
    do
        sent = sendmsg(fd, &message, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent == (ssize_t)(sizeof header + length) ? 0 : SIM_ERR_UNKNOWN;
}

static int receive_all(int fd, void *buffer, size_t length)
{
    char *at = buffer;
    while (length > 0) {
        ssize_t got = recv(fd, at, length, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return SIM_ERR_UNKNOWN;
        at += got;
        length -= (size_t)got;
    }
    return 0;
}

static int receive_body(int fd, struct sim_header header, enum sim_type type, void *body,
                        size_t length)
{
    if (header.magic != SIM_MAGIC || header.protocol != SIM_PROTOCOL || header.type != type)
        return SIM_ERR_UNKNOWN;
    if (header.status != 0)
        return header.length == 0 ? header.status : SIM_ERR_UNKNOWN;
    if (header.length != length)
        return SIM_ERR_UNKNOWN;
    return receive_all(fd, body, length);
}

static int receive_frame(int fd, enum sim_type type, void *body, size_t length)
{
    struct sim_header header;
    if (receive_all(fd, &header, sizeof header) != 0)
        return SIM_ERR_UNKNOWN;
    return receive_body(fd, header, type, body, length);
}

int sim_call(int fd, enum sim_type type, void *body, size_t length)
{
    int status = send_frame(fd, type, body, length);
    return status != 0 ? status : receive_frame(fd, type, body, length);
}

int sim_call_between_events(int fd, enum sim_type type, void *body, size_t length,
                            struct sim_event *early, unsigned *count, unsigned most)
{
    int status = send_frame(fd, type, body, length);
    while (status == 0) {
        struct sim_header header;
        struct sim_event event;
        if (receive_all(fd, &header, sizeof header) != 0)
            return SIM_ERR_UNKNOWN;
        if (header.type != SIM_EVENT)
            return receive_body(fd, header, type, body, length);
        status = receive_body(fd, header, SIM_EVENT, &event, sizeof event);
        if (status == 0 && *count < most)
            early[(*count)++] = event;
    }
    return status;
}

int sim_tell(int fd, enum sim_type type, const void *body, size_t length)
{
    return send_frame(fd, type, body, length);
}

static int64_t milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int sim_wait_event(int fd, int timeout_ms, struct sim_event *event)
{
    int64_t end = milliseconds() + timeout_ms;
    for (;;) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        int64_t left = timeout_ms < 0 ? -1 : end - milliseconds();
        int ready = poll(&wait, 1, timeout_ms < 0 ? -1 : (int)(left < 0 ? 0 : left));
        if (ready > 0)
            return receive_frame(fd, SIM_EVENT, event, sizeof *event);
        if (ready == 0)
            return SIM_ERR_TIMEOUT;
        if (errno != EINTR)
            return SIM_ERR_UNKNOWN;
    }
}

int sim_connect(const char *root, uint32_t kind, struct sim_hello *hello)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    /* A driver root can lie deeper than a socket's address is long: go through its directory. */
    char path[4096];
    if (snprintf(path, sizeof path, "%s%s", root, SIM_SOCKET) >= (int)sizeof path)
        return -SIM_ERR_DRIVER_NOT_LOADED;
    if (sim_socket_address(path, &address) != 0)
        return -SIM_ERR_DRIVER_NOT_LOADED;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -SIM_ERR_UNKNOWN;
    int connected = connect(fd, (struct sockaddr *)&address, sizeof address);
    sim_socket_address_done(&address);
    if (connected != 0) {
        close(fd);
        return -SIM_ERR_DRIVER_NOT_LOADED;
    }
    memset(hello, 0, sizeof *hello);
    snprintf(hello->version, sizeof hello->version, "%s", sim_version());
    hello->kind = kind;
    int status = sim_call(fd, SIM_HELLO, hello, sizeof *hello);
    if (status != 0) {
        close(fd);
        return -status;
    }
    return fd;
}
