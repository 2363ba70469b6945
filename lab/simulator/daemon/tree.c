/* Files below the driver root that the kernel driver keeps: proc entries, links of the loaded
 * version, and the MIG modes that outlive it. */
#include "state.h"

#include <errno.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../common/version.h"

static void make_folders(char *path)
{
    for (char *at = strchr(path + 1, '/'); at != NULL; at = strchr(at + 1, '/')) {
        *at = '\0';
        mkdir(path, 0755);
        *at = '/';
    }
}

/* Write a small file below the root, whole or not at all. */
__attribute__((format(printf, 2, 3))) static void put(const char *name, const char *format, ...)
{
    char path[PATH_MAX + 256], fresh[PATH_MAX + 264];
    snprintf(path, sizeof path, "%s%s", sim.root, name);
    make_folders(path);
    snprintf(fresh, sizeof fresh, "%s.new", path);
    FILE *file = fopen(fresh, "we");
    if (file == NULL) {
        fprintf(stderr, "divvy-simd: %s: %s\n", fresh, strerror(errno));
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    vfprintf(file, format, arguments);
    va_end(arguments);
    if (fclose(file) != 0 || rename(fresh, path) != 0)
        fprintf(stderr, "divvy-simd: %s: %s\n", path, strerror(errno));
}

static int remove_entry(const char *path, const struct stat *about, int kind, struct FTW *where)
{
    (void)about, (void)kind, (void)where;
    return remove(path);
}

static void write_version(void)
{
    put("/proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  %s  (simulated by Divvy)\n", sim.driver);
}

static void write_minors(void)
{
    size_t room = (size_t)sim.gpu_count * SIM_MAX_GIS * (1 + SIM_MAX_CIS) * 40 + 64, at = 0;
    char *text = malloc(room);
    if (text == NULL)
        return;
    at += (size_t)snprintf(text, room, "config 1\nmonitor 2\n");
    for (uint32_t g = 0; g < sim.gpu_count; g++) {
        unsigned minor = sim.gpus[g].info.minor;
        for (unsigned gi = 0; gi < SIM_MAX_GIS; gi++) {
            at += (size_t)snprintf(text + at, room - at, "gpu%u/gi%u/access %u\n", minor, gi,
                                   sim_cap_minor(minor, gi, SIM_NO_ID));
            for (unsigned ci = 0; ci < SIM_MAX_CIS; ci++)
                at += (size_t)snprintf(text + at, room - at, "gpu%u/gi%u/ci%u/access %u\n", minor, gi,
                                       ci, sim_cap_minor(minor, gi, ci));
        }
    }
    put("/proc/driver/nvidia-caps/mig-minors", "%s", text);
    free(text);
}

static void put_access(const char *name, unsigned minor)
{
    put(name, "DeviceFileMinor: %u\nDeviceFileMode: 292\nDeviceFileModify: 1\n", minor);
}

/* A file of a GPU in sysfs, whose names have four digits for the domain, in small letters. */
__attribute__((format(printf, 3, 4))) static void put_pci(const struct sim_gpu *info,
                                                          const char *file, const char *format, ...)
{
    char name[96], text[512];
    snprintf(name, sizeof name, "/sys/bus/pci/devices/%04x:%02x:%02x.0/%s", info->pci_domain,
             info->pci_bus, info->pci_device, file);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    put(name, "%s", text);
}

/* What the bus says of a GPU: a 3D controller of NVIDIA's. Of the configuration space the first
 * bytes are blank, and no region of memory is behind it. */
static void write_pci(const struct sim_gpu *info)
{
    put_pci(info, "numa_node", "%d\n", info->numa);
    put_pci(info, "vendor", "0x10de\n");
    put_pci(info, "device", "0x%04x\n", info->pci_device_id >> 16);
    put_pci(info, "class", "0x030200\n");
    put_pci(info, "config", "%256s", "");
    put_pci(info, "resource", "0x%016x 0x%016x 0x%016x\n", 0, 0, 0);
}

void tree_write(void)
{
    write_version();
    write_minors();
    put_access("/proc/driver/nvidia/capabilities/mig/config", 1);
    put_access("/proc/driver/nvidia/capabilities/mig/monitor", 2);
    for (uint32_t g = 0; g < sim.gpu_count; g++) {
        const struct sim_gpu *info = &sim.gpus[g].info;
        char name[128];
        /* The kernel writes the domain with four digits, NVML with eight. */
        snprintf(name, sizeof name, "/proc/driver/nvidia/gpus/%s/information", info->bus_id + 4);
        put(name, "Model: \t\t %s\nGPU UUID: \t %s\nBus Location: \t %s\nDevice Minor: \t %u\n",
            info->product, info->uuid, info->bus_id + 4, info->minor);
        write_pci(info);
        /* Of the node that such a GPU would be in: this machine has another size. */
        if (info->of_system)
            put("/proc/meminfo", "MemTotal: %15llu kB\n", (unsigned long long)info->memory_total >> 10);
        tree_update(g);
    }
}

void tree_update(uint32_t index)
{
    struct gpu *gpu = gpu_at(index);
    unsigned minor = gpu->info.minor;
    char path[PATH_MAX + 128], name[128];
    snprintf(path, sizeof path, "%s/proc/driver/nvidia/capabilities/gpu%u", sim.root, minor);
    nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    strcat(path, "/mig/");
    make_folders(path);
    for (uint32_t i = 0; i < gpu->gi_count; i++) {
        const struct sim_gpu_instance *gi = &gpu->gis[i];
        snprintf(name, sizeof name, "/proc/driver/nvidia/capabilities/gpu%u/mig/gi%u/access", minor, gi->id);
        put_access(name, sim_cap_minor(minor, gi->id, SIM_NO_ID));
        for (uint32_t c = 0; c < gi->ci_count; c++) {
            snprintf(name, sizeof name, "/proc/driver/nvidia/capabilities/gpu%u/mig/gi%u/ci%u/access",
                     minor, gi->id, gi->ci[c].id);
            put_access(name, sim_cap_minor(minor, gi->id, gi->ci[c].id));
        }
    }
}

void modes_load(void)
{
    char line[128], uuid[64];
    unsigned mode;
    FILE *file = sim.persist[0] == '\0' ? NULL : fopen(sim.persist, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        for (uint32_t g = 0; sscanf(line, "%63s %u", uuid, &mode) == 2 && g < sim.gpu_count; g++) {
            struct gpu *gpu = &sim.gpus[g];
            if (strcmp(gpu->info.uuid, uuid) == 0 && gpu->info.mig_capable && gpu->mode_survives)
                gpu->info.mig_mode = gpu->info.mig_pending = mode == 1;
        }
    if (file != NULL)
        fclose(file);
}

void modes_save(void)
{
    char fresh[PATH_MAX + 8];
    if (sim.persist[0] == '\0')
        return;
    snprintf(fresh, sizeof fresh, "%s.new", sim.persist);
    FILE *file = fopen(fresh, "we");
    if (file == NULL)
        return;
    for (uint32_t g = 0; g < sim.gpu_count; g++)
        if (sim.gpus[g].mode_survives)
            fprintf(file, "%s %u\n", sim.gpus[g].info.uuid, sim.gpus[g].info.mig_pending);
    if (fclose(file) == 0)
        rename(fresh, sim.persist);
}

/* Point the names that programs load at the files of one version. */
static int link_version(const char *version)
{
    static const char *const links[][2] = {{"libnvidia-ml.so", "libnvidia-ml.so.1"},
                                           {"libcuda.so", "libcuda.so.1"}};
    char folder[PATH_MAX + 32], path[PATH_MAX + 128], target[96];
    snprintf(folder, sizeof folder, "%s/usr/lib/x86_64-linux-gnu", sim.root);
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        snprintf(path, sizeof path, "%s/%s.%s", folder, links[i][0], version);
        if (access(path, R_OK) != 0)
            return SIM_ERR_NOT_FOUND;
    }
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        char fresh[PATH_MAX + 140];
        snprintf(path, sizeof path, "%s/%s", folder, links[i][1]);
        snprintf(fresh, sizeof fresh, "%s.new", path);
        snprintf(target, sizeof target, "%s.%s", links[i][0], version);
        unlink(fresh);
        if (symlink(target, fresh) != 0 || rename(fresh, path) != 0)
            return SIM_ERR_UNKNOWN;
    }
    return 0;
}

int driver_switch(const char *version)
{
    if (version[0] == '\0' || strspn(version, "0123456789.") != strlen(version))
        return SIM_ERR_INVALID_ARGUMENT;
    int status = link_version(version);
    if (status != 0)
        return status;
    for (int i = 0; i < sim.client_top; i++)
        if (sim.clients[i].fd >= 0)
            contexts_drop(&sim.clients[i]);
    snprintf(sim.driver, sizeof sim.driver, "%s", version);
    driver_reload();
    write_version();
    return 0;
}
