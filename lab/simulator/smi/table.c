/* The default table. Columns as nvidia-smi has them since release 535. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "smi.h"

static const char rule[] =
    "+-----------------------------------------+------------------------+----------------------+";
static const char gap[] =
    "                                                                                         ";

struct versions { char driver[80], cuda[16]; };

static struct versions read_versions(void)
{
    struct versions v = {"N/A", "N/A"};
    int cuda = 0;
    lib.nvmlSystemGetDriverVersion(v.driver, sizeof v.driver);
    if (lib.nvmlSystemGetCudaDriverVersion_v2(&cuda) == 0)
        snprintf(v.cuda, sizeof v.cuda, "%d.%d", cuda / 1000, cuda % 1000 / 10);
    return v;
}

int print_versions(void)
{
    struct versions v = read_versions();
    const char *dot = strchr(v.driver, '.'), *second = dot == NULL ? NULL : strchr(dot + 1, '.');
    int length = second == NULL ? (int)strlen(v.driver) : (int)(second - v.driver);
    printf("NVIDIA-SMI version  : %s\nNVML version        : %.*s\n", v.driver, length, v.driver);
    printf("DRIVER version      : %s\nCUDA Version        : %s\n", v.driver, v.cuda);
    return 0;
}

static void header(void)
{
    struct versions v = read_versions();
    char now[64];
    time_t seconds = time(NULL);
    struct tm local;
    localtime_r(&seconds, &local);
    strftime(now, sizeof now, "%a %b %e %H:%M:%S %Y", &local);
    printf("%-40s\n", now);
    puts("+-----------------------------------------------------------------------------------------+");
    /* From release 610 on it tells the kernel-mode driver from the libraries. */
    printf(atoi(v.driver) < 610
               ? "| NVIDIA-SMI %-22s Driver Version: %-14s CUDA Version: %-9s|\n"
               : "| NVIDIA-SMI %-22s KMD Version: %-13s CUDA UMD Version: %-9s|\n",
           v.driver, v.driver, v.cuda);
    puts(rule);
    puts("| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |");
    puts("| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |");
    puts("|                                         |                        |               MIG M. |");
    puts("|=========================================+========================+======================|");
}

static const char *compute_mode(nvmlDevice_t gpu)
{
    static const char *const names[] = {"Default", "E. Thread", "Prohibited", "E. Process"};
    unsigned mode = 0;
    if (lib.nvmlDeviceGetComputeMode(gpu, &mode) != 0 || mode > 3)
        return "N/A";
    return names[mode];
}

static void number(nvmlReturn_t status, unsigned value, const char *unit, char *text, size_t size)
{
    if (status == 0)
        snprintf(text, size, "%u%s", value, unit);
    else
        snprintf(text, size, "N/A");
}

