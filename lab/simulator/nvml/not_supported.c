/* What NVIDIA's library has and answers for these GPUs that it does not support: programs take
 * a function that is missing for another driver's, and some end there.
 */
#include "handles.h"

/* Whatever the arguments are, none is looked at. */
#define NOT_SUPPORTED(name)                                                \
    EXPORT nvmlReturn_t name(void)                                         \
    {                                                                      \
        return session_open() ? SIM_ERR_NOT_SUPPORTED : SIM_ERR_UNINITIALIZED; \
    }

/* Virtual GPUs: these are of the kind that containers are given. */
NOT_SUPPORTED(nvmlDeviceGetActiveVgpus)
NOT_SUPPORTED(nvmlDeviceGetCreatableVgpus)
NOT_SUPPORTED(nvmlDeviceGetHostVgpuMode)
NOT_SUPPORTED(nvmlDeviceGetPgpuMetadataString)
NOT_SUPPORTED(nvmlDeviceGetSupportedVgpus)
NOT_SUPPORTED(nvmlDeviceGetVgpuCapabilities)
NOT_SUPPORTED(nvmlDeviceGetVgpuHeterogeneousMode)
NOT_SUPPORTED(nvmlDeviceGetVgpuInstancesUtilizationInfo)
NOT_SUPPORTED(nvmlDeviceGetVgpuMetadata)
NOT_SUPPORTED(nvmlDeviceGetVgpuProcessUtilization)
NOT_SUPPORTED(nvmlDeviceGetVgpuProcessesUtilizationInfo)
NOT_SUPPORTED(nvmlDeviceGetVgpuSchedulerCapabilities)
NOT_SUPPORTED(nvmlDeviceGetVgpuSchedulerLog)
NOT_SUPPORTED(nvmlDeviceGetVgpuSchedulerState)
NOT_SUPPORTED(nvmlDeviceGetVgpuTypeCreatablePlacements)
NOT_SUPPORTED(nvmlDeviceGetVgpuTypeSupportedPlacements)
NOT_SUPPORTED(nvmlDeviceGetVgpuUtilization)
NOT_SUPPORTED(nvmlDeviceSetVgpuCapabilities)
NOT_SUPPORTED(nvmlDeviceSetVgpuHeterogeneousMode)
NOT_SUPPORTED(nvmlDeviceSetVgpuSchedulerState)
NOT_SUPPORTED(nvmlDeviceSetVirtualizationMode)
NOT_SUPPORTED(nvmlDeviceVgpuForceGspUnload)
NOT_SUPPORTED(nvmlGetVgpuCompatibility)
NOT_SUPPORTED(nvmlGetVgpuDriverCapabilities)
NOT_SUPPORTED(nvmlGetVgpuVersion)
NOT_SUPPORTED(nvmlGpuInstanceGetActiveVgpus)
NOT_SUPPORTED(nvmlGpuInstanceGetCreatableVgpus)
NOT_SUPPORTED(nvmlGpuInstanceGetVgpuHeterogeneousMode)
NOT_SUPPORTED(nvmlGpuInstanceGetVgpuSchedulerLog)
NOT_SUPPORTED(nvmlGpuInstanceGetVgpuSchedulerState)
NOT_SUPPORTED(nvmlGpuInstanceGetVgpuTypeCreatablePlacements)
NOT_SUPPORTED(nvmlGpuInstanceSetVgpuHeterogeneousMode)
NOT_SUPPORTED(nvmlGpuInstanceSetVgpuSchedulerState)
NOT_SUPPORTED(nvmlSetVgpuVersion)

/* Fans and coolers: cards of data centers have none (unused.c has how many). */
NOT_SUPPORTED(nvmlDeviceGetCoolerInfo)
NOT_SUPPORTED(nvmlDeviceGetFanControlPolicy_v2)
NOT_SUPPORTED(nvmlDeviceGetTargetFanSpeed)
NOT_SUPPORTED(nvmlDeviceSetDefaultFanSpeed_v2)
NOT_SUPPORTED(nvmlDeviceSetFanControlPolicy)
NOT_SUPPORTED(nvmlDeviceSetFanSpeed_v2)

