/* Sensors, clocks, power, ECC. */
#include <string.h>

#include "handles.h"

#define HOPPER 9
#define GPU_DEGREES 87 /* at which a GPU since Hopper slows down by software */
enum { CLOCK_MEMORY = 2, CLOCK_VIDEO = 3 };
enum { BOOST_OF_CUSTOMER = 3 };

READING(nvmlDeviceGetPowerUsage, unsigned, state.power_mw)
READING(nvmlDeviceGetEnforcedPowerLimit, unsigned, state.power_limit_mw)
READING(nvmlDeviceGetPowerManagementLimit, unsigned, state.power_limit_mw)
READING(nvmlDeviceGetPowerManagementDefaultLimit, unsigned, state.power_limit_mw)
READING(nvmlDeviceGetPowerManagementMode, unsigned, 1)
READING(nvmlDeviceGetTotalEnergyConsumption, unsigned long long, state.energy_mj)
READING(nvmlDeviceGetPerformanceState, unsigned, state.architecture >= 7 || state.utilisation ? 0 : 8)
READING(nvmlDeviceGetPowerState, unsigned, state.architecture >= 7 || state.utilisation ? 0 : 8)
READING(nvmlDeviceGetPersistenceMode, unsigned, 1)
READING(nvmlDeviceGetDisplayMode, unsigned, state.architecture >= HOPPER)
READING(nvmlDeviceGetDisplayActive, unsigned, 0)
READING(nvmlDeviceGetNumGpuCores, unsigned,
        state.sms * (state.cc_major == 8 && state.cc_minor == 0   ? 64u
                     : state.cc_major == 7                        ? 64u
                                                                  : 128u))
READING(nvmlDeviceGetMultiGpuBoard, unsigned, 0)
/* Idle; slowed down by the hardware, and that for its temperature. */
#define CLOCK_REASONS(state) (((state).utilisation ? 0 : 0x1) | ((state).hot ? 0x8 | 0x40 : 0))
READING(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, CLOCK_REASONS(state))
READING(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, CLOCK_REASONS(state))
READING(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, state.architecture >= 9 ? 5 : 4)
READING(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, state.architecture >= 9 ? 5 : 4)
READING(nvmlDeviceGetCurrPcieLinkWidth, unsigned, state.narrow ? 8 : 16)
READING(nvmlDeviceGetMaxPcieLinkWidth, unsigned, 16)
READING(nvmlDeviceGetPcieReplayCounter, unsigned, 0)

EXPORT nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned *least,
                                                                 unsigned *most)
{
    struct sim_gpu state;
    int status = gpu_state(device, &state);
    if (status == 0 && (least == NULL || most == NULL))
        return SIM_ERR_INVALID_ARGUMENT;
    if (status == 0) {
        *least = state.architecture == HOPPER ? 200000 : state.power_limit_mw / 4;
        *most = state.power_limit_mw;
    }
    return status;
}

EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates)
{
    struct sim_gpu state;
    int status = gpu_state(device, &state);
    if (status != 0)
        return status;
    if (rates == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    if (state.mig_mode) /* as a GPU in MIG mode has no single one */
        return SIM_ERR_NOT_SUPPORTED;
    *rates = (nvmlUtilization_t){state.utilisation, state.memory_utilisation};
    return 0;
}

/* Fields (nvml.h: NVML_FI_DEV_*) that are answered; the others are not supported. */
enum { FIELD_RECOVERY_ACTION = 230 };
enum { VALUE_UNSIGNED_INT = 1 };

EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *fields)
{
    struct sim_gpu state;
    int status = gpu_state(device, &state);
    if (status != 0)
        return status;
    if (count < 0 || fields == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    for (int i = 0; i < count; i++) {
        fields[i].nvmlReturn = SIM_ERR_NOT_SUPPORTED;
        if (fields[i].fieldId != FIELD_RECOVERY_ACTION)
            continue;
        fields[i].nvmlReturn = 0;
        fields[i].valueType = VALUE_UNSIGNED_INT;
        fields[i].value.uiVal = state.recovery;
    }
    return 0;
}

EXPORT nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned *utilisation,
                                                    unsigned *period)
{
    struct sim_gpu state;
    int status = gpu_state(device, &state);
    if (status != 0)
        return status;
    if (utilisation == NULL || period == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    if (state.mig_mode)
        return SIM_ERR_NOT_SUPPORTED;
    *utilisation = 0;
    *period = 167000;
    return 0;
}

ALSO(nvmlDeviceGetDecoderUtilization, nvmlDeviceGetEncoderUtilization,
     (nvmlDevice_t device, unsigned *rate, unsigned *period), (device, rate, period))
ALSO(nvmlDeviceGetJpgUtilization, nvmlDeviceGetEncoderUtilization,
     (nvmlDevice_t device, unsigned *rate, unsigned *period), (device, rate, period))
ALSO(nvmlDeviceGetOfaUtilization, nvmlDeviceGetEncoderUtilization,
     (nvmlDevice_t device, unsigned *rate, unsigned *period), (device, rate, period))

EXPORT nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, int sensor, unsigned *value)
{
    struct sim_gpu state;
    int status = gpu_state(device, &state);
    if (status == 0 && (value == NULL || sensor != 0))
        return SIM_ERR_INVALID_ARGUMENT;
    if (status == 0)
        *value = state.temperature;
    return status;
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_v1_t *value)
{
    struct sim_gpu state;
    int status = gpu_state(device, &state);
    if (status == 0 && (value == NULL || value->sensorType != 0))
        return SIM_ERR_INVALID_ARGUMENT;
    if (status == 0 && value->version != NVML_VERSION(nvmlTemperature_v1_t, 1))
        return SIM_ERR_ARGUMENT_VERSION;
    if (status == 0)
        value->temperature = (int)state.temperature;
    return status;
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, unsigned threshold,
                                                      unsigned *value)
{
    /* Shutdown, slowdown, memory, GPU: before Hopper and since. */
    static const unsigned degrees[2][4] = {{95, 92, 95, 85}, {95, 89, 95, GPU_DEGREES}};
    struct sim_gpu state;
    int status = gpu_state(device, &state);
    if (status == 0 && value == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    if (status == 0 && threshold >= 4)
        return SIM_ERR_NOT_SUPPORTED;
    if (status == 0)
        *value = degrees[state.architecture >= HOPPER][threshold];
    return status;
}

EXPORT nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t device, nvmlMarginTemperature_v1_t *value)
{
    struct sim_gpu state;
    int status = gpu_state(device, &state);
    if (status == 0 && value == NULL)
        return SIM_ERR_INVALID_ARGUMENT;
    if (status == 0 && value->version != NVML_VERSION(nvmlMarginTemperature_v1_t, 1))
        return SIM_ERR_ARGUMENT_VERSION;
    if (status == 0 && state.architecture < HOPPER)
        return SIM_ERR_NOT_SUPPORTED;
    if (status == 0)
        value->marginTemperature = GPU_DEGREES - (int)state.temperature;
    return status;
}

/* Data-centre cards are cooled by the machine they sit in. */
EXPORT nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t device, unsigned *value)
{
    struct sim_gpu state;
    int status = gpu_state(device, &state);
    (void)value;
    return status == 0 ? SIM_ERR_NOT_SUPPORTED : status;
}

static nvmlReturn_t clock_of(nvmlDevice_t device, unsigned kind, unsigned *value, int most)
{
    struct sim_gpu state;
    int status = gpu_state(device, &state);
    if (status == 0 && (value == NULL || kind > 3))
        return SIM_ERR_INVALID_ARGUMENT;
    if (status != 0)
        return status;
    unsigned sm = most ? state.sm_clock_max_mhz : state.sm_clock_mhz;
    unsigned video = state.architecture == HOPPER ? sm * 103 / 132 : sm * 9 / 10;
    *value = kind == CLOCK_MEMORY ? state.memory_clock_mhz : kind == CLOCK_VIDEO ? video : sm;
    return 0;
}

EXPORT nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, unsigned kind, unsigned *value)
{
    return kind > CLOCK_VIDEO ? SIM_ERR_NOT_SUPPORTED : clock_of(device, kind, value, 0);
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, unsigned kind, unsigned *value)
{
    return clock_of(device, kind, value, 1);
}

