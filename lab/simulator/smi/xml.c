/* nvidia-smi -q -x */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "smi.h"

static void element(int depth, const char *name, const char *value)
{
    printf("%*s<%s>", depth, "", name);
    for (; *value != '\0'; value++)
        switch (*value) {
        case '<':
            fputs("&lt;", stdout);
            break;
        case '>':
            fputs("&gt;", stdout);
            break;
        case '&':
            fputs("&amp;", stdout);
            break;
        default:
            putchar(*value);
        }
    printf("</%s>\n", name);
}

static void number(int depth, const char *name, nvmlReturn_t status, double value, const char *form)
{
    char text[64] = "N/A";
    if (status == 0)
        snprintf(text, sizeof text, form, value);
    element(depth, name, text);
}

static void memory(int depth, const char *name, nvmlDevice_t device)
{
    nvmlMemory_v2_t all = {.version = NVML_VERSION(nvmlMemory_v2_t, 2)};
    nvmlReturn_t status = lib.nvmlDeviceGetMemoryInfo_v2(device, &all);
    printf("%*s<%s>\n", depth, "", name);
    number(depth + 2, "total", status, (double)(all.total >> 20), "%.0f MiB");
    number(depth + 2, "reserved", status, (double)(all.reserved >> 20), "%.0f MiB");
    number(depth + 2, "used", status, (double)(all.used >> 20), "%.0f MiB");
    number(depth + 2, "free", status, (double)(all.free >> 20), "%.0f MiB");
    printf("%*s</%s>\n", depth, "", name);
}

static void mig_devices(nvmlDevice_t gpu)
{
    unsigned most = 0;
    bool any = false;
    nvmlDevice_t mig;
    lib.nvmlDeviceGetMaxMigDeviceCount(gpu, &most);
    for (unsigned i = 0; i < most; i++) {
        unsigned gi = 0, ci = 0;
        nvmlDeviceAttributes_t has = {0};
        if (lib.nvmlDeviceGetMigDeviceHandleByIndex(gpu, i, &mig) != 0)
            continue;
        if (!any)
            puts("    <mig_devices>");
        any = true;
        lib.nvmlDeviceGetGpuInstanceId(mig, &gi);
        lib.nvmlDeviceGetComputeInstanceId(mig, &ci);
        lib.nvmlDeviceGetAttributes_v2(mig, &has);
        puts("      <mig_device>");
        number(8, "index", 0, i, "%.0f");
        number(8, "gpu_instance_id", 0, gi, "%.0f");
        number(8, "compute_instance_id", 0, ci, "%.0f");
        puts("        <device_attributes>\n          <shared>");
        number(12, "multiprocessor_count", 0, has.multiprocessorCount, "%.0f");
        number(12, "copy_engine_count", 0, has.sharedCopyEngineCount, "%.0f");
        number(12, "encoder_count", 0, has.sharedEncoderCount, "%.0f");
        number(12, "decoder_count", 0, has.sharedDecoderCount, "%.0f");
        number(12, "ofa_count", 0, has.sharedOfaCount, "%.0f");
        number(12, "jpg_count", 0, has.sharedJpegCount, "%.0f");
        puts("          </shared>\n        </device_attributes>");
        memory(8, "fb_memory_usage", mig);
        puts("      </mig_device>");
    }
    if (any)
        puts("    </mig_devices>");
    else
        element(4, "mig_devices", "None");
}

static void processes(nvmlDevice_t gpu)
{
    static nvmlProcessInfo_t running[256];
    unsigned count = 256;
    puts("    <processes>");
    if (lib.nvmlDeviceGetComputeRunningProcesses_v3(gpu, &count, running) != 0)
        count = 0;
    for (unsigned p = 0; p < count; p++) {
        char name[256] = "[Not Found]";
        lib.nvmlSystemGetProcessName(running[p].pid, name, sizeof name);
        puts("      <process_info>");
        number(8, "gpu_instance_id", running[p].gpuInstanceId == 0xFFFFFFFFu, running[p].gpuInstanceId, "%.0f");
        number(8, "compute_instance_id", running[p].gpuInstanceId == 0xFFFFFFFFu,
               running[p].computeInstanceId, "%.0f");
        number(8, "pid", 0, running[p].pid, "%.0f");
        element(8, "type", "C");
        element(8, "process_name", name);
        number(8, "used_memory", 0, (double)(running[p].usedGpuMemory >> 20), "%.0f MiB");
        puts("      </process_info>");
    }
    puts("    </processes>");
}

