/* The part of NVML that the limiter stands in front of.
 *
 * Names, numbers and layouts are those of NVIDIA's published interface; declarations are ours.
 */
#ifndef DIVVY_LIMITER_NVML_H
#define DIVVY_LIMITER_NVML_H

#include "../share/account.h"
#include "../share/driver.h"

#define EXPORT __attribute__((visibility("default")))

typedef int nvmlReturn_t;
typedef struct nvmlDevice_st *nvmlDevice_t;

enum { NVML_ERROR_INVALID_ARGUMENT = 2, NVML_ERROR_NOT_FOUND = 6,
       NVML_ERROR_INSUFFICIENT_SIZE = 7, NVML_ERROR_FUNCTION_NOT_FOUND = 13 };

#define CALL(name, ...) CALL_OR(NVML_ERROR_FUNCTION_NOT_FOUND, name, __VA_ARGS__)

/* What the share has of a device, and which of the container's processes; false for a device that is not of the share. */
struct view {
    uint64_t limit, used;
    unsigned count;
    struct account_process process[MAX_SLOTS];
};
bool view_of(nvmlDevice_t device, struct view *view);

#endif
