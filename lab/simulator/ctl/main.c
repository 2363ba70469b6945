/* divvy-sim: looks into the simulated driver and brings faults about. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../common/codes.h"
#include "../common/version.h"
#include "../common/wire.h"

static int usage(void)
{
    fputs("usage: divvy-sim show\n"
          "       divvy-sim fault xid GPU NUMBER [GI CI]\n"
          "       divvy-sim fault lost|ecc|ecc-corrected|bad-math|no-activation|no-fabric|clear GPU\n"
          "       divvy-sim fault hot|narrow|link-error|mps-wedge GPU\n"
          "       divvy-sim fault slow GPU MILLISECONDS\n"
          "       divvy-sim fault code GPU NVML-CODE\n"
          "       divvy-sim fault recovery GPU NVML-ACTION\n"
          "       divvy-sim fault numa-node GPU NODE\n"
          "       divvy-sim load GPU PERCENT\n"
          "       divvy-sim context-memory GPU MIB\n"
          "       divvy-sim driver VERSION\n"
          "GPU is an index, a UUID or `all`.\n",
          stderr);
    return 2;
}

static const char *reason(int status)
{
    switch (status) {
    case SIM_ERR_INVALID_ARGUMENT:
        return "a value is out of range";
    case SIM_ERR_NO_PERMISSION:
        return "this needs root with CAP_SYS_ADMIN";
    case SIM_ERR_NOT_FOUND:
        return "there is no such GPU or driver version";
    case SIM_ERR_DRIVER_NOT_LOADED:
        return "no divvy-simd answers";
    default:
        return "the daemon did not answer as expected";
    }
}

static int failed(int status)
{
    fprintf(stderr, "divvy-sim: %s\n", reason(status));
    return 1;
}

static int read_gpu(int fd, uint32_t index, struct sim_gpu *gpu)
{
    gpu->index = index;
    return sim_call(fd, SIM_GPU, gpu, sizeof *gpu);
}

static void show_processes(int fd, uint32_t index)
{
    static struct sim_processes all;
    all.gpu = index;
    if (sim_call(fd, SIM_PROCESSES, &all, sizeof all) != 0)
        return;
    for (uint32_t i = 0; i < all.count; i++) {
        const struct sim_process *process = &all.process[i];
        printf("  process %u", process->pid);
        if (process->gi != SIM_NO_ID)
            printf(" gi %u ci %u", process->gi, process->ci);
        printf(" %llu bytes\n", (unsigned long long)process->bytes);
    }
}

static void show_instances(int fd, uint32_t index)
{
    static struct sim_instances all;
    all.gpu = index;
    if (sim_call(fd, SIM_INSTANCES, &all, sizeof all) != 0)
        return;
    for (uint32_t i = 0; i < all.count; i++) {
        const struct sim_gpu_instance *gi = &all.gi[i];
        struct sim_profile profile = {.gpu = index, .index = gi->profile_index};
        if (sim_call(fd, SIM_PROFILE, &profile, sizeof profile) != 0)
            return;
        printf("  gi %u %s slices %u:%u used %llu of %llu MiB\n", gi->id, profile.name,
               gi->placement.start, gi->placement.size, (unsigned long long)(gi->memory_used >> 20),
               (unsigned long long)(gi->memory_total >> 20));
        for (uint32_t c = 0; c < gi->ci_count; c++)
            printf("    ci %u %u slices %s\n", gi->ci[c].id, gi->ci[c].slices, gi->ci[c].uuid);
    }
}

static int show(int fd, const struct sim_hello *hello)
{
    printf("simulated driver %s\n", hello->version);
    for (uint32_t i = 0; i < hello->gpu_count; i++) {
        struct sim_gpu gpu;
        int status = read_gpu(fd, i, &gpu);
        if (status != 0)
            return failed(status);
        printf("gpu %u %s %s %s used %llu of %llu MiB, %u %%, MIG %s%s%s%s\n", i, gpu.uuid, gpu.bus_id,
               gpu.product, (unsigned long long)((gpu.memory_used + gpu.memory_reserved) >> 20),
               (unsigned long long)(gpu.memory_total >> 20), gpu.utilisation,
               gpu.mig_mode ? "on" : "off", gpu.mig_mode != gpu.mig_pending ? ", change pending" : "",
               gpu.lost ? ", lost" : "", gpu.bad_arithmetic ? ", bad arithmetic" : "");
        show_instances(fd, i);
        show_processes(fd, i);
    }
    return 0;
}

static bool number(const char *text, uint64_t *value)
{
    char *end;
    *value = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == '\0';
}

static bool names(int fd, const char *wanted, uint32_t index)
{
    uint64_t read;
    struct sim_gpu gpu;
    if (strcmp(wanted, "all") == 0)
        return true;
    if (number(wanted, &read))
        return read == index;
    return read_gpu(fd, index, &gpu) == 0 && strcmp(gpu.uuid, wanted) == 0;
}

static int order(int fd, uint32_t count, const char *wanted, struct sim_fault_order what)
{
    bool any = false;
    for (uint32_t i = 0; i < count; i++) {
        if (!names(fd, wanted, i))
            continue;
        struct sim_fault_order one = what;
        one.gpu = i;
        int status = sim_call(fd, SIM_FAULT, &one, sizeof one);
        if (status != 0)
            return failed(status);
        any = true;
    }
    return any ? 0 : failed(SIM_ERR_NOT_FOUND);
}

static int fault(int fd, uint32_t count, int argc, char **argv)
{
    static const struct {
        const char *name;
        uint32_t kind;
        int values; /* least number of values */
        uint64_t value;
    } faults[] = {{"clear", SIM_FAULT_CLEAR, 0, 0}, {"xid", SIM_FAULT_XID, 1, 0},
                  {"lost", SIM_FAULT_LOST, 0, 0}, {"ecc", SIM_FAULT_ECC, 0, 1},
                  {"ecc-corrected", SIM_FAULT_ECC, 0, 0}, {"slow", SIM_FAULT_SLOW, 1, 0},
                  {"code", SIM_FAULT_CODE, 1, 0}, {"recovery", SIM_FAULT_RECOVERY, 1, 0},
                  {"numa-node", SIM_FAULT_NUMA_NODE, 1, 0},
                  {"bad-math", SIM_FAULT_BAD_MATH, 0, 0},
                  {"no-activation", SIM_FAULT_NO_ACTIVATION, 0, 0},
                  {"no-fabric", SIM_FAULT_NO_FABRIC, 0, 0},
                  {"hot", SIM_FAULT_HOT, 0, 0}, {"narrow", SIM_FAULT_NARROW, 0, 0},
                  {"link-error", SIM_FAULT_LINK_ERRORS, 0, 0},
                  {"mps-wedge", SIM_FAULT_MPS_WEDGE, 0, 0}};
    for (size_t i = 0; argc >= 2 && i < sizeof faults / sizeof *faults; i++) {
        if (strcmp(argv[0], faults[i].name) != 0)
            continue;
        struct sim_fault_order what = {.kind = faults[i].kind, .value = faults[i].value,
                                       .gi = SIM_NO_ID, .ci = SIM_NO_ID};
        uint64_t gi, ci;
        bool placed = faults[i].kind == SIM_FAULT_XID && argc == 5;
        if (argc != 2 + faults[i].values && !placed)
            return usage();
        if (faults[i].values == 1 && !number(argv[2], &what.value))
            return usage();
        if (placed) {
            if (!number(argv[3], &gi) || !number(argv[4], &ci))
                return usage();
            what.gi = (uint32_t)gi;
            what.ci = (uint32_t)ci;
        }
        return order(fd, count, argv[1], what);
    }
    return usage();
}

