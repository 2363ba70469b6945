/* Streams and events. What a call computes is there when it returns; waited for is only the GPU
 * time that kernels say they take. All streams of a context have one queue of it. */
#include <stdlib.h>

#include "state.h"

static CUstream streams;
static CUevent events;

/* NULL and the two small numbers are the default streams. */
bool stream_is_known(CUstream wanted)
{
    if ((uintptr_t)wanted <= 2)
        return true;
    CUstream stream = streams;
    while (stream != NULL && stream != wanted)
        stream = stream->next;
    return stream != NULL;
}

CUstream stream_after(CUstream stream)
{
    return stream == NULL ? streams : stream->next;
}

bool event_is_known(CUevent wanted)
{
    CUevent event = events;
    while (event != NULL && event != wanted)
        event = event->next;
    return event != NULL;
}

static void free_stream(CUstream stream)
{
    CUstream *at = &streams;
    while (*at != stream)
        at = &(*at)->next;
    *at = stream->next;
    free(stream);
}

static void free_event(CUevent event)
{
    CUevent *at = &events;
    while (*at != event)
        at = &(*at)->next;
    *at = event->next;
    free(event);
}

void streams_drop(CUcontext context)
{
    for (CUstream stream = streams, next; stream != NULL; stream = next) {
        next = stream->next;
        if (stream->context == context)
            free_stream(stream);
    }
    for (CUevent event = events, next; event != NULL; event = next) {
        next = event->next;
        if (event->context == context)
            free_event(event);
    }
}

EXPORT CUresult cuStreamCreateWithPriority(CUstream *made, unsigned flags, int priority)
{
    WITH_CONTEXT(context);
    if (made == NULL || flags > 1)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    CUstream stream = calloc(1, sizeof *stream);
    if (stream == NULL)
        FINISH(CUDA_ERROR_OUT_OF_MEMORY);
    *stream = (struct cuda_stream){.context = context, .flags = flags, .next = streams,
                                   .priority = priority > 0 ? 0 : priority < -5 ? -5 : priority};
    streams = stream;
    *made = stream;
    FINISH(0);
}

EXPORT CUresult cuStreamCreate(CUstream *made, unsigned flags)
{
    return cuStreamCreateWithPriority(made, flags, 0);
}

static CUresult with_stream(CUstream stream)
{
    WITH_CONTEXT(context);
    (void)context;
    FINISH(stream_is_known(stream) ? 0 : CUDA_ERROR_INVALID_HANDLE);
}

EXPORT CUresult cuStreamSynchronize(CUstream stream)
{
    WITH_CONTEXT(context);
    if (!stream_is_known(stream))
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    if (capture_of(stream) != NULL) {
        captures_spoil(context);
        FINISH(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    work_wait(context, context->work);
    pools_trim(context->device);
    FINISH(0);
}

EXPORT CUresult cuStreamQuery(CUstream stream)
{
    WITH_CONTEXT(context);
    if (!stream_is_known(stream))
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    if (capture_of(stream) != NULL) {
        captures_spoil(context);
        FINISH(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    FINISH(work_done(context, context->work) ? 0 : CUDA_ERROR_NOT_READY);
}

EXPORT CUresult cuStreamDestroy_v2(CUstream stream)
{
    WITH_CONTEXT(context);
    (void)context;
    if ((uintptr_t)stream <= 2 || !stream_is_known(stream))
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    free_stream(stream);
    FINISH(0);
}

EXPORT CUresult cuStreamDestroy(CUstream stream)
{
    return cuStreamDestroy_v2(stream);
}

EXPORT CUresult cuStreamGetFlags(CUstream stream, unsigned *flags)
{
    CUresult result = with_stream(stream);
    if (result == 0 && flags == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (result == 0)
        *flags = (uintptr_t)stream <= 2 ? 0 : stream->flags;
    return result;
}

EXPORT CUresult cuStreamGetPriority(CUstream stream, int *priority)
{
    CUresult result = with_stream(stream);
    if (result == 0 && priority == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (result == 0)
        *priority = (uintptr_t)stream <= 2 ? 0 : stream->priority;
    return result;
}

EXPORT CUresult cuStreamGetCtx(CUstream stream, CUcontext *found)
{
    WITH_CONTEXT(context);
    if (found == NULL)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    if (!stream_is_known(stream))
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    *found = (uintptr_t)stream <= 2 ? context : stream->context;
    FINISH(0);
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

EXPORT CUresult cuEventRecord(CUevent event, CUstream stream)
{
    WITH_CONTEXT(context);
    if (!event_is_known(event) || !stream_is_known(stream))
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    event->recorded = true;
    event->capture = capture_of(stream);
    event->work = context->work;
    event->at = driver_seconds();
    event->pending = event->capture == NULL && context->has_work;
    FINISH(0);
}

EXPORT CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags)
{
    return flags > 1 ? CUDA_ERROR_INVALID_VALUE : cuEventRecord(event, stream);
}

/* An event's time is when it was seen to be done. */
static bool event_done(CUevent event)
{
    if (event->pending && work_done(event->context, event->work)) {
        event->pending = false;
        event->at = driver_seconds();
    }
    return !event->pending;
}

EXPORT CUresult cuEventQuery(CUevent event)
{
    WITH_CONTEXT(context);
    (void)context;
    if (!event_is_known(event))
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    if (event->capture != NULL)
        FINISH(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    FINISH(event_done(event) ? 0 : CUDA_ERROR_NOT_READY);
}

EXPORT CUresult cuEventSynchronize(CUevent event)
{
    WITH_CONTEXT(context);
    (void)context;
    if (!event_is_known(event))
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    if (event->capture != NULL)
        FINISH(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    if (event->pending)
        work_wait(event->context, event->work);
    if (event_is_known(event))
        event_done(event);
    FINISH(0);
}

EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    WITH_CONTEXT(context);
    (void)context;
    (void)flags;
    if (!stream_is_known(stream) || !event_is_known(event))
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    if (event->capture != NULL && (uintptr_t)stream > 2 && stream->capture == NULL) /* it joins */
        stream->capture = event->capture;
    FINISH(0);
}

EXPORT CUresult cuEventElapsedTime(float *milliseconds, CUevent from, CUevent to)
{
    WITH_CONTEXT(context);
    (void)context;
    if (milliseconds == NULL)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    if (!event_is_known(from) || !event_is_known(to) || !from->recorded || !to->recorded ||
        (from->flags & 2) || (to->flags & 2)) /* without timing */
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    if (!event_done(from) || !event_done(to))
        FINISH(CUDA_ERROR_NOT_READY);
    *milliseconds = (float)((to->at - from->at) * 1000.0);
    FINISH(0);
}

EXPORT CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent from, CUevent to)
{
    return cuEventElapsedTime(milliseconds, from, to);
}

EXPORT CUresult cuEventDestroy_v2(CUevent event)
{
    WITH_CONTEXT(context);
    (void)context;
    if (!event_is_known(event))
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    free_event(event);
    FINISH(0);
}

EXPORT CUresult cuEventDestroy(CUevent event)
{
    return cuEventDestroy_v2(event);
}

PER_THREAD(cuStreamSynchronize, _ptsz);
PER_THREAD(cuStreamQuery, _ptsz);
PER_THREAD(cuStreamGetFlags, _ptsz);
PER_THREAD(cuStreamGetPriority, _ptsz);
PER_THREAD(cuStreamGetCtx, _ptsz);
PER_THREAD(cuStreamWaitEvent, _ptsz);
PER_THREAD(cuEventRecord, _ptsz);
PER_THREAD(cuEventRecordWithFlags, _ptsz);