static void gpu_rows(unsigned index, nvmlDevice_t gpu)
{
    char name[96] = "?", fan[16], temperature[16], power[16], limit[16], utilisation[16], ecc[24] = "N/A";
    char memory[40] = "N/A";
    const char *mig = "N/A";
    nvmlPciInfo_t pci = {.busId = "?"};
    nvmlMemory_t bytes;
    nvmlUtilization_t rates = {0, 0};
    unsigned persistence = 0, display = 0, value = 0, state = 0, current = 0, pending = 0;
    unsigned long long errors = 0;
    lib.nvmlDeviceGetName(gpu, name, sizeof name);
    bus_of(gpu, &pci);
    lib.nvmlDeviceGetPersistenceMode(gpu, &persistence);
    lib.nvmlDeviceGetDisplayActive(gpu, &display);
    nvmlReturn_t status = lib.nvmlDeviceGetFanSpeed(gpu, &value);
    number(status, value, "%", fan, sizeof fan);
    status = lib.nvmlDeviceGetTemperature(gpu, 0, &value);
    number(status, value, "C", temperature, sizeof temperature);
    status = lib.nvmlDeviceGetPowerUsage(gpu, &value);
    number(status, value / 1000, "W", power, sizeof power);
    status = lib.nvmlDeviceGetEnforcedPowerLimit(gpu, &value);
    number(status, value / 1000, "W", limit, sizeof limit);
    status = lib.nvmlDeviceGetUtilizationRates(gpu, &rates);
    number(status, rates.gpu, "%", utilisation, sizeof utilisation);
    if (lib.nvmlDeviceGetPerformanceState(gpu, &state) != 0)
        state = 0;
    status = lib.nvmlDeviceGetMemoryInfo(gpu, &bytes);
    if (status == SIM_ERR_NOT_SUPPORTED)
        snprintf(memory, sizeof memory, "Not Supported");
    else if (status == 0)
        snprintf(memory, sizeof memory, "%lluMiB / %6lluMiB", bytes.used >> 20, bytes.total >> 20);
    if (lib.nvmlDeviceGetMigMode(gpu, &current, &pending) == 0)
        mig = current != pending ? (pending ? "Enabled*" : "Disabled*") : current ? "Enabled" : "Disabled";
    if (current)
        snprintf(ecc, sizeof ecc, "On");
    else if (lib.nvmlDeviceGetTotalEccErrors(gpu, 1, 0, &errors) == 0)
        snprintf(ecc, sizeof ecc, "%llu", errors);
    printf("| %3u  %-26.26s %7s | %18s %3s | %20s |\n", index, name, persistence ? "On " : "Off",
           pci.busId, display ? "On" : "Off", ecc);
    char cap[40];
    snprintf(cap, sizeof cap, "%s / %5s", power, limit);
    printf("| %-3s  %4s    P%-2u  %21s | %22s | %7s %12s |\n", fan, temperature, state, cap, memory,
           utilisation, compute_mode(gpu));
    printf("|                                         |                        | %20s |\n", mig);
    puts(rule);
}

static void mig_rows(unsigned index, nvmlDevice_t gpu)
{
    unsigned most = 0, before = ~0u;
    static const char split[] =
        "+------------------+----------------------------------+-----------+-----------------------+";
    static const char same[] =
        "+------------------+                                  +-----------+-----------------------+";
    if (lib.nvmlDeviceGetMaxMigDeviceCount(gpu, &most) != 0)
        return;
    for (unsigned i = 0; i < most; i++) {
        nvmlDevice_t mig;
        nvmlMemory_t bytes = {0, 0, 0};
        nvmlBAR1Memory_t bar = {0, 0, 0};
        nvmlDeviceAttributes_t has = {0};
        unsigned gi = 0, ci = 0;
        if (lib.nvmlDeviceGetMigDeviceHandleByIndex(gpu, i, &mig) != 0)
            continue;
        lib.nvmlDeviceGetGpuInstanceId(mig, &gi);
        lib.nvmlDeviceGetComputeInstanceId(mig, &ci);
        lib.nvmlDeviceGetMemoryInfo(mig, &bytes);
        lib.nvmlDeviceGetBAR1MemoryInfo(mig, &bar);
        lib.nvmlDeviceGetAttributes_v2(mig, &has);
        bool shares = gi == before; /* one memory: the cells stay blank */
        char memory[48] = "", bar1[48] = "";
        if (!shares) {
            snprintf(memory, sizeof memory, "%lluMiB / %5lluMiB ", bytes.used >> 20, bytes.total >> 20);
            snprintf(bar1, sizeof bar1, "%lluMiB / %5lluMiB ", bar.bar1Used >> 20, bar.bar1Total >> 20);
        }
        if (before != ~0u)
            puts(shares ? same : split);
        printf("| %2u %4u %3u %3u  |%33s | %-3u     0 |%3u %3u %4u %4u %4u |\n", index, gi, ci, i, memory,
               has.multiprocessorCount, has.sharedCopyEngineCount, has.sharedEncoderCount,
               has.sharedDecoderCount, has.sharedOfaCount, has.sharedJpegCount);
        printf("|                  |%33s |           |                       |\n", bar1);
        before = gi;
    }
    if (before != ~0u)
        puts(split);
}

