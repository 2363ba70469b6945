/* NVML as nvidia-smi uses it: loaded at run time, so that any driver's library serves. */
#ifndef DIVVY_SMI_LIBRARY_H
#define DIVVY_SMI_LIBRARY_H

#include <stdbool.h>

#include "../nvml/nvml.h"

/* Result, name, parameters. A function that the library lacks answers "not supported". */
#define NVML_FUNCTIONS(F)                                                                          \
    F(nvmlInit_v2, (void))                                                                         \
    F(nvmlShutdown, (void))                                                                        \
    F(nvmlSystemGetDriverVersion, (char *, unsigned))                                              \
    F(nvmlSystemGetCudaDriverVersion_v2, (int *))                                                  \
    F(nvmlSystemGetProcessName, (unsigned, char *, unsigned))                                      \
    F(nvmlDeviceGetCount_v2, (unsigned *))                                                         \
    F(nvmlDeviceGetHandleByIndex_v2, (unsigned, nvmlDevice_t *))                                   \
    F(nvmlDeviceGetHandleByUUID, (const char *, nvmlDevice_t *))                                   \
    F(nvmlDeviceGetHandleByPciBusId_v2, (const char *, nvmlDevice_t *))                            \
    F(nvmlDeviceGetName, (nvmlDevice_t, char *, unsigned))                                         \
    F(nvmlDeviceGetUUID, (nvmlDevice_t, char *, unsigned))                                         \
    F(nvmlDeviceGetSerial, (nvmlDevice_t, char *, unsigned))                                       \
    F(nvmlDeviceGetVbiosVersion, (nvmlDevice_t, char *, unsigned))                                 \
    F(nvmlDeviceGetMinorNumber, (nvmlDevice_t, unsigned *))                                        \
    F(nvmlDeviceGetPciInfo_v3, (nvmlDevice_t, nvmlPciInfo_t *))                                    \
    F(nvmlDeviceGetBrand, (nvmlDevice_t, unsigned *))                                              \
    F(nvmlDeviceGetArchitecture, (nvmlDevice_t, unsigned *))                                       \
    F(nvmlDeviceGetCudaComputeCapability, (nvmlDevice_t, int *, int *))                            \
    F(nvmlDeviceGetMemoryInfo, (nvmlDevice_t, nvmlMemory_t *))                                     \
    F(nvmlDeviceGetMemoryInfo_v2, (nvmlDevice_t, nvmlMemory_v2_t *))                               \
    F(nvmlDeviceGetBAR1MemoryInfo, (nvmlDevice_t, nvmlBAR1Memory_t *))                             \
    F(nvmlDeviceGetUtilizationRates, (nvmlDevice_t, nvmlUtilization_t *))                          \
    F(nvmlDeviceGetTemperature, (nvmlDevice_t, int, unsigned *))                                   \
    F(nvmlDeviceGetTemperatureThreshold, (nvmlDevice_t, unsigned, unsigned *))                     \
    F(nvmlDeviceGetFanSpeed, (nvmlDevice_t, unsigned *))                                           \
    F(nvmlDeviceGetPowerUsage, (nvmlDevice_t, unsigned *))                                         \
    F(nvmlDeviceGetEnforcedPowerLimit, (nvmlDevice_t, unsigned *))                                 \
    F(nvmlDeviceGetPerformanceState, (nvmlDevice_t, unsigned *))                                   \
    F(nvmlDeviceGetPersistenceMode, (nvmlDevice_t, unsigned *))                                    \
    F(nvmlDeviceGetDisplayActive, (nvmlDevice_t, unsigned *))                                      \
    F(nvmlDeviceGetClockInfo, (nvmlDevice_t, unsigned, unsigned *))                                \
    F(nvmlDeviceGetMaxClockInfo, (nvmlDevice_t, unsigned, unsigned *))                             \
    F(nvmlDeviceGetEccMode, (nvmlDevice_t, unsigned *, unsigned *))                                \
    F(nvmlDeviceGetTotalEccErrors, (nvmlDevice_t, unsigned, unsigned, unsigned long long *))       \
    F(nvmlDeviceGetGpuFabricInfo, (nvmlDevice_t, nvmlGpuFabricInfo_t *))                           \
    F(nvmlDeviceGetComputeMode, (nvmlDevice_t, unsigned *))                                        \
    F(nvmlDeviceSetComputeMode, (nvmlDevice_t, unsigned))                                          \
    F(nvmlDeviceGetMigMode, (nvmlDevice_t, unsigned *, unsigned *))                                \
    F(nvmlDeviceSetMigMode, (nvmlDevice_t, unsigned, nvmlReturn_t *))                              \
    F(nvmlDeviceSetMemoryLimits_v1, (nvmlDevice_t, nvmlSetMemoryLimits_v1_t *))                    \
    F(nvmlDeviceGetMemoryLimits_v1, (nvmlDevice_t, nvmlGetMemoryLimits_v1_t *))                    \
    F(divvySimulatedReset, (nvmlDevice_t))                                                         \
    F(divvySimulatedGetTimeslice, (nvmlDevice_t, unsigned *))                                      \
    F(divvySimulatedSetTimeslice, (nvmlDevice_t, unsigned))                                        \
    F(nvmlDeviceGetMaxMigDeviceCount, (nvmlDevice_t, unsigned *))                                  \
    F(nvmlDeviceGetMigDeviceHandleByIndex, (nvmlDevice_t, unsigned, nvmlDevice_t *))               \
    F(nvmlDeviceGetGpuInstanceId, (nvmlDevice_t, unsigned *))                                      \
    F(nvmlDeviceGetComputeInstanceId, (nvmlDevice_t, unsigned *))                                  \
    F(nvmlDeviceGetAttributes_v2, (nvmlDevice_t, nvmlDeviceAttributes_t *))                        \
    F(nvmlDeviceGetComputeRunningProcesses_v3, (nvmlDevice_t, unsigned *, nvmlProcessInfo_t *))    \
    F(nvmlDeviceGetGpuInstanceProfileInfo,                                                         \
      (nvmlDevice_t, unsigned, nvmlGpuInstanceProfileInfo_t *))                                    \
    F(nvmlDeviceGetGpuInstanceProfileInfoV,                                                        \
      (nvmlDevice_t, unsigned, nvmlGpuInstanceProfileInfo_v2_t *))                                 \
    F(nvmlDeviceGetGpuInstancePossiblePlacements_v2,                                               \
      (nvmlDevice_t, unsigned, nvmlGpuInstancePlacement_t *, unsigned *))                          \
    F(nvmlDeviceGetGpuInstanceRemainingCapacity, (nvmlDevice_t, unsigned, unsigned *))             \
    F(nvmlDeviceCreateGpuInstance, (nvmlDevice_t, unsigned, nvmlGpuInstance_t *))                  \
    F(nvmlDeviceCreateGpuInstanceWithPlacement,                                                    \
      (nvmlDevice_t, unsigned, const nvmlGpuInstancePlacement_t *, nvmlGpuInstance_t *))           \
    F(nvmlDeviceGetGpuInstances, (nvmlDevice_t, unsigned, nvmlGpuInstance_t *, unsigned *))        \
    F(nvmlDeviceGetGpuInstanceById, (nvmlDevice_t, unsigned, nvmlGpuInstance_t *))                 \
    F(nvmlGpuInstanceGetInfo, (nvmlGpuInstance_t, nvmlGpuInstanceInfo_t *))                        \
    F(nvmlGpuInstanceDestroy, (nvmlGpuInstance_t))                                                 \
    F(nvmlGpuInstanceGetComputeInstanceProfileInfo,                                                \
      (nvmlGpuInstance_t, unsigned, unsigned, nvmlComputeInstanceProfileInfo_t *))                 \
    F(nvmlGpuInstanceGetComputeInstanceRemainingCapacity, (nvmlGpuInstance_t, unsigned, unsigned *)) \
    F(nvmlGpuInstanceCreateComputeInstance, (nvmlGpuInstance_t, unsigned, nvmlComputeInstance_t *)) \
    F(nvmlGpuInstanceGetComputeInstances,                                                          \
      (nvmlGpuInstance_t, unsigned, nvmlComputeInstance_t *, unsigned *))                          \
    F(nvmlGpuInstanceGetComputeInstanceById, (nvmlGpuInstance_t, unsigned, nvmlComputeInstance_t *)) \
    F(nvmlComputeInstanceGetInfo_v2, (nvmlComputeInstance_t, nvmlComputeInstanceInfo_t *))         \
    F(nvmlComputeInstanceDestroy, (nvmlComputeInstance_t))

struct nvml_library {
#define MEMBER(name, parameters) nvmlReturn_t(*name) parameters;
    NVML_FUNCTIONS(MEMBER)
#undef MEMBER
    const char *(*nvmlErrorString)(nvmlReturn_t);
    bool has_memory_limits; /* it is of driver 615 or newer */
    bool simulated;
};

extern struct nvml_library lib;

/* Load the library; says on stderr what is wrong. */
bool library_load(void);

#endif