static void text_element(int depth, const char *name, nvmlReturn_t status, const char *text)
{
    element(depth, name, status == 0 ? text : "N/A");
}

static void gpu_element(nvmlDevice_t gpu)
{
    static const char *const modes[] = {"Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process"};
    char text[96];
    nvmlPciInfo_t pci = {.busId = ""};
    nvmlUtilization_t rates = {0, 0};
    unsigned current = 0, pending = 0, value = 0;
    bus_of(gpu, &pci);
    printf("  <gpu id=\"%s\">\n", pci.busId);
    text_element(4, "product_name", lib.nvmlDeviceGetName(gpu, text, sizeof text), text);
    nvmlReturn_t status = lib.nvmlDeviceGetMigMode(gpu, &current, &pending);
    puts("    <mig_mode>");
    element(6, "current_mig", status != 0 ? "N/A" : current ? "Enabled" : "Disabled");
    element(6, "pending_mig", status != 0 ? "N/A" : pending ? "Enabled" : "Disabled");
    puts("    </mig_mode>");
    mig_devices(gpu);
    text_element(4, "serial", lib.nvmlDeviceGetSerial(gpu, text, sizeof text), text);
    text_element(4, "uuid", lib.nvmlDeviceGetUUID(gpu, text, sizeof text), text);
    status = lib.nvmlDeviceGetMinorNumber(gpu, &value);
    number(4, "minor_number", status, value, "%.0f");
    text_element(4, "vbios_version", lib.nvmlDeviceGetVbiosVersion(gpu, text, sizeof text), text);
    puts("    <pci>");
    snprintf(text, sizeof text, "%08X", pci.pciDeviceId);
    element(6, "pci_device_id", text);
    element(6, "pci_bus_id", pci.busId);
    puts("    </pci>");
    status = lib.nvmlDeviceGetPerformanceState(gpu, &value);
    number(4, "performance_state", status, value, "P%.0f");
    memory(4, "fb_memory_usage", gpu);
    status = lib.nvmlDeviceGetComputeMode(gpu, &value);
    element(4, "compute_mode", status != 0 || value > 3 ? "N/A" : modes[value]);
    status = lib.nvmlDeviceGetUtilizationRates(gpu, &rates);
    puts("    <utilization>");
    number(6, "gpu_util", status, rates.gpu, "%.0f %%");
    number(6, "memory_util", status, rates.memory, "%.0f %%");
    puts("    </utilization>");
    status = lib.nvmlDeviceGetTemperature(gpu, 0, &value);
    puts("    <temperature>");
    number(6, "gpu_temp", status, value, "%.0f C");
    puts("    </temperature>");
    puts("    <gpu_power_readings>");
    status = lib.nvmlDeviceGetPowerUsage(gpu, &value);
    number(6, "power_draw", status, value / 1000.0, "%.2f W");
    status = lib.nvmlDeviceGetEnforcedPowerLimit(gpu, &value);
    number(6, "current_power_limit", status, value / 1000.0, "%.2f W");
    puts("    </gpu_power_readings>");
    processes(gpu);
    puts("  </gpu>");
}

int print_xml(const struct selection *gpus)
{
    char text[96] = "N/A";
    int cuda = 0;
    time_t now = time(NULL);
    struct tm local;
    puts("<?xml version=\"1.0\" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v12.dtd\">");
    if (lib.simulated)
        puts("<!-- Simulated by Divvy: no GPU is behind these figures. -->");
    puts("<nvidia_smi_log>");
    localtime_r(&now, &local);
    strftime(text, sizeof text, "%a %b %e %H:%M:%S %Y", &local);
    element(2, "timestamp", text);
    text_element(2, "driver_version", lib.nvmlSystemGetDriverVersion(text, sizeof text), text);
    nvmlReturn_t status = lib.nvmlSystemGetCudaDriverVersion_v2(&cuda);
    snprintf(text, sizeof text, "%d.%d", cuda / 1000, cuda % 1000 / 10);
    text_element(2, "cuda_version", status, text);
    number(2, "attached_gpus", 0, gpus->count, "%.0f");
    for (unsigned i = 0; i < gpus->count; i++)
        if (gpus->status[i] == 0)
            gpu_element(gpus->device[i]);
    puts("</nvidia_smi_log>");
    return 0;
}
