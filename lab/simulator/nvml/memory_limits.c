/* Memory limits of control groups: functions that came with driver 615, so that the library of an
 * older one is linked without this file. */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "handles.h"

/* The group by the inode of its directory, which means the same in every view of the files. */
static int find_group(const char *path, uint64_t *group)
{
    struct statfs hierarchy;
    struct stat about;
    if (path == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno == EACCES ? SIM_ERR_NO_PERMISSION : SIM_ERR_NOT_FOUND;
    int status = fstatfs(fd, &hierarchy) != 0 || fstat(fd, &about) != 0 ? SIM_ERR_UNKNOWN
                 : hierarchy.f_type != CGROUP2_SUPER_MAGIC            ? SIM_ERR_NOT_SUPPORTED
                                                                      : 0;
    if (status == 0)
        *group = about.st_ino;
    close(fd);
    return status;
}

static int ask(nvmlDevice_t device, const char *path, struct sim_memory_limits *request)
{
    struct sim_gpu state;
    int status = gpu_state(device, &state);
    if (status != 0 || (status = find_group(path, &request->group)) != 0)
        return status;
    request->gpu = state.index;
    return session_request(SIM_MEMORY_LIMITS, request, sizeof *request);
}

EXPORT nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device, nvmlSetMemoryLimits_v1_t *limits)
{
    if (limits == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    struct sim_memory_limits request = {.set = 1, .soft = limits->softLimit, .hard = limits->hardLimit};
    return ask(device, limits->nameSpace, &request);
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t device, nvmlGetMemoryLimits_v1_t *limits)
{
    if (limits == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    struct sim_memory_limits request = {.set = 0};
    int status = ask(device, limits->nameSpace, &request);
    if (status != 0)
        return status;
    limits->softLimit = request.soft;
    limits->hardLimit = request.hard;
    limits->currentUsed = request.used;
    return 0;
}
