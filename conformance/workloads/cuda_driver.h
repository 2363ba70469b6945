/* The part of the CUDA driver API that the workloads use, found in libcuda.so.1 at run time. */
#ifndef CUDA_DRIVER_H
#define CUDA_DRIVER_H

#include <stddef.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct {
    char bytes[16];
} CUuuid;

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_ILLEGAL_ADDRESS = 700,
};

enum { CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16 };

struct cuda_driver {
    CUresult (*init)(unsigned int);
    CUresult (*device_count)(int *);
    CUresult (*device)(CUdevice *, int);
    CUresult (*device_name)(char *, int, CUdevice);
    CUresult (*device_uuid)(CUuuid *, CUdevice);
    CUresult (*attribute)(int *, int, CUdevice);
    CUresult (*total_memory)(size_t *, CUdevice);
    CUresult (*retain_context)(CUcontext *, CUdevice);
    CUresult (*release_context)(CUdevice);
    CUresult (*set_context)(CUcontext);
    CUresult (*synchronize)(void);
    CUresult (*memory_info)(size_t *, size_t *);
    CUresult (*alloc)(CUdeviceptr *, size_t);
    CUresult (*release)(CUdeviceptr);
    CUresult (*to_device)(CUdeviceptr, const void *, size_t);
    CUresult (*to_host)(void *, CUdeviceptr, size_t);
    CUresult (*on_device)(CUdeviceptr, CUdeviceptr, size_t);
    CUresult (*set_32)(CUdeviceptr, unsigned int, size_t);
    CUresult (*load_module)(CUmodule *, const void *);
    CUresult (*function)(CUfunction *, CUmodule, const char *);
    CUresult (*launch)(CUfunction, unsigned int, unsigned int, unsigned int, unsigned int,
                       unsigned int, unsigned int, unsigned int, CUstream, void **, void **);
    CUresult (*error_name)(CUresult, const char **);
};

/* Open libcuda.so.1 and fill in every function; 0, or -1 with a sentence on stderr. */
int cuda_open(struct cuda_driver *cuda);

/* The name of a result, "unknown error" where the driver has none. */
const char *cuda_error(const struct cuda_driver *cuda, CUresult result);

/* Return where a call succeeded; else end with "cannot <what>: <result>" on stderr and code 1. */
void cuda_must(const struct cuda_driver *cuda, CUresult result, const char *what);

/* Open the driver and make the first device's context the current one, or end with a sentence. */
void cuda_begin(struct cuda_driver *cuda);

/* Write "GPU-xxxxxxxx-…" (or "MIG-…" for a MIG device, told by its name) into 41 bytes. */
void cuda_uuid_text(const char *device_name, const CUuuid *uuid, char *text);

#endif
