/* Capture: a stream that writes its work into a graph instead of doing it.
 *
 * Another stream joins when it waits for an event of the capture; all of them write into the one
 * graph, in the order of the calls.
 */
#include "graphs.h"

/* The default streams are not captured. */
static bool can_capture(CUstream stream)
{
    return (uintptr_t)stream > 2;
}

CUgraph capture_of(CUstream stream)
{
    return can_capture(stream) ? stream->capture : NULL;
}

void captures_spoil(CUcontext context)
{
    for (CUstream stream = stream_after(NULL); stream != NULL; stream = stream_after(stream))
        if (stream->context == context && stream->capture != NULL)
            stream->capture_spoilt = true;
}

static CUresult add(CUgraph graph, const struct cuda_node *node)
{
    return graph_add(graph, node, NULL);
}

CUresult capture_launch(CUgraph graph, const struct launch *launch)
{
    struct cuda_node node = {.kind = NODE_KERNEL};
    node.launch = *launch;
    return add(graph, &node);
}

CUresult capture_copy(CUgraph graph, const struct box_copy *copy)
{
    struct cuda_node node = {.kind = NODE_COPY};
    node.copy = *copy;
    return add(graph, &node);
}

CUresult capture_fill(CUgraph graph, CUdeviceptr to, uint32_t value, unsigned width, size_t elements)
{
    return add(graph, &(struct cuda_node){.kind = NODE_FILL, .fill = {to, value, width, 0, elements, 1}});
}

CUresult capture_call(CUgraph graph, void (*function)(void *), void *argument)
{
    return add(graph, &(struct cuda_node){.kind = NODE_CALL, .call = {function, argument}});
}

EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, int mode)
{
    WITH_CONTEXT(context);
    (void)context;
    if (!stream_is_known(stream))
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    if (mode < 0 || mode > 2)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    if (!can_capture(stream))
        FINISH(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    if (stream->capture != NULL)
        FINISH(CUDA_ERROR_ILLEGAL_STATE);
    stream->capture = graph_new();
    stream->capture_begins = true;
    stream->capture_spoilt = false;
    FINISH(stream->capture == NULL ? CUDA_ERROR_OUT_OF_MEMORY : 0);
}

EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph *made)
{
    WITH_CONTEXT(context);
    (void)context;
    if (!stream_is_known(stream))
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    CUgraph graph = capture_of(stream);
    if (made == NULL || graph == NULL)
        FINISH(made == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_ILLEGAL_STATE);
    if (!stream->capture_begins)
        FINISH(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    bool spoilt = false;
    for (CUstream each = stream_after(NULL); each != NULL; each = stream_after(each))
        if (each->capture == graph) {
            spoilt = spoilt || each->capture_spoilt;
            each->capture = NULL;
            each->capture_begins = false;
        }
    *made = spoilt ? NULL : graph;
    if (spoilt)
        graph_end(graph);
    FINISH(spoilt ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : 0);
}

EXPORT CUresult cuStreamIsCapturing(CUstream stream, int *status)
{
    WITH_CONTEXT(context);
    (void)context;
    if (status == NULL)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    if (!stream_is_known(stream))
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    *status = capture_of(stream) == NULL ? 0 : stream->capture_spoilt ? 2 : 1;
    FINISH(0);
}

/* What is unsafe during a capture of another thread is refused nowhere here. */
EXPORT CUresult cuThreadExchangeStreamCaptureMode(int *mode)
{
    static _Thread_local int own;
    if (mode == NULL || *mode < 0 || *mode > 2)
        return CUDA_ERROR_INVALID_VALUE;
    int before = own;
    own = *mode;
    *mode = before;
    return 0;
}

PER_THREAD(cuStreamBeginCapture_v2, _ptsz);
PER_THREAD(cuStreamEndCapture, _ptsz);
PER_THREAD(cuStreamIsCapturing, _ptsz);
