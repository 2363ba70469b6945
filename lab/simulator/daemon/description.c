/* Reads the flat file that describes a node's GPUs: one statement a line, `key value …`. */
#include "state.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *file_name;
static unsigned line_number;

__attribute__((format(printf, 1, 2))) static bool wrong(const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "divvy-simd: %s:%u: ", file_name, line_number);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    return false;
}

static bool number(const char *text, uint64_t most, uint64_t *value)
{
    char *end;
    errno = 0;
    unsigned long long read = strtoull(text, &end, 0);
    if (*text == '\0' || *text == '-' || *end != '\0' || errno != 0 || read > most)
        return wrong("%s is no number up to %llu", text, (unsigned long long)most);
    *value = read;
    return true;
}

static bool text(char *target, size_t size, const char *value)
{
    if (strlen(value) >= size)
        return wrong("%s is longer than %zu characters", value, size - 1);
    snprintf(target, size, "%s", value);
    return true;
}

static bool architecture(struct gpu *gpu, const char *name)
{
    static const struct {
        const char *name;
        uint32_t number;
    } known[] = {{"volta", 5}, {"turing", 6}, {"ampere", 7}, {"ada", 8}, {"hopper", 9},
                 {"blackwell", 10}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, name) == 0) {
            gpu->info.architecture = known[i].number;
            return true;
        }
    return wrong("architecture %s is unknown; known: volta, turing, ampere, ada, hopper, blackwell", name);
}

static bool bus(struct gpu *gpu, const char *value)
{
    unsigned domain, bus_number, device;
    if (sscanf(value, "%8x:%2x:%2x.0", &domain, &bus_number, &device) != 3 || strlen(value) != 16)
        return wrong("bus %s is not of the form 00000000:07:00.0", value);
    gpu->info.pci_domain = domain;
    gpu->info.pci_bus = bus_number;
    gpu->info.pci_device = device;
    return text(gpu->info.bus_id, sizeof gpu->info.bus_id, value);
}

/* `links` is a list such as 1,1,switch,- : where each NVLink of the GPU goes. */
static bool links(struct gpu *gpu, char *value)
{
    uint64_t peer;
    char *rest = NULL;
    for (char *word = strtok_r(value, ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest)) {
        if (gpu->info.link_count == SIM_MAX_LINKS)
            return wrong("more than %d links", SIM_MAX_LINKS);
        int8_t *at = &gpu->info.link_peer[gpu->info.link_count++];
        if (strcmp(word, "switch") == 0)
            *at = SIM_LINK_SWITCH;
        else if (strcmp(word, "-") == 0)
            *at = SIM_LINK_NONE;
        else if (number(word, SIM_MAX_GPUS - 1, &peer))
            *at = (int8_t)peer;
        else
            return false;
    }
    return true;
}

