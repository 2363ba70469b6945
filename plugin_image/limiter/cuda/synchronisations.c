/* Calls that wait for the GPU: the time of a launch ends there, and pools may have given memory back. */
#include "driver.h"
#include "gate.h"
#include "memory.h"

#define WAIT(name, all, parameters, ...)                     \
    EXPORT CUresult name parameters;                         \
    EXPORT CUresult name parameters                          \
    {                                                        \
        struct gate *gate = gate_synchronises();             \
        CUresult result = CALL(name, __VA_ARGS__);           \
        gate_synchronised(gate, all);                        \
        pools_refresh();                                     \
        return result;                                       \
    }

WAIT(cuCtxSynchronize, true, (void), )
WAIT(cuCtxSynchronize_v2, true, (void *context), context)
WAIT(cuStreamSynchronize, false, (CUstream stream), stream)
WAIT(cuStreamSynchronize_ptsz, false, (CUstream stream), stream)
WAIT(cuEventSynchronize, false, (CUevent event), event)
WAIT(cuMemcpyDtoH_v2, false, (void *to, CUdeviceptr from, size_t bytes), to, from, bytes)
WAIT(cuMemcpyDtoH_v2_ptds, false, (void *to, CUdeviceptr from, size_t bytes), to, from, bytes)
WAIT(cuMemcpy, false, (CUdeviceptr to, CUdeviceptr from, size_t bytes), to, from, bytes)
WAIT(cuMemcpy_ptds, false, (CUdeviceptr to, CUdeviceptr from, size_t bytes), to, from, bytes)
