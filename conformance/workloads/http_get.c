/*
 * http-get: print what a web server answers to GET.
 *
 * Arguments: address (IPv4 or IPv6), port, path. Exit code 0 for an answer that begins with
 * "HTTP/1.x 200", else 1 with a sentence on stderr; 2 for wrong arguments.
 */
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { SECONDS = 10 };

static int dial(const char *host, const char *port)
{
    struct addrinfo want = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST}, *found = NULL;
    int problem = getaddrinfo(host, port, &want, &found);
    if (problem != 0) {
        fprintf(stderr, "%s port %s: %s\n", host, port, gai_strerror(problem));
        return -1;
    }
    int fd = socket(found->ai_family, found->ai_socktype, found->ai_protocol);
    struct timeval limit = {.tv_sec = SECONDS};
    if (fd >= 0) {
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    }
    if (fd < 0 || connect(fd, found->ai_addr, found->ai_addrlen) != 0) {
        fprintf(stderr, "%s port %s: %s\n", host, port, strerror(errno));
        if (fd >= 0)
            close(fd);
        fd = -1;
    }
    freeaddrinfo(found);
    return fd;
}

int main(int count, char **arguments)
{
    char text[4096];
    if (count != 4) {
        fprintf(stderr, "usage: http-get ADDRESS PORT PATH\n");
        return 2;
    }
    int fd = dial(arguments[1], arguments[2]);
    if (fd < 0)
        return 1;
    int size = snprintf(text, sizeof text, "GET %s HTTP/1.0\r\nHost: metrics\r\n\r\n", arguments[3]);
    if (size < 0 || (size_t)size >= sizeof text) {
        fprintf(stderr, "the path is too long\n");
        return 2;
    }
    if (send(fd, text, (size_t)size, MSG_NOSIGNAL) != size) {
        fprintf(stderr, "the request was not sent: %s\n", strerror(errno));
        return 1;
    }
    char head[16] = "";
    size_t kept = 0;
    ssize_t got = 0;
    while ((got = recv(fd, text, sizeof text, 0)) > 0) {
        for (ssize_t i = 0; i < got && kept < sizeof head - 1; i++)
            head[kept++] = text[i];
        fwrite(text, 1, (size_t)got, stdout);
    }
    close(fd);
    if (got < 0) {
        fprintf(stderr, "the answer broke off: %s\n", strerror(errno));
        return 1;
    }
    if (strncmp(head, "HTTP/1.", 7) != 0 || strncmp(head + 8, " 200", 4) != 0) {
        fprintf(stderr, "no answer that is well\n");
        return 1;
    }
    return 0;
}
