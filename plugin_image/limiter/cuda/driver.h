/* The driver's functions: those behind ours, and those that are used and not replaced. */
#ifndef DIVVY_CUDA_DRIVER_H
#define DIVVY_CUDA_DRIVER_H

#include "../share/driver.h"
#include "cuda.h"

#define CALL(name, ...) CALL_OR(CUDA_ERROR_NOT_SUPPORTED, name, __VA_ARGS__)

CUresult cuCtxGetCurrent(void **context);
CUresult cuCtxGetDevice(CUdevice *device);
CUresult cuDeviceGetCount(int *count);
CUresult cuDeviceGetUuid(void *uuid, CUdevice device);
CUresult cuDeviceGetUuid_v2(void *uuid, CUdevice device);
CUresult cuDeviceGetMemPool(CUpool *pool, CUdevice device);
CUresult cuMemAdvise(CUdeviceptr pointer, size_t bytes, int advice, CUdevice device);
CUresult cuMemPoolGetAttribute(CUpool pool, int which, void *value);

#endif
