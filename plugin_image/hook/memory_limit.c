#include "memory_limit.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <linux/magic.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "share.h"

#ifndef DIVVY_SMI_SECONDS /* tests do not wait so long */
#define DIVVY_SMI_SECONDS 40 /* for all GPUs together: the runtime ends a hook after 60, without a reason */
#endif
enum { SECONDS = DIVVY_SMI_SECONDS, LONGEST_REASON = 2048, LONGEST_LINE = 512, LONGEST_UUID = 64, MAX_DEVICES = 16,
       LARGEST_BITS = 50 };

/* The file of limits that the agent has laid for this container. Whoever can mount another one at its
 * place is not given that one's limits: none is taken, and the container does not start. */
static const char *limits_file(const struct container *container, const char *shares)
{
    const char *file = NULL;
    size_t length = strlen(shares);
    for (const struct mount *each = container->mounts; each->path != NULL; each++) {
        if (strcmp(each->path, SHARE_LIMITS) != 0)
            continue;
        bool own = strncmp(each->source, shares, length) == 0 && each->source[length] == '/' &&
                   strstr(each->source, "/../") == NULL;
        if (!own || (file != NULL && strcmp(file, each->source) != 0))
            return NULL;
        file = each->source;
    }
    return file;
}

/* Write where the control group of a process is below their folder ("/a/b"); false where it is in none
 * that can be named: beyond the namespace of the caller's, names begin with "..". */
static bool group_of(const char *process, char *path, size_t size)
{
    char name[64], line[PATH_MAX];
    bool found = false;
    snprintf(name, sizeof name, "/proc/%s/cgroup", process);
    FILE *file = fopen(name, "re");
    while (file != NULL && !found && fgets(line, sizeof line, file) != NULL)
        found = strncmp(line, "0::/", 4) == 0;
    if (file != NULL)
        fclose(file);
    line[found ? strcspn(line, "\n") : 0] = '\0';
    return found && strncmp(line, "0::/..", 6) != 0 && snprintf(path, size, "%s", line + 3) < (int)size;
}

/* Write the path of the container's control group; false where it has none of its own: the limit of a
 * group is of all groups below it, and the root's or the runtime's would be of the whole node. */
static bool own_group(long pid, const char *groups, char *path, size_t size)
{
    char process[32], group[PATH_MAX], runtimes[PATH_MAX];
    snprintf(process, sizeof process, "%ld", pid);
    if (!group_of(process, group, sizeof group) || !group_of("self", runtimes, sizeof runtimes) ||
        strcmp(group, "/") == 0)
        return false;
    size_t length = strlen(group);
    bool above = strncmp(runtimes, group, length) == 0 && (runtimes[length] == '/' || runtimes[length] == '\0');
    return !above && snprintf(path, size, "%s%s", groups, group) < (int)size;
}

static bool is_version_2(const char *groups)
{
    struct statfs hierarchy;
    return statfs(groups, &hierarchy) == 0 && hierarchy.f_type == CGROUP2_SUPER_MAGIC;
}

static time_t now(void)
{
    struct timespec time = {0, 0};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec;
}

/* Pass on the first words of a program until it ends; false where it does not in time. */
static bool follow(pid_t child, int output, time_t deadline)
{
    char text[1024];
    size_t room = LONGEST_REASON;
    int ended = (int)syscall(SYS_pidfd_open, child, 0);
    struct pollfd both[] = {{output, POLLIN, 0}, {ended, POLLIN, 0}};
    bool is_over = false;
    while (ended >= 0 && !is_over) {
        time_t left = deadline - now();
        int ready = left > 0 ? poll(both, 2, (int)left * 1000) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0)
            break;
        ssize_t got = both[0].revents != 0 ? read(output, text, sizeof text) : 0;
        if (got > 0) {
            room -= fwrite(text, 1, (size_t)got < room ? (size_t)got : room, stderr);
            continue;
        }
        both[0].fd = -1; /* it prints nothing more, and may run on */
        both[0].revents = 0;
        is_over = both[1].revents != 0;
    }
    if (ended >= 0)
        close(ended);
    return is_over;
}

/* A driver that hangs keeps what asks it, even from being killed. Nothing of the runtime's is open in
 * such a program, and nothing waits for it: the runtime would wait with the hook, beyond its own time
 * limit, and every new try to start the container would add one. */
