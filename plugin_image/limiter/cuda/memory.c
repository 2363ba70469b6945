/* Device memory that is allocated at once: reserve, allocate, correct by what the driver took. */
#include "memory.h"

#include <stdbool.h>

#include "driver.h"

#define GRAIN 512u /* the driver's smallest piece */
#define ATTACH_GLOBAL 1u
#define PREFER_LOCATION 3 /* of cuMemAdvise */

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes);
EXPORT CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned flags);
EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height, unsigned element);
EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer);

static uint64_t whole(uint64_t bytes)
{
    return bytes > UINT64_MAX - GRAIN ? bytes : (bytes + GRAIN - 1) / GRAIN * GRAIN;
}

static uint64_t product(uint64_t one, uint64_t other)
{
    uint64_t result;
    return __builtin_mul_overflow(one, other, &result) ? UINT64_MAX : result;
}

static CUresult settle(CUresult result, const CUdeviceptr *pointer, const struct charge *charge)
{
    if (charge_settle(CHARGE_POINTER, result, result == 0 ? *pointer : 0, charge))
        return result;
    CALL(cuMemFree_v2, *pointer);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* What the GPU has no room for becomes managed memory, if the share may have more than there is:
 * on the host, and on the GPU whenever there is room. */
static CUresult oversubscribe(CUresult result, CUdeviceptr *pointer, uint64_t bytes, const struct charge *charge)
{
    CUdevice ordinal;
    if (result != CUDA_ERROR_OUT_OF_MEMORY || !tenant_share(charge->device)->oversubscribed)
        return result;
    result = CALL(cuMemAllocManaged, pointer, bytes, ATTACH_GLOBAL);
    if (result == 0) {
        if (CALL(cuCtxGetDevice, &ordinal) == 0)
            CALL(cuMemAdvise, *pointer, bytes, PREFER_LOCATION, ordinal);
        account_count_to_host(charge->device);
    }
    return result;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    struct charge charge = {.bytes = pointer == NULL ? 0 : whole(bytes)};
    enum reservation reservation = charge_reserve(&charge);
    if (reservation == REFUSED)
        return refusal();
    CUresult result = CALL(cuMemAlloc_v2, pointer, bytes);
    if (reservation != RESERVED)
        return result;
    return settle(oversubscribe(result, pointer, bytes, &charge), pointer, &charge);
}

/* In full, although the driver may keep a part of it on the host. */
EXPORT CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned flags)
{
    struct charge charge = {.bytes = pointer == NULL ? 0 : whole(bytes)};
    enum reservation reservation = charge_reserve(&charge);
    if (reservation == REFUSED)
        return refusal();
    CUresult result = CALL(cuMemAllocManaged, pointer, bytes, flags);
    return reservation == RESERVED ? settle(result, pointer, &charge) : result;
}

/* How wide the driver makes a row is only known afterwards. */
EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height, unsigned element)
{
    struct charge charge = {.bytes = pointer == NULL || pitch == NULL ? 0 : product(whole(width), height)};
    enum reservation reservation = charge_reserve(&charge);
    if (reservation == REFUSED)
        return refusal();
    CUresult result = CALL(cuMemAllocPitch_v2, pointer, pitch, width, height, element);
    if (reservation != RESERVED)
        return result;
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        result = oversubscribe(result, pointer, charge.bytes, &charge);
        if (result == 0)
            *pitch = whole(width);
    }
    uint64_t taken = result == 0 ? whole(product(*pitch, height)) : charge.bytes;
    if (taken > charge.bytes && !tenant_reserve(charge.device, taken - charge.bytes)) {
        CALL(cuMemFree_v2, *pointer);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    } else if (taken > charge.bytes) {
        charge.bytes = taken;
    }
    return settle(result, pointer, &charge);
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer)
{
    struct charge charge;
    bool charged = charge_take(CHARGE_POINTER, pointer, &charge);
    CUresult result = CALL(cuMemFree_v2, pointer);
    if (charged)
        charge_freed(CHARGE_POINTER, result, pointer, &charge);
    else
        pools_refresh();
    return result;
}
