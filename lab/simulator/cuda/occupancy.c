/* How many blocks of a function fit on a multiprocessor. */
#include "state.h"

static unsigned resident_threads(const struct sim_gpu *gpu)
{
    return gpu->cc_major == 7 && gpu->cc_minor == 5 ? 1024 : gpu->cc_major == 8 && gpu->cc_minor != 0 ? 1536 : 2048;
}

static unsigned resident_blocks(const struct sim_gpu *gpu, size_t shared, unsigned threads)
{
    unsigned fit = resident_threads(gpu) / ((threads + 31) / 32 * 32);
    if (shared > 0 && OPT_IN(gpu) / shared < fit)
        fit = (unsigned)(OPT_IN(gpu) / shared);
    return fit > 32 ? 32 : fit;
}

EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction function, int threads,
                                                                     size_t dynamic_shared, unsigned flags)
{
    WITH_CONTEXT(context);
    if (blocks == NULL || threads <= 0 || flags > 1)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    CUresult result = function_resolve(context, &function);
    if (result == 0)
        *blocks = (unsigned)threads > function->facts.max_threads
                      ? 0
                      : (int)resident_blocks(&context->device->gpu, function->facts.shared_bytes + dynamic_shared,
                                             (unsigned)threads);
    FINISH(result);
}

EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads,
                                                            size_t dynamic_shared)
{
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, dynamic_shared, 0);
}

/* The largest block size that fills a multiprocessor, and how many of its blocks fill the GPU. */
EXPORT CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, CUfunction function,
                                                          size_t (*shared_of)(int threads), size_t dynamic_shared,
                                                          int limit, unsigned flags)
{
    WITH_CONTEXT(context);
    if (grid == NULL || block == NULL || limit < 0 || flags > 1)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    CUresult result = function_resolve(context, &function);
    if (result != 0)
        FINISH(result);
    unsigned most = function->facts.max_threads, best = 0;
    if (limit > 0 && (unsigned)limit < most)
        most = (unsigned)limit;
    *grid = *block = 0;
    for (unsigned threads = most < 32 ? most : most / 32 * 32; threads > 0; threads -= threads < 32 ? threads : 32) {
        size_t shared = shared_of != NULL ? shared_of((int)threads) : dynamic_shared;
        unsigned blocks = resident_blocks(&context->device->gpu, function->facts.shared_bytes + shared, threads);
        if (blocks * threads > best) {
            best = blocks * threads;
            *block = (int)threads;
            *grid = (int)(blocks * context->device->sms);
        }
    }
    FINISH(best == 0 ? CUDA_ERROR_INVALID_VALUE : 0);
}

EXPORT CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *block, CUfunction function,
                                                 size_t (*shared_of)(int threads), size_t dynamic_shared, int limit)
{
    return cuOccupancyMaxPotentialBlockSizeWithFlags(grid, block, function, shared_of, dynamic_shared, limit, 0);
}

EXPORT CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction function, int blocks, int threads)
{
    WITH_CONTEXT(context);
    const struct sim_gpu *gpu = &context->device->gpu;
    if (bytes == NULL || blocks <= 0 || threads <= 0 || threads > 1024)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    CUresult result = function_resolve(context, &function);
    if (result != 0)
        FINISH(result);
    size_t each = OPT_IN(gpu) / (unsigned)blocks, own = function->facts.shared_bytes;
    if ((unsigned)blocks > resident_blocks(gpu, 0, (unsigned)threads) || each < own)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    *bytes = each - own;
    FINISH(0);
}
