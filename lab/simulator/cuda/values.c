/* Streams that wait for a value in memory or write one. */
#include "streams.h"

#define CONDITIONS 3u       /* as CU_STREAM_WAIT_VALUE_*: at least, equal, and, nor */
#define FLUSH (1u << 30)
#define NO_BARRIER 1u

enum { WAIT_32 = 1, WRITE_32 = 2, FLUSH_WRITES = 3, WAIT_64 = 4, WRITE_64 = 5, BARRIER = 6 };

struct value_parameters { /* CUstreamBatchMemOpParams */
    int kind;
    CUdeviceptr at;
    uint64_t value;
    unsigned flags;
    CUdeviceptr alias;
    uint64_t unused;
};
_Static_assert(sizeof(struct value_parameters) == 48, "CUstreamBatchMemOpParams has 48 bytes");

static CUresult prepare(const struct value_parameters *wanted, struct operation *operation)
{
    bool writes = wanted->kind == WRITE_32 || wanted->kind == WRITE_64;
    unsigned bits = wanted->kind == WAIT_64 || wanted->kind == WRITE_64 ? 64 : 32;
    if (wanted->kind == FLUSH_WRITES || wanted->kind == BARRIER) {
        operation->kind = OPERATION_EMPTY;
        return 0;
    }
    if (wanted->kind < WAIT_32 || wanted->kind > BARRIER || wanted->at % (bits / 8) != 0 ||
        !memory_holds(wanted->at, bits / 8) || (wanted->flags & ~(writes ? NO_BARRIER : CONDITIONS | FLUSH)) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    operation->kind = OPERATION_VALUE;
    operation->value.at = wanted->at;
    operation->value.value = bits == 64 ? wanted->value : (uint32_t)wanted->value;
    operation->value.bits = bits;
    operation->value.writes = writes;
    operation->value.condition = wanted->flags & CONDITIONS;
    return 0;
}

EXPORT CUresult cuStreamBatchMemOp_v2(CUstream handle, unsigned count, struct value_parameters *wanted, unsigned flags)
{
    WITH_CONTEXT(context);
    struct operation operation;
    CUstream stream = stream_of(context, handle);
    if (stream == NULL)
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    if (count > 256 || (count > 0 && wanted == NULL) || flags != 0)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    CUresult result = 0;
    for (unsigned i = 0; i < count && result == 0; i++)
        result = prepare(&wanted[i], &operation);
    for (unsigned i = 0; i < count && result == 0; i++) {
        prepare(&wanted[i], &operation);
        result = stream_do(stream, &operation);
    }
    if (result == 0)
        driver_changed(); /* another stream may wait for what was written */
    FINISH(result);
}

ALSO(cuStreamBatchMemOp, cuStreamBatchMemOp_v2,
     (CUstream stream, unsigned count, struct value_parameters *wanted, unsigned flags), (stream, count, wanted, flags))

static CUresult one(CUstream stream, int kind, CUdeviceptr at, uint64_t value, unsigned flags)
{
    struct value_parameters wanted = {.kind = kind, .at = at, .value = value, .flags = flags};
    return cuStreamBatchMemOp_v2(stream, 1, &wanted, 0);
}

#define VALUE_CALLS(name, kind, type)                                                                          \
    EXPORT CUresult name##_v2(CUstream stream, CUdeviceptr at, type value, unsigned flags)                     \
    {                                                                                                          \
        return one(stream, kind, at, value, flags);                                                            \
    }                                                                                                          \
    EXPORT CUresult name(CUstream stream, CUdeviceptr at, type value, unsigned flags)                          \
    {                                                                                                          \
        return one(stream, kind, at, value, flags);                                                            \
    }                                                                                                          \
    PER_THREAD(name##_v2, _ptsz, (CUstream stream, CUdeviceptr at, type value, unsigned flags),                \
               (stream, at, value, flags))                                                                     \
    PER_THREAD(name, _ptsz, (CUstream stream, CUdeviceptr at, type value, unsigned flags), (stream, at, value, flags))

VALUE_CALLS(cuStreamWaitValue32, WAIT_32, uint32_t)
VALUE_CALLS(cuStreamWaitValue64, WAIT_64, uint64_t)
VALUE_CALLS(cuStreamWriteValue32, WRITE_32, uint32_t)
VALUE_CALLS(cuStreamWriteValue64, WRITE_64, uint64_t)
PER_THREAD(cuStreamBatchMemOp_v2, _ptsz,
           (CUstream stream, unsigned count, struct value_parameters *wanted, unsigned flags),
           (stream, count, wanted, flags))
PER_THREAD(cuStreamBatchMemOp, _ptsz,
           (CUstream stream, unsigned count, struct value_parameters *wanted, unsigned flags),
           (stream, count, wanted, flags))
