/* Captures of streams: what is launched into one does not run, and nothing may be waited for. */
#include "driver.h"
#include "gate.h"

#define CAPTURE_INVALIDATED 901

EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, int mode);
EXPORT CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, int mode);
EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph);
EXPORT CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph);

/* Counted before the driver begins: no other thread may synchronise in between. */
static CUresult begun(CUresult result)
{
    if (result != 0)
        gate_captures(-1);
    return result;
}

static CUresult ended(CUresult result)
{
    if (result == 0 || result == CAPTURE_INVALIDATED)
        gate_captures(-1);
    return result;
}

EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, int mode)
{
    gate_captures(1);
    return begun(CALL(cuStreamBeginCapture_v2, stream, mode));
}

EXPORT CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, int mode)
{
    gate_captures(1);
    return begun(CALL(cuStreamBeginCapture_v2_ptsz, stream, mode));
}

EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    return ended(CALL(cuStreamEndCapture, stream, graph));
}

EXPORT CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph)
{
    return ended(CALL(cuStreamEndCapture_ptsz, stream, graph));
}
