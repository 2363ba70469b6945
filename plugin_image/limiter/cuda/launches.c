/* Launches, each through the gate. */
#include "driver.h"
#include "gate.h"

struct launch_configuration { /* the first fields of CUlaunchConfig */
    unsigned grid[3], block[3], shared;
    CUstream stream;
};

static CUstream stream_of(const struct launch_configuration *how)
{
    return how == NULL ? NULL : how->stream;
}

#define LAUNCH(name, into, parameters, ...)       \
    EXPORT CUresult name parameters;              \
    EXPORT CUresult name parameters               \
    {                                             \
        CUstream into_ = into;                    \
        struct gate *gate = gate_pass(into_);     \
        CUresult result = CALL(name, __VA_ARGS__);\
        if (gate != NULL)                         \
            gate_passed(gate, into_);             \
        return result;                            \
    }
#define GRID unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared
#define CONFIGURATION const struct launch_configuration *how

LAUNCH(cuLaunchKernel, stream, (CUfunction f, GRID, CUstream stream, void **pointers, void **extra), f, gx, gy, gz, bx,
       by, bz, shared, stream, pointers, extra)
LAUNCH(cuLaunchKernel_ptsz, per_thread(stream), (CUfunction f, GRID, CUstream stream, void **pointers, void **extra), f,
       gx, gy, gz, bx, by, bz, shared, stream, pointers, extra)
LAUNCH(cuLaunchKernelEx, stream_of(how), (CONFIGURATION, CUfunction f, void **pointers, void **extra), how, f, pointers,
       extra)
LAUNCH(cuLaunchKernelEx_ptsz, per_thread(stream_of(how)),
       (CONFIGURATION, CUfunction f, void **pointers, void **extra), how, f, pointers, extra)
LAUNCH(cuLaunchCooperativeKernel, stream, (CUfunction f, GRID, CUstream stream, void **pointers), f, gx, gy, gz, bx, by,
       bz, shared, stream, pointers)
LAUNCH(cuLaunchCooperativeKernel_ptsz, per_thread(stream), (CUfunction f, GRID, CUstream stream, void **pointers), f, gx,
       gy, gz, bx, by, bz, shared, stream, pointers)
LAUNCH(cuLaunch, NULL, (CUfunction f), f)
LAUNCH(cuLaunchGrid, NULL, (CUfunction f, int width, int height), f, width, height)
LAUNCH(cuLaunchGridAsync, stream, (CUfunction f, int width, int height, CUstream stream), f, width, height, stream)
