/* Streams: those that programs create, and the default ones. */
#include <stdlib.h>

#include "streams.h"

static CUstream streams;
static _Thread_local bool default_is_own;

bool default_stream_is_own(bool own)
{
    bool before = default_is_own;
    default_is_own = own;
    return before;
}

CUstream stream_after(CUstream stream)
{
    return stream == NULL ? streams : stream->next;
}

static CUstream make(CUcontext context, struct cuda_stream value)
{
    CUstream stream = malloc(sizeof *stream);
    if (stream == NULL)
        return NULL;
    *stream = value;
    stream->context = context;
    stream->next = streams;
    streams = stream;
    return stream;
}

static CUstream legacy(CUcontext context)
{
    if (context->legacy == NULL)
        context->legacy = make(context, (struct cuda_stream){.is_legacy = true});
    return context->legacy;
}

static CUstream of_thread(CUcontext context)
{
    CUstream stream = streams;
    while (stream != NULL && (stream->thread != own_thread() || stream->context != context))
        stream = stream->next;
    return stream != NULL ? stream : make(context, (struct cuda_stream){.thread = own_thread()});
}

CUstream stream_of(CUcontext context, CUstream handle)
{
    if (handle == STREAM_PER_THREAD || (handle == NULL && default_is_own))
        return of_thread(context);
    if (handle == STREAM_LEGACY || handle == NULL)
        return legacy(context);
    CUstream stream = streams;
    while (stream != NULL && stream != handle)
        stream = stream->next;
    return stream == NULL || stream->destroyed ? NULL : stream;
}

bool stream_is_blocking(CUstream stream)
{
    return !stream->is_legacy && (stream->flags & NON_BLOCKING) == 0;
}

uint64_t stream_work(CUstream stream)
{
    uint64_t work = stream->work;
    if (!stream->is_legacy && stream_is_blocking(stream) && stream->context->legacy != NULL &&
        stream->context->legacy->work > work)
        work = stream->context->legacy->work;
    for (CUstream other = stream->is_legacy ? streams : NULL; other != NULL; other = other->next)
        if (other->context == stream->context && stream_is_blocking(other) && other->work > work)
            work = other->work;
    return work;
}

void stream_free(CUstream stream)
{
    UNLINK(streams, stream);
    if (stream->context->legacy == stream)
        stream->context->legacy = NULL;
    node_set_clear(&stream->tips);
    free(stream);
}

/* While one is waited for, others may come and go: begin again after each. */
void streams_drop(CUcontext context)
{
    CUstream stream = streams;
    while (stream != NULL) {
        if (stream->context != context) {
            stream = stream->next;
            continue;
        }
        capture_leave(stream);
        queue_drop(stream);
        stream_free(stream);
        stream = streams;
    }
}

EXPORT CUresult cuStreamCreateWithPriority(CUstream *made, unsigned flags, int priority)
{
    WITH_CONTEXT(context);
    if (made == NULL || flags > NON_BLOCKING)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    int lowered = priority > 0 ? 0 : priority < -5 ? -5 : priority;
    *made = make(context, (struct cuda_stream){.flags = flags, .priority = lowered});
    FINISH(*made == NULL ? CUDA_ERROR_OUT_OF_MEMORY : 0);
}

EXPORT CUresult cuStreamCreate(CUstream *made, unsigned flags)
{
    return cuStreamCreateWithPriority(made, flags, 0);
}

EXPORT CUresult cuStreamSynchronize(CUstream handle)
{
    WITH_STREAM(context, stream, handle);
    CUresult result = capture_refuses(stream);
    if (result == 0)
        result = stream_wait(stream);
    if (result == 0)
        pools_trim(context->device);
    FINISH(result);
}

EXPORT CUresult cuStreamQuery(CUstream handle)
{
    WITH_STREAM(context, stream, handle);
    CUresult result = capture_refuses(stream);
    FINISH(result != 0 ? result : stream_idle(stream) ? 0 : CUDA_ERROR_NOT_READY);
}

/* The function returns at once; the stream ends when its work is done. */
EXPORT CUresult cuStreamDestroy_v2(CUstream handle)
{
    WITH_CONTEXT(context);
    CUstream stream = (uintptr_t)handle <= 2 ? NULL : stream_of(context, handle);
    if (stream == NULL)
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    capture_leave(stream);
    if (stream->first != NULL)
        stream->destroyed = true;
    else
        stream_free(stream);
    FINISH(0);
}

ALSO(cuStreamDestroy, cuStreamDestroy_v2, (CUstream stream), (stream))

#define STREAM_READING(name, type, value)                \
    EXPORT CUresult name(CUstream handle, type *target)  \
    {                                                    \
        WITH_STREAM(context, stream, handle);            \
        if (target == NULL)                              \
            FINISH(CUDA_ERROR_INVALID_VALUE);            \
        *target = (value);                               \
        FINISH(0);                                       \
    }

STREAM_READING(cuStreamGetFlags, unsigned, stream->flags)
STREAM_READING(cuStreamGetPriority, int, stream->priority)
STREAM_READING(cuStreamGetCtx, CUcontext, stream->context)
STREAM_READING(cuStreamGetId, unsigned long long, (unsigned long long)(uintptr_t)stream)

static CUresult call(CUstream handle, struct operation *operation)
{
    WITH_STREAM(context, stream, handle);
    operation->kind = OPERATION_CALL;
    if (operation->call.function == NULL && operation->call.callback == NULL)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    /* Callbacks, the older way, cannot be captured. */
    CUresult result = operation->call.callback != NULL && stream->capture != NULL ? capture_refuses(stream) : 0;
    FINISH(result != 0 ? result : stream_do(stream, operation));
}

EXPORT CUresult cuLaunchHostFunc(CUstream stream, void (*function)(void *), void *argument)
{
    struct operation operation;
    operation.call.function = function;
    operation.call.callback = NULL;
    operation.call.argument = argument;
    return call(stream, &operation);
}

EXPORT CUresult cuStreamAddCallback(CUstream stream, void (*callback)(CUstream, CUresult, void *), void *argument,
                                    unsigned flags)
{
    struct operation operation;
    operation.call.function = NULL;
    operation.call.callback = callback;
    operation.call.stream = stream;
    operation.call.argument = argument;
    return flags != 0 ? CUDA_ERROR_INVALID_VALUE : call(stream, &operation);
}

PER_THREAD(cuStreamSynchronize, _ptsz, (CUstream stream), (stream))
PER_THREAD(cuStreamQuery, _ptsz, (CUstream stream), (stream))
PER_THREAD(cuStreamGetFlags, _ptsz, (CUstream stream, unsigned *flags), (stream, flags))
PER_THREAD(cuStreamGetPriority, _ptsz, (CUstream stream, int *priority), (stream, priority))
PER_THREAD(cuStreamGetCtx, _ptsz, (CUstream stream, CUcontext *context), (stream, context))
PER_THREAD(cuStreamGetId, _ptsz, (CUstream stream, unsigned long long *id), (stream, id))
PER_THREAD(cuLaunchHostFunc, _ptsz, (CUstream stream, void (*function)(void *), void *argument),
           (stream, function, argument))
PER_THREAD(cuStreamAddCallback, _ptsz,
           (CUstream stream, void (*callback)(CUstream, CUresult, void *), void *argument, unsigned flags),
           (stream, callback, argument, flags))
