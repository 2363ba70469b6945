/* The part of CUDA's driver interface that the limiter stands in front of.
 *
 * Names, numbers and layouts are those of NVIDIA's published interface; declarations are ours.
 */
#ifndef DIVVY_LIMITER_CUDA_H
#define DIVVY_LIMITER_CUDA_H

#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUhandle; /* CUmemGenericAllocationHandle */
typedef struct CUstream_st *CUstream;
typedef struct CUpool_st *CUpool;
typedef struct CUarray_st *CUarray;
typedef struct CUmipmap_st *CUmipmap;
typedef struct CUfunction_st *CUfunction;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUgraph_st *CUgraph;
typedef struct CUevent_st *CUevent;

enum {
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_DEVICE_UNAVAILABLE = 46,
    CUDA_ERROR_OPERATING_SYSTEM = 304,
    CUDA_ERROR_ILLEGAL_ADDRESS = 700,
    CUDA_ERROR_LAUNCH_FAILED = 719, /* the last of those that a kernel leaves to its context */
    CUDA_ERROR_NOT_SUPPORTED = 801,
};

struct location_properties { /* the first fields of CUmemAllocationProp and of CUmemPoolProps */
    int type, handle_types, location_type, location;
};

struct array_descriptor { /* CUDA_ARRAY_DESCRIPTOR */
    size_t width, height;
    int format;
    unsigned channels;
};

struct array3d_descriptor { /* CUDA_ARRAY3D_DESCRIPTOR */
    size_t width, height, depth;
    int format;
    unsigned channels, flags;
};

#define LOCATION_DEVICE 1
#define PER_THREAD ((CUstream)2)

/* Without a stream it is the default one: here that of the thread, else that of the context. */
static inline CUstream per_thread(CUstream stream)
{
    return stream == NULL ? PER_THREAD : stream;
}

#endif