static void mig_block(const struct selection *gpus)
{
    unsigned current, pending, count = 0;
    bool any = false, devices = false;
    nvmlDevice_t mig;
    for (unsigned i = 0; i < gpus->count; i++) {
        if (gpus->status[i] != 0 || lib.nvmlDeviceGetMigMode(gpus->device[i], &current, &pending) != 0 ||
            !current)
            continue;
        any = true;
        lib.nvmlDeviceGetMaxMigDeviceCount(gpus->device[i], &count);
        for (unsigned m = 0; m < count; m++)
            devices = devices || lib.nvmlDeviceGetMigDeviceHandleByIndex(gpus->device[i], m, &mig) == 0;
    }
    if (!any)
        return;
    printf("%s\n", gap);
    puts("+-----------------------------------------------------------------------------------------+");
    puts("| MIG devices:                                                                            |");
    puts("+------------------+----------------------------------+-----------+-----------------------+");
    puts("| GPU  GI  CI  MIG |                     Memory-Usage |        Vol|      Shared           |");
    puts("|      ID  ID  Dev |                       BAR1-Usage | SM     Unc| CE ENC  DEC  OFA  JPG |");
    puts("|                  |                                  |        ECC|                       |");
    puts("|==================+==================================+===========+=======================|");
    for (unsigned i = 0; i < gpus->count; i++)
        if (gpus->status[i] == 0)
            mig_rows(gpus->index[i], gpus->device[i]);
    if (!devices) {
        puts("|  No MIG devices found                                                                   |");
        puts("+-----------------------------------------------------------------------------------------+");
    }
}

static bool process_rows(unsigned index, nvmlDevice_t gpu)
{
    static nvmlProcessInfo_t running[256];
    unsigned count = 256;
    if (lib.nvmlDeviceGetComputeRunningProcesses_v3(gpu, &count, running) != 0)
        return false;
    for (unsigned p = 0; p < count; p++) {
        char name[256] = "[Not Found]", gi[8] = "N/A", ci[8] = "N/A", used[24];
        lib.nvmlSystemGetProcessName(running[p].pid, name, sizeof name);
        if (running[p].gpuInstanceId != 0xFFFFFFFFu) {
            snprintf(gi, sizeof gi, "%u", running[p].gpuInstanceId % 100000);
            snprintf(ci, sizeof ci, "%u", running[p].computeInstanceId % 100000);
        }
        snprintf(used, sizeof used, "%lluMiB", running[p].usedGpuMemory >> 20);
        const char *shown = name;
        char cut[64];
        if (strlen(name) > 41) {
            snprintf(cut, sizeof cut, "...%s", name + strlen(name) - 38);
            shown = cut;
        }
        printf("| %4u   %3s  %3s %9u      C   %-41s %10s |\n", index, gi, ci, running[p].pid, shown, used);
    }
    return count > 0;
}

int print_table(const struct selection *gpus)
{
    header();
    for (unsigned i = 0; i < gpus->count; i++) {
        if (gpus->status[i] == 0)
            gpu_rows(gpus->index[i], gpus->device[i]);
        else {
            printf("| %3u  %-83s|\n", gpus->index[i], lib.nvmlErrorString(gpus->status[i]));
            puts(rule);
        }
    }
    mig_block(gpus);
    printf("%s\n", gap);
    puts("+-----------------------------------------------------------------------------------------+");
    puts("| Processes:                                                                              |");
    puts("|  GPU   GI   CI        PID   Type   Process name                              GPU Memory |");
    puts("|        ID   ID                                                               Usage      |");
    puts("|=========================================================================================|");
    bool any = false;
    for (unsigned i = 0; i < gpus->count; i++)
        if (gpus->status[i] == 0)
            any = process_rows(gpus->index[i], gpus->device[i]) || any;
    if (!any)
        puts("|  No running processes found                                                             |");
    puts("+-----------------------------------------------------------------------------------------+");
    if (lib.simulated)
        puts("Simulated by Divvy: no GPU is behind these figures.");
    return 0;
}
