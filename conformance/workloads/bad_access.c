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
    CUmodule module = NULL;
    CUfunction kernel = NULL;
    cuda_begin(&cuda);
    cuda_must(&cuda, cuda.load_module(&module, bad_access_ptx), "load the kernel");
    cuda_must(&cuda, cuda.function(&kernel, module, "bad_access"), "find the kernel");
    CUresult result = cuda.launch(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    if (result == CUDA_SUCCESS)
        result = cuda.synchronize();
    printf("the driver said %s\n", cuda_error(&cuda, result));
    return result == CUDA_ERROR_ILLEGAL_ADDRESS ? 0 : 1;
}
