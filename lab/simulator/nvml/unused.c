/* What a driver answers for although nothing uses it: fans, encoders, frame buffer capture, offsets of clocks,
 * confidential computing. Nothing of it is simulated; the answers are those of driver 580 for an idle H200. */
#include "handles.h"

#define CONFIDENTIAL_ARCHITECTURE 9 /* Hopper: from then on GPUs can compute confidentially */

typedef struct {
    unsigned sessionsCount, averageFPS, averageLatency;
} nvmlFBCStats_t;

typedef struct {
    unsigned isC2cEnabled;
} nvmlC2cModeInfo_v1_t;

typedef struct {
    unsigned cpuCaps, gpusCaps;
} nvmlConfComputeSystemCaps_t;

typedef struct {
    unsigned environment, ccFeature, devToolsMode;
} nvmlConfComputeSystemState_t;

typedef struct {
    unsigned version;
    unsigned long long attackerAdvantage;
} nvmlConfComputeGetKeyRotationThresholdInfo_v1_t;

typedef struct {
    int isGridLicenseSupported;
    unsigned licensableFeaturesCount;
    unsigned char features[3][284];
} nvmlGridLicensableFeatures_t;
_Static_assert(sizeof(nvmlGridLicensableFeatures_t) == 860, "as NVML has it");

typedef struct {
    unsigned flags;
    struct {
        unsigned bIsPresent, percentage, incThreshold, decThreshold;
    } utilization[8]; /* graphics, memory, video, bus */
} nvmlGpuDynamicPstatesInfo_t;

READING(nvmlDeviceGetNumFans, unsigned, 0)
READING(nvmlDeviceGetAdaptiveClockInfoStatus, unsigned, 1)
READING(nvmlDeviceGetGpcClkVfOffset, int, 0)
READING(nvmlDeviceGetMemClkVfOffset, int, 0)
READING(nvmlDeviceGetFBCStats, nvmlFBCStats_t, (nvmlFBCStats_t){0})
READING(nvmlDeviceGetGridLicensableFeatures_v4, nvmlGridLicensableFeatures_t, (nvmlGridLicensableFeatures_t){0})
READING(nvmlDeviceGetC2cModeInfoV, nvmlC2cModeInfo_v1_t, (nvmlC2cModeInfo_v1_t){state.numa_node != 0})
READING_UNLESS(nvmlDeviceGetConfComputeProtectedMemoryUsage, nvmlMemory_t,
               state.architecture < CONFIDENTIAL_ARCHITECTURE, (nvmlMemory_t){0})

EXPORT nvmlReturn_t nvmlDeviceGetDynamicPstatesInfo(nvmlDevice_t device, nvmlGpuDynamicPstatesInfo_t *info)
{
    struct sim_gpu state;
    int status = gpu_state(device, &state);
    if (status == 0 && info == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    if (status == 0)
        *info = (nvmlGpuDynamicPstatesInfo_t){
            0, {{1, state.utilisation, 0, 0}, {1, state.memory_utilisation, 0, 0}, {1, 0, 0, 0}, {1, 0, 0, 0}}};
    return status;
}

/* There is no fan of any number. */
#define NO_FAN(name)                                                                       \
    EXPORT nvmlReturn_t name(void)                                                         \
    {                                                                                      \
        return session_open() ? SIM_ERR_INVALID_ARGUMENT : SIM_ERR_UNINITIALIZED;          \
    }

NO_FAN(nvmlDeviceGetFanSpeedRPM)
NO_FAN(nvmlDeviceGetFanSpeed_v2)
NO_FAN(nvmlDeviceGetMinMaxFanSpeed)

EXPORT nvmlReturn_t nvmlDeviceGetGpcClkMinMaxVfOffset(nvmlDevice_t device, int *least, int *most)
{
    struct sim_gpu state;
    int status = gpu_state(device, &state);
    if (status == 0 && (least == NULL || most == NULL))
        return SIM_ERR_INVALID_ARGUMENT;
    if (status == 0)
        *least = *most = 0;
    return status;
}

ALSO(nvmlDeviceGetMemClkMinMaxVfOffset, nvmlDeviceGetGpcClkMinMaxVfOffset,
     (nvmlDevice_t device, int *least, int *most), (device, least, most))

EXPORT nvmlReturn_t nvmlDeviceGetEncoderCapacity(nvmlDevice_t device, unsigned kind, unsigned *percent)
{
    struct sim_gpu state;
    int status = gpu_state(device, &state);
    if (status == 0 && (percent == NULL || kind > 2))
        return SIM_ERR_INVALID_ARGUMENT;
    if (status == 0)
        *percent = 100;
    return status;
}

EXPORT nvmlReturn_t nvmlDeviceGetEncoderStats(nvmlDevice_t device, unsigned *count, unsigned *fps, unsigned *latency)
{
    struct sim_gpu state;
    int status = gpu_state(device, &state);
    if (status == 0 && (count == NULL || fps == NULL || latency == NULL))
        return SIM_ERR_INVALID_ARGUMENT;
    if (status == 0)
        *count = *fps = *latency = 0;
    return status;
}

EXPORT nvmlReturn_t nvmlDeviceGetEncoderSessions(nvmlDevice_t device, unsigned *count, void *sessions)
{
    struct sim_gpu state;
    int status = gpu_state(device, &state);
    (void)sessions;
    if (status == 0 && count == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    if (status == 0)
        *count = 0;
    return status;
}

ALSO(nvmlDeviceGetFBCSessions, nvmlDeviceGetEncoderSessions,
     (nvmlDevice_t device, unsigned *count, void *sessions), (device, count, sessions))

/* A function that stores one value of the system. */
#define OF_SYSTEM(name, type, value)                       \
    EXPORT nvmlReturn_t name(type *target)                 \
    {                                                      \
        if (!session_open())                               \
            return SIM_ERR_UNINITIALIZED;                  \
        if (target == NULL)                                \
            return SIM_ERR_INVALID_ARGUMENT;               \
        *target = (value);                                 \
        return 0;                                          \
    }

static bool can_be_confidential(void)
{
    struct sim_gpu state;
    return session_identity(0, &state) == 0 && state.architecture >= CONFIDENTIAL_ARCHITECTURE;
}

#define CAPABILITIES ((nvmlConfComputeSystemCaps_t){.gpusCaps = can_be_confidential()})
#define THRESHOLD ((nvmlConfComputeGetKeyRotationThresholdInfo_v1_t){target->version, 60})

OF_SYSTEM(nvmlSystemGetConfComputeCapabilities, nvmlConfComputeSystemCaps_t, CAPABILITIES)
OF_SYSTEM(nvmlSystemGetConfComputeGpusReadyState, unsigned, 0)
OF_SYSTEM(nvmlSystemGetConfComputeKeyRotationThresholdInfo, nvmlConfComputeGetKeyRotationThresholdInfo_v1_t, THRESHOLD)
OF_SYSTEM(nvmlSystemGetConfComputeState, nvmlConfComputeSystemState_t, (nvmlConfComputeSystemState_t){0})
OF_SYSTEM(nvmlSystemGetNvlinkBwMode, unsigned, 0)
