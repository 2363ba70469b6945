/*
 * mem-hog: allocate device memory up to a size, or until the device has no more.
 *
 * Prints what it got and what the device says; holds it for a while. Exit code 0:
 * everything asked for was allocated; 12 (ENOMEM): the device refused; 1: another error.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cuda_driver.h"

int main(int argc, char **argv)
{
    static const struct option options[] = {{"mib", required_argument, NULL, 'm'},
                                            {"chunk", required_argument, NULL, 'c'},
                                            {"hold", required_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    long mib = 0, chunk = 64, hold = 0;
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option == '?')
            return 2;
        long value = strtol(optarg, NULL, 10);
        if (option == 'm')
            mib = value;
        else if (option == 'c')
            chunk = value;
        else
            hold = value;
    }
    if (mib < 1 || chunk < 1 || hold < 0) {
        fprintf(stderr, "usage: mem-hog --mib N [--chunk N] [--hold SECONDS]\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct cuda_driver cuda;
    cuda_begin(&cuda);
    long held = 0;
    CUresult last = CUDA_SUCCESS;
    while (held < mib) {
        long size = mib - held < chunk ? mib - held : chunk;
        CUdeviceptr block = 0;
        last = cuda.alloc(&block, (size_t)size << 20);
        if (last != CUDA_SUCCESS)
            break;
        held += size;
    }
    size_t available = 0, total = 0;
    cuda_must(&cuda, cuda.memory_info(&available, &total), "read memory information");
    int sms = 0;
    cuda_must(&cuda, cuda.attribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0),
              "read the number of SMs");
    printf("allocated %ld MiB of %ld MiB asked for; device: %zu MiB total, %zu MiB free, %d SMs; "
           "%s\n",
           held, mib, total >> 20, available >> 20, sms,
           last == CUDA_SUCCESS ? "OK" : cuda_error(&cuda, last));
    if (last != CUDA_SUCCESS && last != CUDA_ERROR_OUT_OF_MEMORY)
        return 1;
    sleep((unsigned int)hold);
    return last == CUDA_SUCCESS ? 0 : ENOMEM;
}
