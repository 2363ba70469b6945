#include "sealed.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <unistd.h>

#ifndef MFD_EXEC /* headers older than Linux 6.3 */
#define MFD_EXEC 0x0010U
#endif
enum { SEALS = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE, CHUNK = 1 << 20 };

static int memory(void)
{
    int made = memfd_create("divvy", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC);
    if (made < 0 && errno == EINVAL) /* before Linux 6.3 such a file can always be run */
        made = memfd_create("divvy", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return made;
}

int sealed_copy(int program)
{
    int made = memory();
    if (made < 0)
        return -1;
    ssize_t copied;
    do
        copied = sendfile(made, program, NULL, CHUNK);
    while (copied > 0 || (copied < 0 && errno == EINTR));
    if (copied == 0 && fcntl(made, F_ADD_SEALS, SEALS) == 0)
        return made;
    int reason = errno;
    close(made);
    errno = reason;
    return -1;
}

int sealed_restart(char **words)
{
    char *const environment[] = {NULL};
    int own = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (own < 0)
        return -1;
    int seals = fcntl(own, F_GET_SEALS); /* -1 for a file on a disk */
    if (seals >= 0 && (seals & SEALS) == SEALS) {
        close(own);
        return 0;
    }
    int copy = sealed_copy(own);
    if (copy >= 0)
        execveat(copy, "", words, environment, AT_EMPTY_PATH);
    return -1;
}