/* Clocks, power and boards of desktop cards, and of drivers for Windows. */
NOT_SUPPORTED(nvmlDeviceGetAutoBoostedClocksEnabled)
NOT_SUPPORTED(nvmlDeviceGetBridgeChipInfo)
NOT_SUPPORTED(nvmlDeviceGetClkMonStatus)
NOT_SUPPORTED(nvmlDeviceGetClockOffsets)
NOT_SUPPORTED(nvmlDeviceGetCurrentClockFreqs)
NOT_SUPPORTED(nvmlDeviceGetDriverModel)
NOT_SUPPORTED(nvmlDeviceGetDriverModel_v2)
NOT_SUPPORTED(nvmlDeviceGetGpuOperationMode)
NOT_SUPPORTED(nvmlDeviceGetMaxCustomerBoostClock)
NOT_SUPPORTED(nvmlDeviceGetMinMaxClockOfPState)
NOT_SUPPORTED(nvmlDeviceGetPerformanceModes)
NOT_SUPPORTED(nvmlDeviceGetThermalSettings)
NOT_SUPPORTED(nvmlDeviceSetAutoBoostedClocksEnabled)
NOT_SUPPORTED(nvmlDeviceSetClockOffsets)
NOT_SUPPORTED(nvmlDeviceSetDefaultAutoBoostedClocksEnabled)
NOT_SUPPORTED(nvmlDeviceSetDriverModel)
NOT_SUPPORTED(nvmlDeviceSetGpcClkVfOffset)
NOT_SUPPORTED(nvmlDeviceSetGpuOperationMode)
NOT_SUPPORTED(nvmlDeviceSetMemClkVfOffset)

/* Confidential computing and encrypted memory. */
NOT_SUPPORTED(nvmlDeviceGetConfComputeGpuAttestationReport)
NOT_SUPPORTED(nvmlDeviceGetConfComputeGpuCertificate)
NOT_SUPPORTED(nvmlDeviceGetConfComputeMemSizeInfo)
NOT_SUPPORTED(nvmlDeviceGetDramEncryptionMode)
NOT_SUPPORTED(nvmlDeviceSetConfComputeUnprotectedMemSize)
NOT_SUPPORTED(nvmlDeviceSetDramEncryptionMode)
NOT_SUPPORTED(nvmlSystemGetConfComputeSettings)
NOT_SUPPORTED(nvmlSystemSetConfComputeGpusReadyState)
NOT_SUPPORTED(nvmlSystemSetConfComputeKeyRotationThresholdInfo)

/* Profiles of power and work, which came with Blackwell, and links to other chips. */
NOT_SUPPORTED(nvmlDeviceGetNvlinkBwMode)
NOT_SUPPORTED(nvmlDeviceGetNvlinkSupportedBwModes)
NOT_SUPPORTED(nvmlDevicePowerSmoothingActivatePresetProfile)
NOT_SUPPORTED(nvmlDevicePowerSmoothingSetState)
NOT_SUPPORTED(nvmlDevicePowerSmoothingUpdatePresetProfileParam)
NOT_SUPPORTED(nvmlDeviceSetNvLinkDeviceLowPowerThreshold)
NOT_SUPPORTED(nvmlDeviceSetNvlinkBwMode)
NOT_SUPPORTED(nvmlDeviceWorkloadPowerProfileClearRequestedProfiles)
NOT_SUPPORTED(nvmlDeviceWorkloadPowerProfileGetCurrentProfiles)
NOT_SUPPORTED(nvmlDeviceWorkloadPowerProfileGetProfilesInfo)
NOT_SUPPORTED(nvmlDeviceWorkloadPowerProfileSetRequestedProfiles)
NOT_SUPPORTED(nvmlSystemSetNvlinkBwMode)

/* Performance monitoring. */
NOT_SUPPORTED(nvmlGpmMetricsGet)
NOT_SUPPORTED(nvmlGpmMigSampleGet)
NOT_SUPPORTED(nvmlGpmQueryIfStreamingEnabled)
NOT_SUPPORTED(nvmlGpmSampleGet)
NOT_SUPPORTED(nvmlGpmSetStreamingEnabled)

/* Records of boards: black box, repairs. */
NOT_SUPPORTED(nvmlDeviceGetLastBBXFlushTime)
NOT_SUPPORTED(nvmlDeviceGetPlatformInfo)