static int switch_driver(int fd, const char *version)
{
    struct sim_switch what = {""};
    if (strlen(version) >= sizeof what.version)
        return failed(SIM_ERR_INVALID_ARGUMENT);
    strcpy(what.version, version);
    int status = sim_call(fd, SIM_SWITCH_DRIVER, &what, sizeof what);
    return status == 0 ? 0 : failed(status);
}

int main(int argc, char **argv)
{
    struct sim_hello hello;
    if (argc < 2)
        return usage();
    int fd = sim_connect(sim_root(), SIM_CLIENT_TOOL, &hello);
    if (fd < 0)
        return failed(-fd);
    if (strcmp(argv[1], "show") == 0 && argc == 2)
        return show(fd, &hello);
    if (strcmp(argv[1], "fault") == 0)
        return fault(fd, hello.gpu_count, argc - 2, argv + 2);
    if (strcmp(argv[1], "driver") == 0 && argc == 3)
        return switch_driver(fd, argv[2]);
    uint64_t value;
    if (argc == 4 && number(argv[3], &value)) {
        if (strcmp(argv[1], "load") == 0)
            return order(fd, hello.gpu_count, argv[2],
                         (struct sim_fault_order){.kind = SIM_FAULT_LOAD, .value = value});
        if (strcmp(argv[1], "context-memory") == 0)
            return order(fd, hello.gpu_count, argv[2],
                         (struct sim_fault_order){.kind = SIM_FAULT_CONTEXT_MEMORY, .value = value});
    }
    return usage();
}
