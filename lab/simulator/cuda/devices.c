/* Devices and their properties. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "state.h"

#define LAST_ATTRIBUTE 147 /* as driver 580 has them */
/* H200 and the larger GH200. */
#define HAS_HBM3E(gpu) ((gpu)->cc_major == 9 && (gpu)->memory_total > (100ull << 30))

static struct device devices[MAX_DEVICES];
static unsigned count_of_devices;

void devices_find(uint32_t gpu_count)
{
    count_of_devices = find_visible_devices(devices, gpu_count);
}

unsigned device_count(void)
{
    return count_of_devices;
}

struct device *device_at(CUdevice ordinal)
{
    return ordinal >= 0 && (unsigned)ordinal < count_of_devices ? &devices[ordinal] : NULL;
}

EXPORT CUresult cuDeviceGetCount(int *count)
{
    driver_lock();
    CUresult result = driver_ready();
    if (result == 0 && count == NULL)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == 0)
        *count = (int)count_of_devices;
    FINISH(result);
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    driver_lock();
    CUresult result = driver_ready();
    if (result == 0 && device == NULL)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == 0 && device_at(ordinal) == NULL)
        result = CUDA_ERROR_INVALID_DEVICE;
    if (result == 0)
        *device = ordinal;
    FINISH(result);
}

/* Takes the lock; on success the caller gives it back. */
static CUresult find(CUdevice ordinal, const void *target, struct device **device)
{
    driver_lock();
    CUresult result = driver_ready();
    if (result == 0 && target == NULL)
        result = CUDA_ERROR_INVALID_VALUE;
    *device = device_at(ordinal);
    if (result == 0 && *device == NULL)
        result = CUDA_ERROR_INVALID_DEVICE;
    if (result != 0)
        driver_unlock();
    return result;
}

#define WITH_DEVICE(device, ordinal, target)               \
    struct device *device;                                 \
    CUresult result_ = find(ordinal, target, &device);     \
    if (result_ != 0)                                      \
        return result_

EXPORT CUresult cuDeviceGetName(char *name, int length, CUdevice ordinal)
{
    WITH_DEVICE(device, ordinal, name);
    if (length <= 0)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    snprintf(name, (size_t)length, "%s", device->name);
    FINISH(0);
}

/* "GPU-0123…" → 16 bytes */
static void uuid_bytes(const char *text, CUuuid *uuid)
{
    unsigned at = 0;
    memset(uuid, 0, sizeof *uuid);
    for (text += 4; *text != '\0' && at < 32; text++) {
        int digit = *text >= '0' && *text <= '9' ? *text - '0' : (*text | 0x20) - 'a' + 10;
        if (*text == '-' || digit < 0 || digit > 15)
            continue;
        uuid->bytes[at / 2] = (char)(uuid->bytes[at / 2] | digit << (at % 2 ? 0 : 4));
        at++;
    }
}

EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice ordinal)
{
    WITH_DEVICE(device, ordinal, uuid);
    uuid_bytes(device->gpu.uuid, uuid);
    FINISH(0);
}

/* The second version tells MIG devices apart. */
EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice ordinal)
{
    WITH_DEVICE(device, ordinal, uuid);
    uuid_bytes(device->uuid, uuid);
    FINISH(0);
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice ordinal)
{
    WITH_DEVICE(device, ordinal, bytes);
    *bytes = device->memory_total;
    FINISH(0);
}

EXPORT CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice ordinal)
{
    WITH_DEVICE(device, ordinal, major == NULL ? NULL : minor);
    *major = (int)device->gpu.cc_major;
    *minor = (int)device->gpu.cc_minor;
    FINISH(0);
}

EXPORT CUresult cuDeviceGetPCIBusId(char *bus, int length, CUdevice ordinal)
{
    WITH_DEVICE(device, ordinal, bus);
    if (length < 13)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    snprintf(bus, (size_t)length, "%04x:%02x:%02x.0", device->gpu.pci_domain, device->gpu.pci_bus,
             device->gpu.pci_device);
    FINISH(0);
}

