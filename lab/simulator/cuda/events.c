/* Events. Each record makes a fence: who waits for the event waits for the fence of that time. */
#include <stdlib.h>

#include "streams.h"

#define DISABLE_TIMING 2u
#define EXTERNAL 1u

static CUevent events;

struct fence *fence_new(void)
{
    struct fence *fence = calloc(1, sizeof *fence);
    if (fence != NULL)
        fence->users = 1;
    return fence;
}

struct fence *fence_keep(struct fence *fence)
{
    fence->users++;
    return fence;
}

void fence_leave(struct fence *fence)
{
    if (fence != NULL && --fence->users == 0)
        free(fence);
}

/* Its time is when it was seen to be done. */
bool fence_done(struct fence *fence)
{
    if (fence->reached && fence->pending &&
        (!context_is_known(fence->context) || work_done(fence->context, fence->work))) {
        fence->pending = false;
        fence->at = driver_seconds();
    }
    return fence->reached && !fence->pending;
}

static KNOWS(is_known, CUevent, events)

static void forget(CUevent event)
{
    fence_leave(event->fence);
    event->fence = NULL;
    event->captured = 0;
    node_set_clear(&event->tips);
}

static void end(CUevent event)
{
    UNLINK(events, event);
    forget(event);
    free(event);
}

void events_drop(CUcontext context)
{
    for (CUevent event = events, next; event != NULL; event = next) {
        next = event->next;
        if (event->context == context)
            end(event);
    }
}

EXPORT CUresult cuEventCreate(CUevent *made, unsigned flags)
{
    WITH_CONTEXT(context);
    if (made == NULL || flags > 7)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    CUevent event = calloc(1, sizeof *event);
    if (event == NULL)
        FINISH(CUDA_ERROR_OUT_OF_MEMORY);
    *event = (struct cuda_event){.context = context, .flags = flags, .next = events};
    events = event;
    *made = event;
    FINISH(0);
}

static CUresult record_in_capture(CUevent event, CUstream stream)
{
    if (stream->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    forget(event);
    event->captured = stream->capture->id;
    return node_set_add(&event->tips, stream->tips.nodes, stream->tips.count) ? 0 : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult record(CUevent event, CUstream stream)
{
    if (stream->capture != NULL)
        return record_in_capture(event, stream);
    struct fence *fence = fence_new();
    if (fence == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const struct operation operation = {.kind = OPERATION_RECORD, .fence = fence};
    CUresult result = stream_do(stream, &operation);
    if (result == 0) {
        forget(event);
        event->fence = fence_keep(fence);
    }
    fence_leave(fence);
    return result;
}

EXPORT CUresult cuEventRecordWithFlags(CUevent event, CUstream handle, unsigned flags)
{
    WITH_CONTEXT(context);
    CUstream stream = stream_of(context, handle);
    if (!is_known(event) || stream == NULL)
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    if (flags > EXTERNAL)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    if (flags == EXTERNAL && stream->capture != NULL)
        FINISH(CUDA_ERROR_NOT_SUPPORTED);
    FINISH(record(event, stream));
}

EXPORT CUresult cuEventRecord(CUevent event, CUstream stream)
{
    return cuEventRecordWithFlags(event, stream, 0);
}

/* An event that was last recorded in a capture has no state that could be asked for; of others,
 * the question is unsafe during captures. */
static CUresult check(CUevent event)
{
    if (!is_known(event))
        return CUDA_ERROR_INVALID_HANDLE;
    if (event->captured == 0)
        return capture_refuses_unsafe();
    capture_invalidate(event->captured);
    return CUDA_ERROR_CAPTURED_EVENT;
}

EXPORT CUresult cuEventQuery(CUevent event)
{
    WITH_CONTEXT(context);
    CUresult result = check(event);
    FINISH(result != 0 ? result : event->fence == NULL || fence_done(event->fence) ? 0 : CUDA_ERROR_NOT_READY);
}

EXPORT CUresult cuEventSynchronize(CUevent event)
{
    WITH_CONTEXT(context);
    CUresult result = check(event);
    if (result != 0 || event->fence == NULL)
        FINISH(result);
    struct fence *fence = fence_keep(event->fence);
    while (!fence->reached && context_is_known(context) && context->error == 0)
        driver_pause(0);
    if (fence->reached && fence->pending && context_is_known(fence->context))
        work_wait(fence->context, fence->work);
    fence_done(fence);
    fence_leave(fence);
    FINISH(context_is_known(context) ? context->error : CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

EXPORT CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags)
{
    WITH_CONTEXT(context);
    CUstream stream = stream_of(context, handle);
    if (stream == NULL || !is_known(event))
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    if (flags > EXTERNAL)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    if (flags == EXTERNAL && stream->capture != NULL)
        FINISH(CUDA_ERROR_NOT_SUPPORTED);
    if (stream->capture != NULL || event->captured != 0)
        FINISH(capture_wait_event(stream, event));
    if (event->fence == NULL)
        FINISH(0);
    const struct operation operation = {.kind = OPERATION_WAIT, .fence = event->fence};
    FINISH(stream_do(stream, &operation));
}

EXPORT CUresult cuEventElapsedTime(float *milliseconds, CUevent from, CUevent to)
{
    WITH_CONTEXT(context);
    if (milliseconds == NULL)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    if (!is_known(from) || !is_known(to) || from->fence == NULL || to->fence == NULL ||
        ((from->flags | to->flags) & DISABLE_TIMING) != 0)
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    if (!fence_done(from->fence) || !fence_done(to->fence))
        FINISH(CUDA_ERROR_NOT_READY);
    *milliseconds = (float)((to->fence->at - from->fence->at) * 1000.0);
    FINISH(0);
}

ALSO(cuEventElapsedTime_v2, cuEventElapsedTime,
     (float *milliseconds, CUevent from, CUevent to), (milliseconds, from, to))

EXPORT CUresult cuEventDestroy_v2(CUevent event)
{
    WITH_CONTEXT(context);
    if (!is_known(event))
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    end(event);
    FINISH(0);
}

ALSO(cuEventDestroy, cuEventDestroy_v2, (CUevent event), (event))

PER_THREAD(cuStreamWaitEvent, _ptsz, (CUstream stream, CUevent event, unsigned flags), (stream, event, flags))
PER_THREAD(cuEventRecord, _ptsz, (CUevent event, CUstream stream), (event, stream))
PER_THREAD(cuEventRecordWithFlags, _ptsz, (CUevent event, CUstream stream, unsigned flags), (event, stream, flags))
