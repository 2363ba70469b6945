#include "memory_limit.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "share.h"

enum { LONGEST_LINE = 512, LONGEST_UUID = 64, MAX_DEVICES = 16 };

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

/* Write the path of the container's control group; false where it has none of its own. */
static bool group_of(long pid, const char *groups, char *path, size_t size)
{
    char name[64], line[PATH_MAX];
    bool found = false;
    snprintf(name, sizeof name, "/proc/%ld/cgroup", pid);
    FILE *file = fopen(name, "re");
    while (file != NULL && !found && fgets(line, sizeof line, file) != NULL)
        found = strncmp(line, "0::/", 4) == 0;
    if (file != NULL)
        fclose(file);
    line[found ? strcspn(line, "\n") : 0] = '\0';
    /* The limit of a group is of all groups below it: the root's would be the whole node's. */
    return found && line[4] != '\0' && snprintf(path, size, "%s%s", groups, line + 3) < (int)size;
}

static bool is_version_2(const char *groups)
{
    struct statfs hierarchy;
    return statfs(groups, &hierarchy) == 0 && hierarchy.f_type == CGROUP2_SUPER_MAGIC;
}

static int run(const struct limiting *limiting, char *const *words)
{
    char libraries[PATH_MAX + 32];
    snprintf(libraries, sizeof libraries, "LD_LIBRARY_PATH=%s", limiting->libraries);
    char path[] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
    char *environment[] = {libraries, path, NULL};
    pid_t child = fork();
    if (child == 0) {
        /* What it says belongs to the reason, which the runtime shows. */
        dup2(STDERR_FILENO, STDOUT_FILENO);
        execve(limiting->smi, words, environment);
        fprintf(stderr, "divvy: cannot run %s: %s\n", limiting->smi, strerror(errno));
        _exit(127);
    }
    int status = 0;
    while (child > 0 && waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static bool limit_gpu(const struct limiting *limiting, char *group, char *uuid, unsigned long long bytes)
{
    char mib[32];
    snprintf(mib, sizeof mib, "%llu", bytes >> 20);
    /* A soft limit would be reserved in the groups above, and stay when the container's is gone. */
    char *words[] = {"nvidia-smi", "memory-limits", "--set", "-n", group, "--soft-limit", "0",
                     "--hard-limit", mib, "-i", uuid, NULL};
    if (run(limiting, words) == 0)
        return true;
    fprintf(stderr, "divvy: the driver does not limit the memory of GPU %s for this container\n", uuid);
    return false;
}

static bool limit_all(FILE *file, const struct limiting *limiting, char *group)
{
    char line[LONGEST_LINE], uuid[LONGEST_UUID];
    unsigned long long bytes;
    int devices = 0;
    if (fgets(line, sizeof line, file) == NULL || strncmp(line, "divvy-share ", 12) != 0)
        return false;
    while (fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "device %63[A-Za-z0-9-] memory %llu ", uuid, &bytes) != 2 || bytes >> 20 == 0 ||
            *uuid == '-' || ++devices > MAX_DEVICES)
            return false;
        if (!limit_gpu(limiting, group, uuid, bytes))
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
    if (!group_of(container->pid, limiting->groups, group, sizeof group)) {
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
