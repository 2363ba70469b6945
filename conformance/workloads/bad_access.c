/*
 * bad-access: run a kernel that writes where nothing is, as a broken program does.
 *
 * Exit code 0: the driver ended this process's context for it, as it should. 1: it did not.
 */
#include <stdio.h>

#include "cuda_driver.h"
#include "embedded_ptx.h"

EMBED_PTX(bad_access_ptx, "bad_access.ptx");

int main(void)
{
    struct cuda_driver cuda;
    CUcontext context = NULL;
    CUmodule module = NULL;
    CUfunction kernel = NULL;
    CUdevice device = 0;
    CUresult result;
    if (cuda_open(&cuda) != 0)
        return 1;
    if ((result = cuda.init(0)) != CUDA_SUCCESS ||
        (result = cuda.device(&device, 0)) != CUDA_SUCCESS ||
        (result = cuda.retain_context(&context, device)) != CUDA_SUCCESS ||
        (result = cuda.set_context(context)) != CUDA_SUCCESS ||
        (result = cuda.load_module(&module, bad_access_ptx)) != CUDA_SUCCESS ||
        (result = cuda.function(&kernel, module, "bad_access")) != CUDA_SUCCESS) {
        fprintf(stderr, "cannot prepare the kernel: %s\n", cuda_error(&cuda, result));
        return 1;
    }
    result = cuda.launch(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    if (result == CUDA_SUCCESS)
        result = cuda.synchronize();
    printf("the driver said %s\n", cuda_error(&cuda, result));
    return result == CUDA_ERROR_ILLEGAL_ADDRESS ? 0 : 1;
}
