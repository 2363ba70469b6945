/* Operations of streams and graphs: whether one can go on, and what it does. */
#include "graphs.h"

#define GREATER_OR_EQUAL 0u
#define EQUAL 1u
#define AND 2u

CUresult operation_check(const struct operation *operation)
{
    CUresult result = 0;
    switch (operation->kind) {
    case OPERATION_KERNEL:
        return launch_check(&operation->launch);
    case OPERATION_COPY:
        return box_check(&operation->copy);
    case OPERATION_FILL:
        for (size_t row = 0; row < operation->fill.rows && result == 0; row++)
            result = fill_check(operation->fill.to + row * operation->fill.pitch, operation->fill.width,
                                operation->fill.columns);
        return result;
    default:
        return 0;
    }
}

/* The comparisons of cuStreamWaitValue32 and 64; the first is cyclic: (signed)(*addr - value) >= 0. */
static bool is_met(const struct operation *operation)
{
    uint64_t wanted = operation->value.value;
    const volatile void *place = (const volatile void *)(uintptr_t)operation->value.at;
    if (operation->value.bits == 32) {
        uint32_t now = *(const volatile uint32_t *)place, low = (uint32_t)wanted;
        switch (operation->value.condition) {
        case GREATER_OR_EQUAL:
            return (int32_t)(now - low) >= 0;
        case EQUAL:
            return now == low;
        case AND:
            return (now & low) != 0;
        default:
            return ~(now | low) != 0;
        }
    }
    uint64_t now = *(const volatile uint64_t *)place;
    switch (operation->value.condition) {
    case GREATER_OR_EQUAL:
        return (int64_t)(now - wanted) >= 0;
    case EQUAL:
        return now == wanted;
    case AND:
        return (now & wanted) != 0;
    default:
        return ~(now | wanted) != 0;
    }
}

/* Memory that went meanwhile holds nothing up. */
static bool has_value(const struct operation *operation)
{
    return memory_at(operation->value.at) == NULL || is_met(operation);
}

static bool same_queue(CUstream stream, const struct fence *fence)
{
    return fence->context == stream->context;
}

bool operation_ready(CUstream stream, const struct operation *operation)
{
    switch (operation->kind) {
    case OPERATION_WAIT: /* GPU time of its own context is in order anyway */
        return operation->fence->reached && (same_queue(stream, operation->fence) || fence_done(operation->fence));
    case OPERATION_VALUE:
        return operation->value.writes ? work_done(stream->context, stream_work(stream)) : has_value(operation);
    case OPERATION_CALL:
        return work_done(stream->context, stream_work(stream));
    default:
        return true;
    }
}

bool operation_polls(const struct operation *operation)
{
    return operation->kind == OPERATION_VALUE || operation->kind == OPERATION_CALL || operation->kind == OPERATION_WAIT;
}

static CUresult run_kernel(CUstream stream, const struct launch *launch)
{
    CUcontext context = stream->context;
    uint64_t before = context->work;
    CUresult result = launch_check(launch);
    if (result == 0)
        result = launch_run(context, launch);
    if (context->work != before)
        stream->work = context->work;
    return result;
}

static void reach(CUstream stream, struct fence *fence)
{
    fence->reached = true;
    fence->context = stream->context;
    fence->work = stream_work(stream);
    fence->at = driver_seconds();
    fence->pending = stream->context->has_work;
}

static void write_value(const struct operation *operation)
{
    volatile void *place = (volatile void *)(uintptr_t)operation->value.at;
    if (memory_at(operation->value.at) == NULL)
        return;
    if (operation->value.bits == 32)
        *(volatile uint32_t *)place = (uint32_t)operation->value.value;
    else
        *(volatile uint64_t *)place = operation->value.value;
}

CUresult operation_run(CUstream stream, const struct operation *operation)
{
    CUresult result = operation_check(operation);
    if (result != 0)
        return result;
    switch (operation->kind) {
    case OPERATION_KERNEL:
        return run_kernel(stream, &operation->launch);
    case OPERATION_COPY:
        return box_run(&operation->copy);
    case OPERATION_FILL:
        for (size_t row = 0; row < operation->fill.rows; row++)
            fill_run(operation->fill.to + row * operation->fill.pitch, operation->fill.value, operation->fill.width,
                     operation->fill.columns);
        return 0;
    case OPERATION_WAIT:
        if (same_queue(stream, operation->fence) && operation->fence->work > stream->work)
            stream->work = operation->fence->work;
        return 0;
    case OPERATION_RECORD:
        reach(stream, operation->fence);
        return 0;
    case OPERATION_ALLOCATE:
        return graph_memory_take(stream->context, operation->memory);
    case OPERATION_FREE:
        return memory_give_back(operation->memory);
    case OPERATION_VALUE:
        if (operation->value.writes)
            write_value(operation);
        return 0;
    default:
        return 0;
    }
}
