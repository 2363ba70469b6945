#include "mps.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int mps_socket_path(const char *name, char *path, unsigned length)
{
    const char *pipes = getenv("CUDA_MPS_PIPE_DIRECTORY");
    int written = snprintf(path, length, "%s/%s", pipes == NULL || *pipes == '\0' ? MPS_PIPES : pipes, name);
    return written > 0 && written < (int)length && written < (int)sizeof((struct sockaddr_un *)0)->sun_path ? 0 : -1;
}

int mps_connect(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (mps_socket_path(name, address.sun_path, sizeof address.sun_path) != 0)
        return -1;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

uint64_t mps_size(const char *text)
{
    char *end;
    if (*text < '0' || *text > '9')
        return 0;
    unsigned long long number = strtoull(text, &end, 10);
    unsigned shift = *end == 'G' || *end == 'g' ? 30 : *end == 'M' || *end == 'm' ? 20 : *end == 'K' || *end == 'k' ? 10 : 64;
    /* A size in bytes has no letter. */
    if (*end == '\0')
        return number;
    if (shift == 64 || (end[1] != '\0' && end[1] != 'B' && end[1] != 'b') || number > (UINT64_MAX >> shift))
        return 0;
    return (uint64_t)number << shift;
}
