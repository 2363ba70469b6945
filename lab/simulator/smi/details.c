/* nvidia-smi -q, as text. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "smi.h"

static void line(int depth, const char *name, const char *value)
{
    printf("%*s%-*s: %s\n", depth * 4, "", 42 - depth * 4, name, value);
}

static void number(int depth, const char *name, nvmlReturn_t status, double value, const char *form)
{
    char text[64] = "N/A";
    if (status == 0)
        snprintf(text, sizeof text, form, value);
    line(depth, name, text);
}

static void temperature(nvmlDevice_t gpu)
{
    unsigned value = 0;
    nvmlReturn_t status = lib.nvmlDeviceGetTemperature(gpu, 0, &value);
    puts("    Temperature");
    number(2, "GPU Current Temp", status, value, "%.0f C");
    line(2, "GPU T.Limit Temp", "N/A");
    status = lib.nvmlDeviceGetTemperatureThreshold(gpu, 0, &value);
    number(2, "GPU Shutdown Temp", status, value, "%.0f C");
    status = lib.nvmlDeviceGetTemperatureThreshold(gpu, 1, &value);
    number(2, "GPU Slowdown Temp", status, value, "%.0f C");
    status = lib.nvmlDeviceGetTemperatureThreshold(gpu, 3, &value);
    number(2, "GPU Max Operating Temp", status, value, "%.0f C");
}

static void memory(nvmlDevice_t gpu)
{
    nvmlMemory_v2_t all = {.version = NVML_VERSION(nvmlMemory_v2_t, 2)};
    nvmlReturn_t status = lib.nvmlDeviceGetMemoryInfo_v2(gpu, &all);
    puts("    FB Memory Usage");
    number(2, "Total", status, (double)(all.total >> 20), "%.0f MiB");
    number(2, "Reserved", status, (double)(all.reserved >> 20), "%.0f MiB");
    number(2, "Used", status, (double)(all.used >> 20), "%.0f MiB");
    number(2, "Free", status, (double)(all.free >> 20), "%.0f MiB");
}

static void utilisation(nvmlDevice_t gpu)
{
    nvmlUtilization_t rates = {0, 0};
    nvmlReturn_t status = lib.nvmlDeviceGetUtilizationRates(gpu, &rates);
    puts("    Utilization");
    number(2, "Gpu", status, rates.gpu, "%.0f %%");
    number(2, "Memory", status, rates.memory, "%.0f %%");
}

static void power(nvmlDevice_t gpu)
{
    unsigned value = 0;
    nvmlReturn_t status = lib.nvmlDeviceGetPowerUsage(gpu, &value);
    puts("    GPU Power Readings");
    number(2, "Power Draw", status, value / 1000.0, "%.2f W");
    status = lib.nvmlDeviceGetEnforcedPowerLimit(gpu, &value);
    number(2, "Current Power Limit", status, value / 1000.0, "%.2f W");
}

static void clocks(nvmlDevice_t gpu)
{
    static const char *const names[] = {"Graphics", "SM", "Memory", "Video"};
    puts("    Clocks");
    for (unsigned kind = 0; kind < 4; kind++) {
        unsigned value = 0;
        nvmlReturn_t status = lib.nvmlDeviceGetClockInfo(gpu, kind, &value);
        number(2, names[kind], status, value, "%.0f MHz");
    }
}

static void ecc(nvmlDevice_t gpu)
{
    unsigned current = 0, pending = 0;
    nvmlReturn_t status = lib.nvmlDeviceGetEccMode(gpu, &current, &pending);
    puts("    ECC Mode");
    line(2, "Current", status != 0 ? "N/A" : current ? "Enabled" : "Disabled");
    line(2, "Pending", status != 0 ? "N/A" : pending ? "Enabled" : "Disabled");
    puts("    ECC Errors");
    for (unsigned aggregate = 0; aggregate < 2; aggregate++) {
        printf("        %s\n", aggregate ? "Aggregate" : "Volatile");
        for (unsigned uncorrected = 0; uncorrected < 2; uncorrected++) {
            unsigned long long count = 0;
            status = lib.nvmlDeviceGetTotalEccErrors(gpu, uncorrected, aggregate, &count);
            number(3, uncorrected ? "DRAM Uncorrectable" : "DRAM Correctable", status, (double)count, "%.0f");
        }
    }
}

static void fabric(nvmlDevice_t gpu)
{
    static const char *const states[] = {"N/A", "Not Started", "In Progress", "Completed"};
    nvmlGpuFabricInfo_t info = {.state = 0};
    unsigned state = lib.nvmlDeviceGetGpuFabricInfo(gpu, &info) == 0 && info.state < 4 ? info.state : 0;
    puts("    Fabric");
    line(2, "State", states[state]);
    line(2, "Status", state != 3 ? "N/A" : info.status == 0 ? "Success" : lib.nvmlErrorString(info.status));
}

static void identity(nvmlDevice_t gpu)
{
    char text[96];
    unsigned current = 0, pending = 0, value = 0;
    nvmlReturn_t status;
#define TEXT(name, call) line(1, name, (call) == 0 ? text : "N/A")
    TEXT("Product Name", lib.nvmlDeviceGetName(gpu, text, sizeof text));
    status = lib.nvmlDeviceGetPersistenceMode(gpu, &value);
    line(1, "Persistence Mode", status != 0 ? "N/A" : value ? "Enabled" : "Disabled");
    status = lib.nvmlDeviceGetMigMode(gpu, &current, &pending);
    puts("    MIG Mode");
    line(2, "Current", status != 0 ? "N/A" : current ? "Enabled" : "Disabled");
    line(2, "Pending", status != 0 ? "N/A" : pending ? "Enabled" : "Disabled");
    TEXT("Serial Number", lib.nvmlDeviceGetSerial(gpu, text, sizeof text));
    TEXT("GPU UUID", lib.nvmlDeviceGetUUID(gpu, text, sizeof text));
    status = lib.nvmlDeviceGetMinorNumber(gpu, &value);
    number(1, "Minor Number", status, value, "%.0f");
    TEXT("VBIOS Version", lib.nvmlDeviceGetVbiosVersion(gpu, text, sizeof text));
#undef TEXT
    nvmlPciInfo_t pci;
    if (bus_of(gpu, &pci) == 0) {
        puts("    PCI");
        line(2, "Bus Id", pci.busId);
        snprintf(text, sizeof text, "0x%08X", pci.pciDeviceId);
        line(2, "Device Id", text);
    }
    fabric(gpu);
}

static void compute(nvmlDevice_t gpu)
{
    static const char *const names[] = {"Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process"};
    unsigned mode = 0;
    nvmlReturn_t status = lib.nvmlDeviceGetComputeMode(gpu, &mode);
    line(1, "Compute Mode", status != 0 || mode > 3 ? "N/A" : names[mode]);
}

int print_details(const struct selection *gpus, const char *display)
{
    static const struct {
        const char *name;
        void (*print)(nvmlDevice_t gpu);
    } parts[] = {{"", identity}, {"COMPUTE", compute}, {"MEMORY", memory},
                 {"UTILIZATION", utilisation}, {"ECC", ecc}, {"TEMPERATURE", temperature},
                 {"POWER", power}, {"CLOCK", clocks}};
    char text[96];
    int cuda = 0;
    time_t now = time(NULL);
    struct tm local;
    bool any = display == NULL;
    for (size_t p = 1; !any && p < sizeof parts / sizeof *parts; p++)
        any = strcasestr(display, parts[p].name) != NULL;
    if (!any) {
        printf("Invalid display type: %s\n", display);
        return 2;
    }
    puts("\n==============NVSMI LOG==============\n");
    localtime_r(&now, &local);
    strftime(text, sizeof text, "%a %b %e %H:%M:%S %Y", &local);
    line(0, "Timestamp", text);
    line(0, "Driver Version", lib.nvmlSystemGetDriverVersion(text, sizeof text) == 0 ? text : "N/A");
    if (lib.nvmlSystemGetCudaDriverVersion_v2(&cuda) == 0)
        snprintf(text, sizeof text, "%d.%d", cuda / 1000, cuda % 1000 / 10);
    line(0, "CUDA Version", text);
    if (lib.simulated)
        line(0, "Simulated", "by Divvy; no GPU is behind these figures");
    snprintf(text, sizeof text, "%u", gpus->count);
    putchar('\n');
    line(0, "Attached GPUs", text);
    for (unsigned i = 0; i < gpus->count; i++) {
        nvmlPciInfo_t pci;
        if (gpus->status[i] != 0 || bus_of(gpus->device[i], &pci) != 0) {
            printf("GPU %u: %s\n", gpus->index[i], lib.nvmlErrorString(gpus->status[i]));
            continue;
        }
        printf("GPU %s\n", pci.busId);
        for (size_t p = 0; p < sizeof parts / sizeof *parts; p++)
            if (display == NULL || (p > 0 && strcasestr(display, parts[p].name) != NULL))
                parts[p].print(gpus->device[i]);
        putchar('\n');
    }
    return 0;
}
