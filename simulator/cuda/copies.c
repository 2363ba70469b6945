/* Copies and fills. They are done when the call returns, whatever the stream. */
#include <string.h>

#include "state.h"

static void *at(CUdeviceptr pointer)
{
    return (void *)(uintptr_t)pointer;
}

static CUresult copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, bool to_device, bool from_device,
                     CUstream stream)
{
    WITH_CONTEXT(context);
    (void)context;
    if (!stream_is_known(stream))
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    if (bytes == 0)
        FINISH(0);
    if ((to_device && !memory_holds(to, bytes)) || (from_device && !memory_holds(from, bytes)) ||
        to == 0 || from == 0)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    memmove(at(to), at(from), bytes);
    FINISH(0);
}

EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
    return copy(to, (CUdeviceptr)(uintptr_t)from, bytes, true, false, NULL);
}

EXPORT CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
    return copy((CUdeviceptr)(uintptr_t)to, from, bytes, false, true, NULL);
}

EXPORT CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return copy(to, from, bytes, true, true, NULL);
}

EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    return copy(to, (CUdeviceptr)(uintptr_t)from, bytes, true, false, stream);
}

EXPORT CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return copy((CUdeviceptr)(uintptr_t)to, from, bytes, false, true, stream);
}

EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return copy(to, from, bytes, true, true, stream);
}

/* Host and device share their addresses; what the driver does not know is the host's. */
EXPORT CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    driver_lock();
    bool to_device = memory_at(to) != NULL, from_device = memory_at(from) != NULL;
    driver_unlock();
    return copy(to, from, bytes, to_device, from_device, stream);
}

EXPORT CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return cuMemcpyAsync(to, from, bytes, NULL);
}

static CUresult fill(CUdeviceptr to, uint32_t value, unsigned width, size_t elements, CUstream stream)
{
    WITH_CONTEXT(context);
    (void)context;
    if (!stream_is_known(stream))
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    if (elements == 0)
        FINISH(0);
    if (elements > SIZE_MAX / width || to % width != 0 || !memory_holds(to, elements * width))
        FINISH(CUDA_ERROR_INVALID_VALUE);
    if (width == 1)
        memset(at(to), (int)value, elements);
    else
        for (size_t i = 0; i < elements; i++)
            memcpy((char *)at(to) + i * width, &value, width);
    FINISH(0);
}

EXPORT CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t elements)
{
    return fill(to, value, 1, elements, NULL);
}

EXPORT CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t elements)
{
    return fill(to, value, 2, elements, NULL);
}

EXPORT CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t elements)
{
    return fill(to, value, 4, elements, NULL);
}

EXPORT CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t elements, CUstream stream)
{
    return fill(to, value, 1, elements, stream);
}

EXPORT CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t elements, CUstream stream)
{
    return fill(to, value, 2, elements, stream);
}

EXPORT CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t elements, CUstream stream)
{
    return fill(to, value, 4, elements, stream);
}
