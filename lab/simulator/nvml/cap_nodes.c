/* Device nodes of new MIG instances, made in the creator's own view of the file system. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "../common/version.h"
#include "handles.h"

static unsigned caps_major(void)
{
    char path[PATH_MAX + 32], line[128], name[64];
    unsigned number, major_number = 0;
    snprintf(path, sizeof path, "%s/proc/devices", sim_root());
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, " %u %63s", &number, name) == 2 && strcmp(name, "nvidia-caps") == 0)
            major_number = number;
    if (file != NULL)
        fclose(file);
    return major_number;
}

/* Who may not make nodes gets none, as with nvidia-modprobe. */
void cap_nodes_make(uint32_t gpu_minor, uint32_t gi, uint32_t ci)
{
    char path[PATH_MAX + 64];
    unsigned number = caps_major(), minor_number = sim_cap_minor(gpu_minor, gi, ci);
    if (number == 0)
        return;
    snprintf(path, sizeof path, "%s/dev/nvidia-caps", sim_root());
    mkdir(path, 0755);
    snprintf(path, sizeof path, "%s/dev/nvidia-caps/nvidia-cap%u", sim_root(), minor_number);
    if (mknod(path, S_IFCHR | 0444, makedev(number, minor_number)) == 0)
        chmod(path, 0444);
}