EXPORT nvmlReturn_t nvmlDeviceGetApplicationsClock(nvmlDevice_t device, unsigned kind, unsigned *value)
{
    return kind == CLOCK_VIDEO ? SIM_ERR_NOT_SUPPORTED : clock_of(device, kind, value, 1);
}

EXPORT nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, unsigned kind, unsigned id, unsigned *value)
{
    if (id > BOOST_OF_CUSTOMER)
        return SIM_ERR_INVALID_ARGUMENT;
    return id == BOOST_OF_CUSTOMER && kind == CLOCK_MEMORY ? SIM_ERR_NOT_SUPPORTED
                                                           : clock_of(device, kind, value, id != 0);
}

EXPORT nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned *current, unsigned *pending)
{
    struct sim_gpu state;
    int status = gpu_state(device, &state);
    if (status == 0 && (current == NULL || pending == NULL))
        return SIM_ERR_INVALID_ARGUMENT;
    if (status == 0)
        *current = *pending = 1;
    return status;
}

static unsigned long long ecc_count(const struct sim_gpu *state, unsigned uncorrected, unsigned aggregate)
{
    if (aggregate)
        return uncorrected ? state->ecc_uncorrected_aggregate : state->ecc_corrected_aggregate;
    return uncorrected ? state->ecc_uncorrected_volatile : state->ecc_corrected_volatile;
}

EXPORT nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned uncorrected,
                                                unsigned aggregate, unsigned long long *count)
{
    struct sim_gpu state;
    int status = gpu_state(device, &state);
    if (status == 0 && (count == NULL || uncorrected > 1 || aggregate > 1))
        return SIM_ERR_INVALID_ARGUMENT;
    if (status == 0)
        *count = ecc_count(&state, uncorrected, aggregate);
    return status;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, unsigned uncorrected,
                                                    unsigned aggregate, unsigned location,
                                                    unsigned long long *count)
{
    struct sim_gpu state;
    int status = gpu_state(device, &state);
    if (status == 0 && (count == NULL || uncorrected > 1 || aggregate > 1))
        return SIM_ERR_INVALID_ARGUMENT;
    if (status == 0 && location > 7)
        return SIM_ERR_NOT_SUPPORTED;
    if (status == 0) /* all errors of the simulation are in device memory */
        *count = location == 2 ? ecc_count(&state, uncorrected, aggregate) : 0;
    return status;
}

/* An uncorrectable error has a row remapped from Ampere on, a page retired before; both take effect
 * with the next reset, which also clears the volatile counters. */
#define REMAPS_ROWS(state) ((state).architecture >= 7)

EXPORT nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned *corrected,
                                              unsigned *uncorrected, unsigned *pending, unsigned *failed)
{
    struct sim_gpu state;
    int status = gpu_state(device, &state);
    if (status == 0 && (!corrected || !uncorrected || !pending || !failed))
        return SIM_ERR_INVALID_ARGUMENT;
    if (status == 0 && !REMAPS_ROWS(state))
        return SIM_ERR_NOT_SUPPORTED;
    if (status == 0) {
        *corrected = *failed = 0;
        *uncorrected = (unsigned)state.ecc_uncorrected_aggregate;
        *pending = state.ecc_uncorrected_volatile != 0;
    }
    return status;
}

EXPORT nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, unsigned cause, unsigned *count,
                                              unsigned long long *addresses)
{
    struct sim_gpu state;
    int status = gpu_state(device, &state);
    if (status == 0 && (count == NULL || cause > 1))
        return SIM_ERR_INVALID_ARGUMENT;
    if (status == 0 && REMAPS_ROWS(state))
        return SIM_ERR_NOT_SUPPORTED;
    if (status != 0)
        return status;
    unsigned room = *count;
    *count = cause == 1 ? (unsigned)state.ecc_uncorrected_aggregate : 0; /* 1: double-bit errors */
    if (*count > room || (*count != 0 && addresses == NULL))
        return SIM_ERR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < *count; i++)
        addresses[i] = (i + 1ull) << 16;
    return 0;
}

READING_UNLESS(nvmlDeviceGetRetiredPagesPendingStatus, unsigned, REMAPS_ROWS(state),
               state.ecc_uncorrected_volatile != 0)
