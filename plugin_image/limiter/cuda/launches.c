/* Launches, each through the gate. */
#include "driver.h"
#include "gate.h"

#define LAUNCH(name, parameters, ...)             \
    EXPORT CUresult name parameters;              \
    EXPORT CUresult name parameters               \
    {                                             \
        gate_pass();                              \
        return CALL(name, __VA_ARGS__);           \
    }
#define GRID unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared

LAUNCH(cuLaunchKernel, (CUfunction f, GRID, CUstream stream, void **pointers, void **extra), f, gx, gy, gz, bx, by,
       bz, shared, stream, pointers, extra)
LAUNCH(cuLaunchKernel_ptsz, (CUfunction f, GRID, CUstream stream, void **pointers, void **extra), f, gx, gy, gz, bx,
       by, bz, shared, stream, pointers, extra)
LAUNCH(cuLaunchKernelEx, (const void *how, CUfunction f, void **pointers, void **extra), how, f, pointers, extra)
LAUNCH(cuLaunchKernelEx_ptsz, (const void *how, CUfunction f, void **pointers, void **extra), how, f, pointers, extra)
LAUNCH(cuLaunchCooperativeKernel, (CUfunction f, GRID, CUstream stream, void **pointers), f, gx, gy, gz, bx, by, bz,
       shared, stream, pointers)
LAUNCH(cuLaunchCooperativeKernel_ptsz, (CUfunction f, GRID, CUstream stream, void **pointers), f, gx, gy, gz, bx, by,
       bz, shared, stream, pointers)
LAUNCH(cuLaunch, (CUfunction f), f)
LAUNCH(cuLaunchGrid, (CUfunction f, int width, int height), f, width, height)
LAUNCH(cuLaunchGridAsync, (CUfunction f, int width, int height, CUstream stream), f, width, height, stream)
LAUNCH(cuGraphLaunch, (CUgraphExec graph, CUstream stream), graph, stream)
LAUNCH(cuGraphLaunch_ptsz, (CUgraphExec graph, CUstream stream), graph, stream)