/* profile NAME ID NVML COMPUTE MEMORY STARTS MIB SMS MAX CE DEC ENC JPEG OFA ME */
static bool profile(struct gpu *gpu, char *value)
{
    char *words[15], *rest = NULL;
    uint64_t numbers[15] = {0};
    size_t count = 0;
    for (char *word = strtok_r(value, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        if (count == 15)
            return wrong("a MIG profile has 15 fields, this line has more");
        words[count++] = word;
    }
    if (count != 15)
        return wrong("a MIG profile has 15 fields, not %zu", count);
    if (gpu->info.profile_count == SIM_MAX_PROFILES)
        return wrong("more than %d MIG profiles", SIM_MAX_PROFILES);
    for (size_t i = 1; i < 15; i++)
        if (i != 5 && !number(words[i], i == 6 ? 1u << 30 : 100000, &numbers[i]))
            return false;
    struct sim_profile *made = &gpu->profiles[gpu->info.profile_count];
    *made = (struct sim_profile){
        .index = gpu->info.profile_count, .id = (uint32_t)numbers[1],
        .nvml_profile = (uint32_t)numbers[2], .compute_slices = (uint32_t)numbers[3],
        .memory_slices = (uint32_t)numbers[4], .memory_mib = numbers[6], .sms = (uint32_t)numbers[7],
        .max_count = (uint32_t)numbers[8], .copy_engines = (uint32_t)numbers[9],
        .decoders = (uint32_t)numbers[10], .encoders = (uint32_t)numbers[11],
        .jpegs = (uint32_t)numbers[12], .ofas = (uint32_t)numbers[13],
        .media_extensions = numbers[14] != 0};
    if (made->compute_slices == 0 || made->memory_slices == 0)
        return wrong("a MIG profile has at least one slice of each kind");
    for (char *word = strtok_r(words[5], ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest)) {
        uint64_t start;
        if (made->start_count == SIM_MAX_STARTS)
            return wrong("more than %d starts", SIM_MAX_STARTS);
        if (!number(word, 63, &start))
            return false;
        made->starts[made->start_count++] = (uint32_t)start;
    }
    gpu->info.profile_count++;
    return text(made->name, sizeof made->name, words[0]);
}

static bool about_node(const char *key, const char *value)
{
    if (strcmp(key, "node") == 0)
        return text(sim.node, sizeof sim.node, value);
    if (strcmp(key, "driver") == 0)
        return text(sim.driver, sizeof sim.driver, value);
    return wrong("%s is unknown before the first gpu; known: node, driver, gpu", key);
}

static bool about_gpu(struct gpu *gpu, const char *key, char *value)
{
    struct sim_gpu *info = &gpu->info;
    const struct {
        const char *name;
        uint32_t *target;
    } numbers[] = {{"minor", &info->minor}, {"sms", &info->sms},
        {"sm-clock-mhz", &info->sm_clock_max_mhz}, {"memory-clock-mhz", &info->memory_clock_mhz},
        {"power-limit-mw", &info->power_limit_mw}, {"pci-device-id", &info->pci_device_id},
        {"pci-subsystem-id", &info->pci_subsystem_id}, {"compute-slices", &info->compute_slices},
        {"memory-slices", &info->memory_slices}};
    uint64_t read;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strcmp(numbers[i].name, key) == 0) {
            if (!number(value, UINT32_MAX, &read))
                return false;
            *numbers[i].target = (uint32_t)read;
            return true;
        }
    if (strcmp(key, "product") == 0)
        return text(info->product, sizeof info->product, value);
    if (strcmp(key, "uuid") == 0)
        return text(info->uuid, sizeof info->uuid, value);
    if (strcmp(key, "serial") == 0)
        return text(info->serial, sizeof info->serial, value);
    if (strcmp(key, "architecture") == 0)
        return architecture(gpu, value);
    if (strcmp(key, "bus") == 0)
        return bus(gpu, value);
    if (strcmp(key, "links") == 0)
        return links(gpu, value);
    if (strcmp(key, "mig-profile") == 0)
        return profile(gpu, value);
    if (strcmp(key, "compute-capability") == 0)
        return sscanf(value, "%u.%u", &info->cc_major, &info->cc_minor) == 2 ||
               wrong("compute-capability %s is not of the form 8.0", value);
    if (!number(value, 1u << 30, &read))
        return false;
    if (strcmp(key, "memory-mib") == 0) {
        info->memory_total = read << 20;
        info->memory_reserved = info->memory_total / 64;
    } else if (strcmp(key, "numa") == 0)
        info->numa = (int32_t)read;
    else if (strcmp(key, "memory-of-system") == 0)
        info->of_system = read != 0;
    else if (strcmp(key, "mig-mode-needs-reset") == 0)
        gpu->mode_needs_reset = read != 0;
    else if (strcmp(key, "mig-mode-survives") == 0)
        gpu->mode_survives = read != 0;
    else
        return wrong("%s is unknown in a gpu", key);
    return true;
}

static bool complete(const struct gpu *gpu)
{
    const struct sim_gpu *info = &gpu->info;
    if (info->product[0] == '\0' || info->uuid[0] == '\0' || info->bus_id[0] == '\0' ||
        info->memory_total == 0 || info->sms == 0)
        return wrong("gpu %u lacks product, uuid, bus, memory-mib or sms", info->index);
    for (uint32_t l = 0; l < info->link_count; l++)
        if (info->link_peer[l] >= (int)sim.gpu_count || info->link_peer[l] == (int)info->index)
            return wrong("gpu %u: link %u goes to no other GPU", info->index, l);
    return true;
}

bool read_description(const char *path)
{
    char line[1024];
    struct gpu *gpu = NULL;
    bool sound = true;
    file_name = path;
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return wrong("%s", strerror(errno));
    while (sound && fgets(line, sizeof line, file) != NULL) {
        line_number++;
        line[strcspn(line, "\n")] = '\0';
        char *key = line + strspn(line, " ");
        if (*key == '\0' || *key == '#')
            continue;
        char *value = key + strcspn(key, " ");
        if (*value != '\0')
            *value++ = '\0';
        value += strspn(value, " ");
        if (strcmp(key, "gpu") == 0) {
            if (sim.gpu_count == SIM_MAX_GPUS)
                sound = wrong("more than %d GPUs", SIM_MAX_GPUS);
            else {
                gpu = &sim.gpus[sim.gpu_count];
                gpu->info.index = gpu->info.minor = sim.gpu_count++;
                gpu->info.numa = -1;
            }
        } else
            sound = gpu == NULL ? about_node(key, value) : about_gpu(gpu, key, value);
    }
    fclose(file);
    for (uint32_t g = 0; sound && g < sim.gpu_count; g++) {
        sim.gpus[g].info.mig_capable = sim.gpus[g].info.profile_count > 0;
        sim.gpus[g].energy_at = now_seconds();
        sound = complete(&sim.gpus[g]);
    }
    if (sound && (sim.gpu_count == 0 || sim.driver[0] == '\0'))
        sound = wrong("the file names no driver or no gpu");
    return sound;
}
