/* Each field of --query-gpu: its name, its unit and how it is read. */
#include "fields.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define FIELD(function, call, form, ...)                                                       \
    static bool function(unsigned index, nvmlDevice_t gpu, char *text, size_t size)            \
    {                                                                                          \
        (void)index;                                                                           \
        unsigned v = 0, w = 0;                                                                 \
        (void)v, (void)w;                                                                      \
        if ((call) != 0)                                                                       \
            return false;                                                                      \
        snprintf(text, size, form, __VA_ARGS__);                                               \
        return true;                                                                           \
    }

FIELD(field_index, gpu == NULL, "%u", index)
FIELD(field_minor, lib.nvmlDeviceGetMinorNumber(gpu, &v), "%u", v)
FIELD(field_temperature, lib.nvmlDeviceGetTemperature(gpu, 0, &v), "%u", v)
FIELD(field_power, lib.nvmlDeviceGetPowerUsage(gpu, &v), "%u.%02u", v / 1000, v % 1000 / 10)
FIELD(field_power_limit, lib.nvmlDeviceGetEnforcedPowerLimit(gpu, &v), "%u.%02u", v / 1000,
      v % 1000 / 10)
FIELD(field_sm_clock, lib.nvmlDeviceGetClockInfo(gpu, 1, &v), "%u", v)
FIELD(field_graphics_clock, lib.nvmlDeviceGetClockInfo(gpu, 0, &v), "%u", v)
FIELD(field_memory_clock, lib.nvmlDeviceGetClockInfo(gpu, 2, &v), "%u", v)
FIELD(field_sm_clock_max, lib.nvmlDeviceGetMaxClockInfo(gpu, 1, &v), "%u", v)
FIELD(field_memory_clock_max, lib.nvmlDeviceGetMaxClockInfo(gpu, 2, &v), "%u", v)
FIELD(field_state, lib.nvmlDeviceGetPerformanceState(gpu, &v), "P%u", v)
FIELD(field_fan, lib.nvmlDeviceGetFanSpeed(gpu, &v), "%u", v)
FIELD(field_persistence, lib.nvmlDeviceGetPersistenceMode(gpu, &v), "%s", v ? "Enabled" : "Disabled")
FIELD(field_display, lib.nvmlDeviceGetDisplayActive(gpu, &v), "%s", v ? "Enabled" : "Disabled")
FIELD(field_mig, lib.nvmlDeviceGetMigMode(gpu, &v, &w), "%s", v ? "Enabled" : "Disabled")
FIELD(field_mig_pending, lib.nvmlDeviceGetMigMode(gpu, &v, &w), "%s", w ? "Enabled" : "Disabled")
FIELD(field_ecc, lib.nvmlDeviceGetEccMode(gpu, &v, &w), "%s", v ? "Enabled" : "Disabled")

#define TEXT_FIELD(function, call)                                                             \
    static bool function(unsigned index, nvmlDevice_t gpu, char *text, size_t size)            \
    {                                                                                          \
        (void)index, (void)gpu;                                                                \
        return (call) == 0;                                                                    \
    }

TEXT_FIELD(field_name, lib.nvmlDeviceGetName(gpu, text, (unsigned)size))
TEXT_FIELD(field_uuid, lib.nvmlDeviceGetUUID(gpu, text, (unsigned)size))
TEXT_FIELD(field_serial, lib.nvmlDeviceGetSerial(gpu, text, (unsigned)size))
TEXT_FIELD(field_vbios, lib.nvmlDeviceGetVbiosVersion(gpu, text, (unsigned)size))
TEXT_FIELD(field_driver, lib.nvmlSystemGetDriverVersion(text, (unsigned)size))

static bool field_count(unsigned index, nvmlDevice_t gpu, char *text, size_t size)
{
    unsigned count = 0;
    (void)index, (void)gpu;
    bool read = lib.nvmlDeviceGetCount_v2(&count) == 0;
    snprintf(text, size, "%u", count);
    return read;
}

static bool field_bus(unsigned index, nvmlDevice_t gpu, char *text, size_t size)
{
    nvmlPciInfo_t pci;
    (void)index;
    if (bus_of(gpu, &pci) != 0)
        return false;
    snprintf(text, size, "%s", pci.busId);
    return true;
}

static bool field_device_id(unsigned index, nvmlDevice_t gpu, char *text, size_t size)
{
    nvmlPciInfo_t pci;
    (void)index;
    if (bus_of(gpu, &pci) != 0)
        return false;
    snprintf(text, size, "0x%08X", pci.pciDeviceId);
    return true;
}

static bool field_capability(unsigned index, nvmlDevice_t gpu, char *text, size_t size)
{
    int major, minor;
    (void)index;
    if (lib.nvmlDeviceGetCudaComputeCapability(gpu, &major, &minor) != 0)
        return false;
    snprintf(text, size, "%d.%d", major, minor);
    return true;
}

static bool memory(nvmlDevice_t gpu, char which, char *text, size_t size)
{
    nvmlMemory_v2_t all = {.version = NVML_VERSION(nvmlMemory_v2_t, 2)};
    if (lib.nvmlDeviceGetMemoryInfo_v2(gpu, &all) != 0)
        return false;
    unsigned long long bytes = which == 't'   ? all.total
                               : which == 'f' ? all.free
                               : which == 'r' ? all.reserved
                                              : all.used;
    snprintf(text, size, "%llu", bytes >> 20);
    return true;
}

static bool field_memory_total(unsigned index, nvmlDevice_t gpu, char *text, size_t size)
{
    (void)index;
    return memory(gpu, 't', text, size);
}

