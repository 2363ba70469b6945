/* Capture: streams that write their work into a graph instead of doing it.
 *
 * A capture begins in one stream; another joins when it waits for an event of the capture. Each
 * stream knows the nodes that its next one depends on. What cannot be captured spoils the
 * capture: CUDA's programming guide, "Prohibited and Unhandled Operations".
 */
#include <stdlib.h>
#include <unistd.h>

#include "graphs.h"

enum { MODE_GLOBAL, MODE_THREAD_LOCAL, MODE_RELAXED };
enum { STATUS_NONE, STATUS_ACTIVE, STATUS_INVALIDATED };

static struct capture *captures;
static uint64_t last_id;
static _Thread_local int own_mode;

pid_t own_thread(void)
{
    static _Thread_local pid_t own;
    if (own == 0)
        own = gettid();
    return own;
}

static struct capture *capture_with(uint64_t id)
{
    struct capture *capture = captures;
    while (capture != NULL && capture->id != id)
        capture = capture->next;
    return capture;
}

bool graph_is_captured_to(CUgraph graph)
{
    struct capture *capture = captures;
    while (capture != NULL && capture->graph != graph)
        capture = capture->next;
    return capture != NULL;
}

static void invalidate(struct capture *capture)
{
    if (capture != NULL)
        capture->invalid = true;
}

void capture_invalidate(uint64_t id)
{
    invalidate(capture_with(id));
}

