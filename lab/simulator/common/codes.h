/* NVML's return codes, which the daemon answers with. */
#ifndef DIVVY_CODES_H
#define DIVVY_CODES_H

enum {
    SIM_OK = 0,
    SIM_ERR_UNINITIALIZED = 1,
    SIM_ERR_INVALID_ARGUMENT = 2,
    SIM_ERR_NOT_SUPPORTED = 3,
    SIM_ERR_NO_PERMISSION = 4,
    SIM_ERR_NOT_FOUND = 6,
    SIM_ERR_INSUFFICIENT_SIZE = 7,
    SIM_ERR_DRIVER_NOT_LOADED = 9,
    SIM_ERR_TIMEOUT = 10,
    SIM_ERR_GPU_IS_LOST = 15,
    SIM_ERR_RESET_REQUIRED = 16,
    SIM_ERR_VERSION_MISMATCH = 18,
    SIM_ERR_IN_USE = 19,
    SIM_ERR_MEMORY = 20,
    SIM_ERR_INSUFFICIENT_RESOURCES = 23,
    SIM_ERR_ARGUMENT_VERSION = 25,
    SIM_ERR_UNKNOWN = 999,
    /* Not NVML's: what CUDA says of a client of MPS that another one's death has harmed, whose
     * server is gone, or whom it ended. */
    SIM_ERR_MPS_HARMED = 1700,
    SIM_ERR_MPS_SERVER_GONE = 1806,
    SIM_ERR_MPS_TERMINATED = 1810
};

#endif
