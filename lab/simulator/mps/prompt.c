/* The program as an administrator's: it brings commands to a daemon and prints the answers. */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "mps.h"

int bring(const char *line)
{
    struct mps_request request = {.magic = MPS_MAGIC, .kind = MPS_COMMAND};
    struct mps_answer answer;
    char text[4096];
    int fd = mps_connect(MPS_PRIVILEGED);
    if (fd < 0)
        fd = mps_connect(MPS_CONTROL);
    snprintf(request.command, sizeof request.command, "%s", line);
    if (fd < 0 || send(fd, &request, sizeof request, MSG_NOSIGNAL) != sizeof request ||
        recv(fd, &answer, sizeof answer, MSG_WAITALL) != sizeof answer) {
        fputs("Cannot find MPS control daemon process\n", stderr);
        return 1;
    }
    for (uint32_t left = answer.length; left > 0;) {
        ssize_t got = recv(fd, text, left < sizeof text ? left : sizeof text, 0);
        if (got <= 0)
            break;
        fwrite(text, 1, (size_t)got, stdout);
        left -= (uint32_t)got;
    }
    close(fd);
    return answer.code;
}

int prompt(void)
{
    char line[MPS_TEXT];
    int worst = 0;
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (line[strspn(line, " \t\n")] != '\0' && bring(line) != 0)
            worst = 1;
        fflush(stdout);
    }
    return worst;
}