CUresult capture_add(CUstream stream, const struct operation *operation)
{
    CUgraphNode node;
    if (stream->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    CUresult result = graph_add(stream->capture->graph, operation, stream->tips.nodes, stream->tips.count, &node);
    if (result != 0) {
        invalidate(stream->capture);
        return result;
    }
    node_set_clear(&stream->tips);
    return node_set_add(&stream->tips, &node, 1) ? 0 : CUDA_ERROR_OUT_OF_MEMORY;
}

static bool blocks_legacy(CUstream stream, CUcontext context)
{
    return stream->context == context && stream->capture != NULL && stream_is_blocking(stream);
}

static bool legacy_is_unusable(CUcontext context)
{
    CUstream stream = stream_after(NULL);
    while (stream != NULL && !blocks_legacy(stream, context))
        stream = stream_after(stream);
    return stream != NULL;
}

/* The default stream would wait for the capturing one: "any attempted use of the legacy stream
 * is invalid", unless that one does not block. */
CUresult capture_refuses_legacy(CUcontext context)
{
    if (captures == NULL || !legacy_is_unusable(context))
        return 0;
    for (CUstream stream = stream_after(NULL); stream != NULL; stream = stream_after(stream))
        if (blocks_legacy(stream, context))
            invalidate(stream->capture);
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

/* Calls that a capture does not see, such as allocations: cuThreadExchangeStreamCaptureMode tells
 * which captures they spoil. */
CUresult capture_refuses_unsafe(void)
{
    CUresult result = 0;
    for (struct capture *capture = captures; capture != NULL; capture = capture->next) {
        bool conflicts = capture->thread == own_thread()
                             ? own_mode != MODE_RELAXED && capture->mode != MODE_RELAXED
                             : own_mode == MODE_GLOBAL && capture->mode == MODE_GLOBAL;
        if (!conflicts)
            continue;
        invalidate(capture);
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return result;
}

CUresult capture_refuses(CUstream stream)
{
    if (stream->capture != NULL) {
        invalidate(stream->capture);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    CUresult result = stream->is_legacy ? capture_refuses_legacy(stream->context) : 0;
    return result != 0 ? result : capture_refuses_unsafe();
}

/* "It is also invalid to query or synchronize a broader handle which encompasses an active stream
 * capture, such as a device or context handle", in every mode. */
CUresult capture_refuses_context(CUcontext context)
{
    CUresult result = 0;
    for (CUstream stream = stream_after(NULL); stream != NULL && captures != NULL; stream = stream_after(stream))
        if (stream->context == context && stream->capture != NULL) {
            invalidate(stream->capture);
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    return result;
}

CUresult capture_wait_event(CUstream stream, CUevent event)
{
    struct capture *capture = capture_with(event->captured);
    if (event->captured == 0 && event->fence == NULL) /* never recorded: nothing to wait for */
        return 0;
    if (event->captured == 0) {
        invalidate(stream->capture);
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (capture == NULL)
        return CUDA_ERROR_CAPTURED_EVENT;
    if (stream->is_legacy) {
        invalidate(capture);
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    if (stream->capture != NULL && stream->capture != capture) {
        invalidate(capture);
        invalidate(stream->capture);
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    if (capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    stream->capture = capture;
    return node_set_add(&stream->tips, event->tips.nodes, event->tips.count) ? 0 : CUDA_ERROR_OUT_OF_MEMORY;
}

/* All of its streams work again. The graph is the caller's unless the capture failed and made it. */
static CUgraph finish(struct capture *capture, bool failed)
{
    CUgraph graph = capture->graph;
    for (CUstream stream = stream_after(NULL); stream != NULL; stream = stream_after(stream))
        if (stream->capture == capture) {
            stream->capture = NULL;
            node_set_clear(&stream->tips);
        }
    struct capture **at = &captures;
    while (*at != capture)
        at = &(*at)->next;
    *at = capture->next;
    node_set_clear(&capture->left);
    if (failed && capture->owns_graph)
        graph_end(graph);
    free(capture);
    return failed ? NULL : graph;
}

/* A stream that ends takes the capture that it began along. One that joined may end, as those of
 * cuda.core's graph builder do; its work must still have been joined. */
void capture_leave(CUstream stream)
{
    struct capture *capture = stream->capture;
    if (capture == NULL)
        return;
    if (capture->origin == stream) {
        finish(capture, true);
        return;
    }
    if (!node_set_add(&capture->left, stream->tips.nodes, stream->tips.count))
        invalidate(capture);
    stream->capture = NULL;
}

static CUresult begin(CUstream handle, CUgraph graph, const CUgraphNode *after, size_t count, int mode)
{
    WITH_STREAM(context, stream, handle);
    if (mode < MODE_GLOBAL || mode > MODE_RELAXED || (graph != NULL && !graph_has_nodes(graph, after, count)))
        FINISH(CUDA_ERROR_INVALID_VALUE);
    if (stream->is_legacy)
        FINISH(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    if (stream->capture != NULL)
        FINISH(CUDA_ERROR_ILLEGAL_STATE);
    struct capture *capture = calloc(1, sizeof *capture);
    if (capture == NULL)
        FINISH(CUDA_ERROR_OUT_OF_MEMORY);
    *capture = (struct capture){.id = ++last_id, .graph = graph != NULL ? graph : graph_new(),
                                .owns_graph = graph == NULL, .origin = stream, .thread = own_thread(), .mode = mode,
                                .next = captures};
    if (capture->graph == NULL || !node_set_add(&stream->tips, after, count)) {
        free(capture);
        FINISH(CUDA_ERROR_OUT_OF_MEMORY);
    }
    captures = capture;
    stream->capture = capture;
    FINISH(0);
}

EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, int mode)
{
    return begin(stream, NULL, NULL, 0, mode);
}

EXPORT CUresult cuStreamBeginCapture(CUstream stream)
{
    return begin(stream, NULL, NULL, 0, MODE_GLOBAL);
}

EXPORT CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *after,
                                            const void *edges, size_t count, int mode)
{
    (void)edges; /* of what kind the dependencies are */
    return graph == NULL ? CUDA_ERROR_INVALID_VALUE : begin(stream, graph, after, count, mode);
}

/* Work of a joined stream that the stream of the beginning does not wait for. */
static bool has_unjoined(const struct capture *capture)
{
    for (CUstream stream = stream_after(NULL); stream != NULL; stream = stream_after(stream))
        if (stream->capture == capture && stream != capture->origin &&
            !graph_leads_to(&stream->tips, &capture->origin->tips))
            return true;
    return !graph_leads_to(&capture->left, &capture->origin->tips);
}

EXPORT CUresult cuStreamEndCapture(CUstream handle, CUgraph *made)
{
    WITH_STREAM(context, stream, handle);
    if (made == NULL)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    struct capture *capture = stream->capture;
    if (capture == NULL)
        FINISH(CUDA_ERROR_ILLEGAL_STATE);
    if (capture->mode != MODE_RELAXED && capture->thread != own_thread())
        FINISH(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    if (capture->origin != stream) {
        invalidate(capture);
        FINISH(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    }
    CUresult result = capture->invalid         ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                      : has_unjoined(capture) ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED
                                              : 0;
    *made = finish(capture, result != 0);
    FINISH(result);
}

static int status_of(CUstream stream)
{
    return stream->capture == NULL ? STATUS_NONE : stream->capture->invalid ? STATUS_INVALIDATED : STATUS_ACTIVE;
}

EXPORT CUresult cuStreamGetCaptureInfo_v2(CUstream handle, int *status, uint64_t *id, CUgraph *graph,
                                          const CUgraphNode **after, size_t *count)
{
    WITH_STREAM(context, stream, handle);
    if (status == NULL)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    if (stream->is_legacy && legacy_is_unusable(context)) /* the capture is not spoilt by this question */
        FINISH(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    *status = status_of(stream);
    if (*status != STATUS_ACTIVE)
        FINISH(0);
    if (id != NULL)
        *id = stream->capture->id;
    if (graph != NULL)
        *graph = stream->capture->graph;
    if (after != NULL)
        *after = stream->tips.nodes;
    if (count != NULL)
        *count = stream->tips.count;
    FINISH(0);
}

EXPORT CUresult cuStreamGetCaptureInfo(CUstream stream, int *status, uint64_t *id)
{
    return cuStreamGetCaptureInfo_v2(stream, status, id, NULL, NULL, NULL);
}

/* Edges are all of the one kind that has no data. */
EXPORT CUresult cuStreamGetCaptureInfo_v3(CUstream stream, int *status, uint64_t *id, CUgraph *graph,
                                          const CUgraphNode **after, const void **edges, size_t *count)
{
    if (edges != NULL)
        *edges = NULL;
    return cuStreamGetCaptureInfo_v2(stream, status, id, graph, after, count);
}

EXPORT CUresult cuStreamIsCapturing(CUstream stream, int *status)
{
    return cuStreamGetCaptureInfo_v2(stream, status, NULL, NULL, NULL, NULL);
}

#define SET_DEPENDENCIES 1u

EXPORT CUresult cuStreamUpdateCaptureDependencies(CUstream handle, const CUgraphNode *after, size_t count,
                                                  unsigned flags)
{
    WITH_STREAM(context, stream, handle);
    if (status_of(stream) != STATUS_ACTIVE)
        FINISH(CUDA_ERROR_ILLEGAL_STATE);
    if (flags > SET_DEPENDENCIES || !graph_has_nodes(stream->capture->graph, after, count))
        FINISH(CUDA_ERROR_INVALID_VALUE);
    if (flags == SET_DEPENDENCIES)
        node_set_clear(&stream->tips);
    FINISH(node_set_add(&stream->tips, after, count) ? 0 : CUDA_ERROR_OUT_OF_MEMORY);
}

EXPORT CUresult cuStreamUpdateCaptureDependencies_v2(CUstream stream, const CUgraphNode *after, const void *edges,
                                                     size_t count, unsigned flags)
{
    (void)edges;
    return cuStreamUpdateCaptureDependencies(stream, after, count, flags);
}

EXPORT CUresult cuThreadExchangeStreamCaptureMode(int *mode)
{
    if (mode == NULL || *mode < MODE_GLOBAL || *mode > MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    int before = own_mode;
    own_mode = *mode;
    *mode = before;
    return 0;
}

PER_THREAD(cuStreamBeginCapture, _ptsz, (CUstream stream), (stream))
PER_THREAD(cuStreamBeginCapture_v2, _ptsz, (CUstream stream, int mode), (stream, mode))
PER_THREAD(cuStreamBeginCaptureToGraph, _ptsz,
           (CUstream stream, CUgraph graph, const CUgraphNode *after, const void *edges, size_t count, int mode),
           (stream, graph, after, edges, count, mode))
PER_THREAD(cuStreamEndCapture, _ptsz, (CUstream stream, CUgraph *graph), (stream, graph))
PER_THREAD(cuStreamIsCapturing, _ptsz, (CUstream stream, int *status), (stream, status))
PER_THREAD(cuStreamGetCaptureInfo, _ptsz, (CUstream stream, int *status, uint64_t *id), (stream, status, id))
PER_THREAD(cuStreamGetCaptureInfo_v2, _ptsz,
           (CUstream stream, int *status, uint64_t *id, CUgraph *graph, const CUgraphNode **after, size_t *count),
           (stream, status, id, graph, after, count))
PER_THREAD(cuStreamGetCaptureInfo_v3, _ptsz,
           (CUstream stream, int *status, uint64_t *id, CUgraph *graph, const CUgraphNode **after, const void **edges,
            size_t *count),
           (stream, status, id, graph, after, edges, count))
PER_THREAD(cuStreamUpdateCaptureDependencies, _ptsz,
           (CUstream stream, const CUgraphNode *after, size_t count, unsigned flags), (stream, after, count, flags))
PER_THREAD(cuStreamUpdateCaptureDependencies_v2, _ptsz,
           (CUstream stream, const CUgraphNode *after, const void *edges, size_t count, unsigned flags),
           (stream, after, edges, count, flags))
