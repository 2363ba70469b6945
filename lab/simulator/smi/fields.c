/* Each field of --query-gpu: its name, its unit and how it is read. */
#include "fields.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* A function that reads a field with a call that fills what it declares. */
#define FIELD_OF(function, declaration, call, form, ...)                                       \
    static bool function(unsigned index, nvmlDevice_t gpu, char *text, size_t size)            \
    {                                                                                          \
        declaration;                                                                           \
        (void)index, (void)gpu;                                                                \
        if ((call) != 0)                                                                       \
            return false;                                                                      \
        snprintf(text, size, form, __VA_ARGS__);                                               \
        return true;                                                                           \
    }
#define FIELD(function, call, form, ...)                                                       \
    FIELD_OF(function, unsigned v = 0; unsigned w = 0; (void)v; (void)w, call, form, __VA_ARGS__)

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

FIELD(field_count, lib.nvmlDeviceGetCount_v2(&v), "%u", v)
FIELD_OF(field_bus, nvmlPciInfo_t pci, bus_of(gpu, &pci), "%s", pci.busId)
FIELD_OF(field_device_id, nvmlPciInfo_t pci, bus_of(gpu, &pci), "0x%08X", pci.pciDeviceId)
FIELD_OF(field_capability, int major; int minor,
         lib.nvmlDeviceGetCudaComputeCapability(gpu, &major, &minor), "%d.%d", major, minor)
FIELD_OF(field_utilisation, nvmlUtilization_t rates, lib.nvmlDeviceGetUtilizationRates(gpu, &rates),
         "%u", rates.gpu)
FIELD_OF(field_memory_utilisation, nvmlUtilization_t rates,
         lib.nvmlDeviceGetUtilizationRates(gpu, &rates), "%u", rates.memory)

#define MEMORY_FIELD(function, part)                                                           \
    FIELD_OF(function, nvmlMemory_v2_t all = {.version = NVML_VERSION(nvmlMemory_v2_t, 2)},    \
             lib.nvmlDeviceGetMemoryInfo_v2(gpu, &all), "%llu", all.part >> 20)
MEMORY_FIELD(field_memory_total, total)
MEMORY_FIELD(field_memory_free, free)
MEMORY_FIELD(field_memory_used, used)
MEMORY_FIELD(field_memory_reserved, reserved)

#define ECC_FIELD(function, aggregate)                                                         \
    FIELD_OF(function, unsigned long long count,                                               \
             lib.nvmlDeviceGetTotalEccErrors(gpu, 1, aggregate, &count), "%llu", count)
ECC_FIELD(field_ecc_volatile, 0)
ECC_FIELD(field_ecc_aggregate, 1)

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
