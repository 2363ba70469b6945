#include "version.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "protocol.h"

/* The installation overwrites what follows the colon in each copy of the file. */
#define STAMP "divvy-driver-version:"
char sim_version_stamp[64] = STAMP "550.163.01";

const char *sim_version(void)
{
    return sim_version_stamp + sizeof STAMP - 1;
}

void sim_set_version(const char *version)
{
    snprintf(sim_version_stamp + sizeof STAMP - 1, sizeof sim_version_stamp - (sizeof STAMP - 1), "%s", version);
}

int sim_cuda_version(const char *driver_version)
{
    static const struct {
        int branch, cuda;
    } table[] = {{615, 13040}, {590, 13010}, {580, 13000}, {575, 12090}, {570, 12080}, {565, 12070},
                 {560, 12060}, {555, 12050}, {550, 12040}, {545, 12030}, {535, 12020},
                 {530, 12010}, {525, 12000}, {520, 11080}, {515, 11070}, {510, 11060},
                 {495, 11050}, {470, 11040}, {465, 11030}, {460, 11020}, {455, 11010}};
    int branch = atoi(driver_version);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (branch >= table[i].branch)
            return table[i].cuda;
    return 11000;
}

static char root[PATH_MAX];
static pthread_once_t root_once = PTHREAD_ONCE_INIT;

static void find_root(void)
{
    static const char *const folders[] = {"/usr/lib/x86_64-linux-gnu/", "/usr/lib/aarch64-linux-gnu/",
                                          "/usr/lib64/", "/usr/bin/",
                                          "/usr/local/nvidia/lib64/", "/usr/local/nvidia/bin/", /* of clouds */
                                          "/usr/lib/divvy/driver/"}; /* behind the limiter */
    Dl_info info;
    char path[PATH_MAX];
    root[0] = '\0';
    if (dladdr(sim_version_stamp, &info) == 0 || info.dli_fname == NULL)
        return;
    /* Of a program dladdr gives argv[0]. */
    if (realpath(strchr(info.dli_fname, '/') != NULL ? info.dli_fname : "/proc/self/exe", path) == NULL)
        return;
    char *slash = strrchr(path, '/');
    slash[1] = '\0';
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        size_t length = strlen(path), tail = strlen(folders[i]);
        if (length >= tail && strcmp(path + length - tail, folders[i]) == 0) {
            path[length - tail] = '\0';
            memcpy(root, path, length - tail + 1);
            return;
        }
    }
}

const char *sim_root(void)
{
    pthread_once(&root_once, find_root);
    return root;
}

int sim_node_hidden(const char *name, int flags)
{
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s%s", sim_root(), name);
    int fd = open(path, flags | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0) {
        close(fd);
        return 0;
    }
    return errno == ENXIO || errno == ENODEV ? 0 : errno;
}

int sim_gpu_hidden(unsigned minor)
{
    char name[32];
    snprintf(name, sizeof name, "/dev/nvidia%u", minor);
    return sim_node_hidden(name, O_RDWR);
}

int sim_mig_hidden(unsigned minor, unsigned gi, unsigned ci)
{
    char name[48];
    snprintf(name, sizeof name, "/dev/nvidia-caps/nvidia-cap%u", sim_cap_minor(minor, gi, SIM_NO_ID));
    int hidden = sim_node_hidden(name, O_RDONLY);
    if (hidden != 0)
        return hidden;
    snprintf(name, sizeof name, "/dev/nvidia-caps/nvidia-cap%u", sim_cap_minor(minor, gi, ci));
    return sim_node_hidden(name, O_RDONLY);
}

unsigned sim_cap_minor(unsigned gpu_minor, unsigned gi, unsigned ci)
{
    /* 1 is "config", 2 "monitor"; then per GPU 15 GPU instances of 1 + 8 entries each. */
    unsigned minor = 3 + (gpu_minor * SIM_MAX_GIS + gi) * (1 + SIM_MAX_CIS);
    return ci == SIM_NO_ID ? minor : minor + 1 + ci;
}

int sim_socket_address(const char *path, struct sockaddr_un *address)
{
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    if (strlen(path) < sizeof address->sun_path) {
        memcpy(address->sun_path, path, strlen(path) + 1);
        return 0;
    }
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
    int fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    snprintf(address->sun_path, sizeof address->sun_path, "/proc/self/fd/%d%s", fd, slash);
    return 0;
}

void sim_socket_address_done(struct sockaddr_un *address)
{
    int fd;
    if (sscanf(address->sun_path, "/proc/self/fd/%d/", &fd) == 1)
        close(fd);
}