static int run(const struct limiting *limiting, char *const *words, time_t deadline)
{
    /* Not by LD_LIBRARY_PATH: in a driver's container the folder has a C library too, which does not fit the host's
     * loader. */
    static const char variable[] = "LD_PRELOAD=";
    char preloaded[PATH_MAX + sizeof variable];
    snprintf(preloaded, sizeof preloaded, "%s%s", variable, limiting->library);
    if (access(preloaded + strlen(variable), R_OK) != 0)
        preloaded[strlen(variable)] = '\0';
    char path[] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
    char *environment[] = {preloaded, path, NULL};
    int ends[2];
    signal(SIGCHLD, SIG_DFL); /* a runtime that ignores it would leave nothing to wait for */
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC); /* what a runtime has left open */
        execve(limiting->smi, words, environment);
        fprintf(stderr, "divvy: cannot run %s: %s\n", limiting->smi, strerror(errno));
        _exit(127);
    }
    close(ends[1]);
    int status = -1;
    if (child > 0 && !follow(child, ends[0], deadline)) {
        kill(child, SIGKILL);
        fprintf(stderr, "divvy: %s did not end within %d s\n", limiting->smi, SECONDS);
    } else if (child < 0 || waitpid(child, &status, 0) < 0) {
        status = -1;
    }
    close(ends[0]);
    return status >= 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static bool limit_gpu(const struct limiting *limiting, char *group, char *uuid, unsigned long long bytes,
                      time_t deadline)
{
    char mib[32];
    snprintf(mib, sizeof mib, "%llu", bytes >> 20);
    /* A soft limit would be reserved in the groups above, and stay when the container's is gone. */
    char *words[] = {"nvidia-smi", "memory-limits", "--set", "-n", group, "--soft-limit", "0",
                     "--hard-limit", mib, "-i", uuid, NULL};
    if (run(limiting, words, deadline) == 0)
        return true;
    fprintf(stderr, "divvy: the driver does not limit the memory of GPU %s for this container\n", uuid);
    return false;
}

static bool limit_all(FILE *file, const struct limiting *limiting, char *group)
{
    char line[LONGEST_LINE], uuid[LONGEST_UUID];
    unsigned long long bytes;
    int devices = 0;
    time_t deadline = now() + SECONDS;
    if (fgets(line, sizeof line, file) == NULL || strncmp(line, "divvy-share ", 12) != 0)
        return false;
    while (fgets(line, sizeof line, file) != NULL) {
        if (strchr(line, '\n') == NULL ||
            sscanf(line, "device %63[A-Za-z0-9-] memory %llu ", uuid, &bytes) != 2 || *uuid == '-' ||
            ++devices > MAX_DEVICES)
            return false;
        /* To sscanf a number with a sign, or with too many digits, is a very large one. */
        if (bytes >> 20 == 0 || bytes >> LARGEST_BITS != 0)
            return false;
        if (!limit_gpu(limiting, group, uuid, bytes, deadline))
            return false;
    }
    return devices > 0;
}

bool memory_limit_set(const struct container *container, const struct limiting *limiting)
{
    char group[PATH_MAX];
    const char *limits = limits_file(container, limiting->shares);
    if (limits == NULL) {
        fputs("divvy: this container has a limited share of a GPU and not the share's limits: mount nothing at "
              "/usr/lib/divvy, and ask for no second limited resource\n",
              stderr);
        return false;
    }
    if (!is_version_2(limiting->groups)) {
        fprintf(stderr, "divvy: %s is not version 2 of the control groups, whose memory the driver limits\n",
                limiting->groups);
        return false;
    }
    if (!own_group(container->pid, limiting->groups, group, sizeof group)) {
        fputs("divvy: this container has no control group of its own, whose memory the driver could limit\n", stderr);
        return false;
    }
    int descriptor = open(limits, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    FILE *file = descriptor < 0 ? NULL : fdopen(descriptor, "r");
    bool done = file != NULL && limit_all(file, limiting, group);
    if (!done)
        fprintf(stderr, "divvy: the limits in %s are not set\n", limits);
    if (file != NULL)
        fclose(file);
    else if (descriptor >= 0)
        close(descriptor);
    return done;
}