static bool field_memory_free(unsigned index, nvmlDevice_t gpu, char *text, size_t size)
{
    (void)index;
    return memory(gpu, 'f', text, size);
}

static bool field_memory_used(unsigned index, nvmlDevice_t gpu, char *text, size_t size)
{
    (void)index;
    return memory(gpu, 'u', text, size);
}

static bool field_memory_reserved(unsigned index, nvmlDevice_t gpu, char *text, size_t size)
{
    (void)index;
    return memory(gpu, 'r', text, size);
}

static bool field_utilisation(unsigned index, nvmlDevice_t gpu, char *text, size_t size)
{
    nvmlUtilization_t rates;
    (void)index;
    bool read = lib.nvmlDeviceGetUtilizationRates(gpu, &rates) == 0;
    snprintf(text, size, "%u", read ? rates.gpu : 0);
    return read;
}

static bool field_memory_utilisation(unsigned index, nvmlDevice_t gpu, char *text, size_t size)
{
    nvmlUtilization_t rates;
    (void)index;
    bool read = lib.nvmlDeviceGetUtilizationRates(gpu, &rates) == 0;
    snprintf(text, size, "%u", read ? rates.memory : 0);
    return read;
}

static bool field_compute_mode(unsigned index, nvmlDevice_t gpu, char *text, size_t size)
{
    static const char *const names[] = {"Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process"};
    unsigned mode;
    (void)index;
    if (lib.nvmlDeviceGetComputeMode(gpu, &mode) != 0 || mode > 3)
        return false;
    snprintf(text, size, "%s", names[mode]);
    return true;
}

static bool ecc(nvmlDevice_t gpu, unsigned uncorrected, unsigned aggregate, char *text, size_t size)
{
    unsigned long long count;
    if (lib.nvmlDeviceGetTotalEccErrors(gpu, uncorrected, aggregate, &count) != 0)
        return false;
    snprintf(text, size, "%llu", count);
    return true;
}

static bool field_ecc_volatile(unsigned index, nvmlDevice_t gpu, char *text, size_t size)
{
    (void)index;
    return ecc(gpu, 1, 0, text, size);
}

static bool field_ecc_aggregate(unsigned index, nvmlDevice_t gpu, char *text, size_t size)
{
    (void)index;
    return ecc(gpu, 1, 1, text, size);
}

static bool field_time(unsigned index, nvmlDevice_t gpu, char *text, size_t size)
{
    struct timespec now;
    struct tm local;
    (void)index, (void)gpu;
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &local);
    size_t at = strftime(text, size, "%Y/%m/%d %H:%M:%S", &local);
    snprintf(text + at, size - at, ".%03ld", now.tv_nsec / 1000000);
    return true;
}

static const struct field gpu_fields[] = {
    {"index", NULL, "", field_index},
    {"name", "gpu_name", "", field_name},
    {"uuid", "gpu_uuid", "", field_uuid},
    {"serial", "gpu_serial", "", field_serial},
    {"count", NULL, "", field_count},
    {"timestamp", NULL, "", field_time},
    {"driver_version", NULL, "", field_driver},
    {"vbios_version", NULL, "", field_vbios},
    {"minor_number", NULL, "", field_minor},
    {"pci.bus_id", "gpu_bus_id", "", field_bus},
    {"pci.device_id", NULL, "", field_device_id},
    {"compute_cap", NULL, "", field_capability},
    {"memory.total", NULL, " [MiB]", field_memory_total},
    {"memory.used", NULL, " [MiB]", field_memory_used},
    {"memory.free", NULL, " [MiB]", field_memory_free},
    {"memory.reserved", NULL, " [MiB]", field_memory_reserved},
    {"utilization.gpu", NULL, " [%]", field_utilisation},
    {"utilization.memory", NULL, " [%]", field_memory_utilisation},
    {"temperature.gpu", NULL, "", field_temperature},
    {"power.draw", NULL, " [W]", field_power},
    {"power.limit", "enforced.power.limit", " [W]", field_power_limit},
    {"clocks.current.graphics", "clocks.gr", " [MHz]", field_graphics_clock},
    {"clocks.current.sm", "clocks.sm", " [MHz]", field_sm_clock},
    {"clocks.current.memory", "clocks.mem", " [MHz]", field_memory_clock},
    {"clocks.max.sm", "clocks.max.graphics", " [MHz]", field_sm_clock_max},
    {"clocks.max.memory", "clocks.max.mem", " [MHz]", field_memory_clock_max},
    {"pstate", NULL, "", field_state},
    {"fan.speed", NULL, " [%]", field_fan},
    {"persistence_mode", NULL, "", field_persistence},
    {"display_active", NULL, "", field_display},
    {"compute_mode", NULL, "", field_compute_mode},
    {"mig.mode.current", NULL, "", field_mig},
    {"mig.mode.pending", NULL, "", field_mig_pending},
    {"ecc.mode.current", NULL, "", field_ecc},
    {"ecc.errors.uncorrected.volatile.total", NULL, "", field_ecc_volatile},
    {"ecc.errors.uncorrected.aggregate.total", NULL, "", field_ecc_aggregate},
};

const struct field *find_field(const char *name)
{
    for (size_t i = 0; i < sizeof gpu_fields / sizeof *gpu_fields; i++)
        if (strcmp(gpu_fields[i].name, name) == 0 ||
            (gpu_fields[i].alias != NULL && strcmp(gpu_fields[i].alias, name) == 0))
            return &gpu_fields[i];
    return NULL;
}
