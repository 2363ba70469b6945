/* Copies and fills of plain ranges. */
#include <string.h>

#include "streams.h"

static void *at(CUdeviceptr pointer)
{
    return (void *)(uintptr_t)pointer;
}

static CUresult copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, bool to_device, bool from_device,
                     CUstream handle, bool waits)
{
    WITH_STREAM(context, stream, handle);
    if (bytes == 0)
        FINISH(0);
    if ((to_device && !memory_holds(to, bytes)) || (from_device && !memory_holds(from, bytes)) ||
        to == 0 || from == 0)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    struct operation operation;
    operation.kind = OPERATION_COPY;
    operation.copy = (struct box_copy){.from = {.place = PLACE_UNIFIED, .device = from},
                                       .to = {.place = PLACE_UNIFIED, .device = to},
                                       .width = bytes, .height = 1, .depth = 1};
    FINISH(waits ? stream_do_and_wait(stream, &operation) : stream_do(stream, &operation));
}

EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
    return copy(to, (CUdeviceptr)(uintptr_t)from, bytes, true, false, NULL, true);
}

EXPORT CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
    return copy((CUdeviceptr)(uintptr_t)to, from, bytes, false, true, NULL, true);
}

EXPORT CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return copy(to, from, bytes, true, true, NULL, true);
}

EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    return copy(to, (CUdeviceptr)(uintptr_t)from, bytes, true, false, stream, false);
}

EXPORT CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return copy((CUdeviceptr)(uintptr_t)to, from, bytes, false, true, stream, false);
}

EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return copy(to, from, bytes, true, true, stream, false);
}

/* Host and device share their addresses; what the driver does not know is the host's. */
static CUresult copy_any(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream, bool waits)
{
    driver_lock();
    bool to_device = memory_at(to) != NULL, from_device = memory_at(from) != NULL;
    driver_unlock();
    return copy(to, from, bytes, to_device, from_device, stream, waits);
}

EXPORT CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return copy_any(to, from, bytes, stream, false);
}

EXPORT CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return copy_any(to, from, bytes, NULL, true);
}

CUresult fill_check(CUdeviceptr to, unsigned width, size_t elements)
{
    return elements > SIZE_MAX / width || to % width != 0 || !memory_holds(to, elements * width)
               ? CUDA_ERROR_INVALID_VALUE
               : 0;
}

void fill_run(CUdeviceptr to, uint32_t value, unsigned width, size_t elements)
{
    if (width == 1)
        memset(at(to), (int)value, elements);
    else
        for (size_t i = 0; i < elements; i++)
            memcpy((char *)at(to) + i * width, &value, width);
}

static CUresult fill_rows(CUdeviceptr to, size_t pitch, uint32_t value, unsigned width, size_t elements, size_t rows,
                          CUstream handle)
{
    WITH_STREAM(context, stream, handle);
    if (elements == 0 || rows == 0)
        FINISH(0);
    if (rows > 1 && pitch < elements * width)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    struct operation operation;
    operation.kind = OPERATION_FILL;
    operation.fill.to = to;
    operation.fill.value = value;
    operation.fill.width = width;
    operation.fill.pitch = pitch;
    operation.fill.columns = elements;
    operation.fill.rows = rows;
    FINISH(stream_do(stream, &operation));
}

static CUresult fill(CUdeviceptr to, uint32_t value, unsigned width, size_t elements, CUstream stream)
{
    return fill_rows(to, 0, value, width, elements, 1, stream);
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

#define FILL_ROWS(bits, type)                                                                                         \
    EXPORT CUresult cuMemsetD2D##bits##Async(CUdeviceptr to, size_t pitch, type value, size_t width, size_t rows,      \
                                             CUstream stream)                                                          \
    {                                                                                                                  \
        return fill_rows(to, pitch, value, bits / 8, width, rows, stream);                                             \
    }                                                                                                                  \
    EXPORT CUresult cuMemsetD2D##bits##_v2(CUdeviceptr to, size_t pitch, type value, size_t width, size_t rows)        \
    {                                                                                                                  \
        return fill_rows(to, pitch, value, bits / 8, width, rows, NULL);                                               \
    }                                                                                                                  \
    PER_THREAD(cuMemsetD2D##bits##Async, _ptsz,                                                                        \
               (CUdeviceptr to, size_t pitch, type value, size_t width, size_t rows, CUstream stream),                 \
               (to, pitch, value, width, rows, stream))                                                                \
    PER_THREAD(cuMemsetD2D##bits##_v2, _ptds, (CUdeviceptr to, size_t pitch, type value, size_t width, size_t rows),   \
               (to, pitch, value, width, rows))

FILL_ROWS(8, unsigned char)
FILL_ROWS(16, unsigned short)
FILL_ROWS(32, unsigned)

PER_THREAD(cuMemcpyHtoD_v2, _ptds, (CUdeviceptr to, const void *from, size_t bytes), (to, from, bytes))
PER_THREAD(cuMemcpyDtoH_v2, _ptds, (void *to, CUdeviceptr from, size_t bytes), (to, from, bytes))
PER_THREAD(cuMemcpyDtoD_v2, _ptds, (CUdeviceptr to, CUdeviceptr from, size_t bytes), (to, from, bytes))
PER_THREAD(cuMemcpy, _ptds, (CUdeviceptr to, CUdeviceptr from, size_t bytes), (to, from, bytes))
PER_THREAD(cuMemsetD8_v2, _ptds, (CUdeviceptr to, unsigned char value, size_t elements), (to, value, elements))
PER_THREAD(cuMemsetD16_v2, _ptds, (CUdeviceptr to, unsigned short value, size_t elements), (to, value, elements))
PER_THREAD(cuMemsetD32_v2, _ptds, (CUdeviceptr to, unsigned value, size_t elements), (to, value, elements))
PER_THREAD(cuMemcpyHtoDAsync_v2, _ptsz, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream),
           (to, from, bytes, stream))
PER_THREAD(cuMemcpyDtoHAsync_v2, _ptsz, (void *to, CUdeviceptr from, size_t bytes, CUstream stream),
           (to, from, bytes, stream))
PER_THREAD(cuMemcpyDtoDAsync_v2, _ptsz, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
           (to, from, bytes, stream))
PER_THREAD(cuMemcpyAsync, _ptsz, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
           (to, from, bytes, stream))
PER_THREAD(cuMemsetD8Async, _ptsz, (CUdeviceptr to, unsigned char value, size_t elements, CUstream stream),
           (to, value, elements, stream))
PER_THREAD(cuMemsetD16Async, _ptsz, (CUdeviceptr to, unsigned short value, size_t elements, CUstream stream),
           (to, value, elements, stream))
PER_THREAD(cuMemsetD32Async, _ptsz, (CUdeviceptr to, unsigned value, size_t elements, CUstream stream),
           (to, value, elements, stream))