EXPORT CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *bus)
{
    unsigned domain = 0, number, slot;
    CUresult result = CUDA_ERROR_INVALID_DEVICE;
    if (device == NULL || bus == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (sscanf(bus, "%x:%x:%x", &domain, &number, &slot) != 3 && sscanf(bus, "%x:%x", &number, &slot) != 2)
        return CUDA_ERROR_INVALID_VALUE;
    driver_lock();
    if (driver_ready() != 0)
        FINISH(CUDA_ERROR_NOT_INITIALIZED);
    for (unsigned i = 0; i < count_of_devices; i++)
        if (devices[i].gpu.pci_domain == domain && devices[i].gpu.pci_bus == number &&
            devices[i].gpu.pci_device == slot) {
            *device = (CUdevice)i;
            result = 0;
            break;
        }
    FINISH(result);
}

static int threads_per_multiprocessor(const struct sim_gpu *gpu)
{
    if (gpu->cc_major == 7 && gpu->cc_minor == 5)
        return 1024;
    return gpu->cc_major == 8 && gpu->cc_minor != 0 ? 1536 : 2048;
}

static int shared_per_multiprocessor(const struct sim_gpu *gpu)
{
    if (gpu->cc_major == 7)
        return 64 << 10;
    if (gpu->cc_major == 8)
        return (gpu->cc_minor == 0 ? 164 : 100) << 10;
    return 228 << 10;
}

/* How much faster single precision is than double. */
static int precision_ratio(const struct sim_gpu *gpu)
{
    if (gpu->cc_minor == 0 && gpu->cc_major <= 10)
        return 2;
    return gpu->cc_major == 7 ? 32 : 64;
}

static int memory_bus_bits(const struct sim_gpu *gpu)
{
    if (HAS_HBM3E(gpu))
        return 6016;
    return gpu->memory_total > (60ull << 30) ? 5120 : 384;
}

static int cache_mib(const struct sim_gpu *gpu)
{
    return HAS_HBM3E(gpu) ? 60 : gpu->cc_major == 9 ? 50 : 40;
}

/* How large textures, surfaces and arrays may be, and the alignment of the first; all GPUs since Turing agree. */
static const int sizes[] = {
    [21] = 131072, [22] = 131072, [23] = 65536, [24] = 16384, [25] = 16384, [26] = 16384, [27] = 32768, [28] = 32768,
    [29] = 2048, [42] = 32768, [43] = 2048, [44] = 1, [45] = 32768, [46] = 32768, [47] = 8192, [48] = 8192,
    [49] = 32768, [51] = 32, [52] = 32768, [53] = 32768, [54] = 2046, [55] = 32768, [56] = 131072, [57] = 65536,
    [58] = 16384, [59] = 16384, [60] = 16384, [61] = 32768, [62] = 2048, [63] = 32768, [64] = 32768, [65] = 2048,
    [66] = 32768, [67] = 32768, [68] = 2046, [69] = 1 << 28, [70] = 131072, [71] = 65000, [72] = 2097120,
    [73] = 32768, [74] = 32768, [77] = 32768};

/* A capability that is missing here is 0, whatever the real GPU has: programs would use it. */
static int attribute(const struct device *device, int which)
{
    const struct sim_gpu *gpu = &device->gpu;
    struct sim_gpu now = {.index = gpu->index};
    switch (which) {
    case 1: /* threads per block */
    case 2: /* block x, y */
    case 3:
        return 1024;
    case 4: /* block z */
        return 64;
    case 5: /* grid x */
        return 2147483647;
    case 6: /* grid y, z */
    case 7:
        return 65535;
    case 8: /* shared memory per block */
        return 48 << 10;
    case 9: /* constant memory */
        return 64 << 10;
    case 10: /* warp */
        return 32;
    case 11: /* pitch */
        return 2147483647;
    case 12: /* registers per block, per multiprocessor */
    case 82:
        return 65536;
    case 13: /* clock, kHz */
        return (int)gpu->sm_clock_max_mhz * 1000;
    case 14: /* alignment of textures, surfaces */
    case 30:
        return 512;
    case 16: /* multiprocessors */
        return (int)device->sms;
    case 20: /* compute mode, as it is now */
        return driver_call(SIM_GPU, &now, sizeof now, 0) == 0 ? (int)now.compute_mode : 0;
    case 33:
        return (int)gpu->pci_bus;
    case 34:
        return (int)gpu->pci_device;
    case 50:
        return (int)gpu->pci_domain;
    case 36: /* memory clock, kHz */
        return (int)gpu->memory_clock_mhz * 1000;
    case 37: /* memory bus, bits */
        return memory_bus_bits(gpu);
    case 38: /* L2 cache */
        return cache_mib(gpu) << 20;
    case 39:
        return threads_per_multiprocessor(gpu);
    case 40: /* copy engines */
        return gpu->cc_major == 9 ? 3 : 2;
    case 75:
        return (int)gpu->cc_major;
    case 76:
        return (int)gpu->cc_minor;
    case 81:
        return shared_per_multiprocessor(gpu);
    case 87:
        return precision_ratio(gpu);
    case 97: /* shared memory per block by choice */
        return shared_per_multiprocessor(gpu) - 1024;
    case 106: /* blocks per multiprocessor */
        return gpu->cc_major >= 8 && gpu->cc_minor == 0 ? 32 : 16;
    case 111: /* reserved shared memory per block */
        return 1024;
    case 126: /* domains of memory synchronisation */
        return gpu->cc_major >= 9 ? 4 : 1;
    case 130: /* whether the memory is a NUMA node of the system, and which */
        return gpu->numa_node != 0;
    case 131:
        return gpu->numa_node != 0 ? gpu->numa_node : -1;
    case 139:
        return (int)gpu->pci_device_id;
    case 140:
        return (int)gpu->pci_subsystem_id;
    case 15: /* overlap, host mapping, concurrent kernels, ECC, unified addressing, priorities, */
    case 19: /* L1 caching, managed memory, preemption */
    case 31:
    case 32:
    case 41:
    case 78:
    case 79:
    case 80:
    case 83:
    case 90:
    case 89: /* managed memory used by both at once, cooperative launches, virtual addresses, their */
    case 95: /* export as files, memory pools */
    case 102:
    case 103:
    case 115:
    case 122: /* streams that wait for values of 64 bits, and with NOR */
    case 123:
    case 91: /* registered memory of the host: at the same address, and read-only */
    case 99:
    case 113:
    case 142: /* memory pools of the host, on a NUMA node or anywhere */
    case 144:
        return 1;
    default:
        return (size_t)which < sizeof sizes / sizeof *sizes ? sizes[which] : 0;
    }
}

EXPORT CUresult cuDeviceGetAttribute(int *value, int which, CUdevice ordinal)
{
    WITH_DEVICE(device, ordinal, value);
    if (which <= 0 || which > LAST_ATTRIBUTE)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    *value = attribute(device, which);
    FINISH(0);
}

EXPORT CUresult cuDeviceCanAccessPeer(int *can, CUdevice one, CUdevice other)
{
    WITH_DEVICE(device, one, can);
    if (device_at(other) == NULL)
        FINISH(CUDA_ERROR_INVALID_DEVICE);
    *can = 0;
    FINISH(0);
}

EXPORT CUresult cuDeviceGetP2PAttribute(int *value, int which, CUdevice one, CUdevice other)
{
    (void)which;
    return one == other ? CUDA_ERROR_INVALID_DEVICE : cuDeviceCanAccessPeer(value, one, other);
}
