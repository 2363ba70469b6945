/* What a program is told: that it can be started, and how much memory its share has. */
#include "driver.h"
#include "memory.h"

EXPORT CUresult cuInit(unsigned flags);
EXPORT CUresult cuMemGetInfo_v2(size_t *unused, size_t *total);
EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice ordinal);

EXPORT CUresult cuInit(unsigned flags)
{
    CUresult result = tenant_start();
    return result != 0 ? result : CALL(cuInit, flags);
}

/* A share may have more than the GPU, with the host's memory for the rest. */
static size_t total_of(const struct share_device *share, size_t driver_total)
{
    return share->memory < driver_total || share->oversubscribed ? share->memory : driver_total;
}

EXPORT CUresult cuMemGetInfo_v2(size_t *unused, size_t *total)
{
    size_t driver_unused, driver_total;
    CUresult result = CALL(cuMemGetInfo_v2, unused == NULL ? NULL : &driver_unused,
                           total == NULL ? NULL : &driver_total);
    if (result != 0)
        return result;
    int device = tenant_current_device();
    if (device >= 0) {
        const struct share_device *share = tenant_share((unsigned)device);
        uint64_t limit = share->memory;
        pools_refresh();
        uint64_t used = account_used((unsigned)device), left = used < limit ? limit - used : 0;
        /* Others may have left less than the share promises. */
        driver_unused = left < driver_unused || share->oversubscribed ? left : driver_unused;
        driver_total = total_of(share, driver_total);
    }
    if (unused != NULL)
        *unused = driver_unused;
    if (total != NULL)
        *total = driver_total;
    return 0;
}

CUresult refusal(void)
{
    size_t unused, total;
    CUresult result = CALL(cuMemGetInfo_v2, &unused, &total);
    bool has_fault = result >= CUDA_ERROR_ILLEGAL_ADDRESS && result <= CUDA_ERROR_LAUNCH_FAILED;
    return has_fault ? result : CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice ordinal)
{
    CUresult result = CALL(cuDeviceTotalMem_v2, bytes, ordinal);
    int device = result == 0 ? tenant_device(ordinal) : -1;
    if (device >= 0)
        *bytes = total_of(tenant_share((unsigned)device), *bytes);
    return result;
}
