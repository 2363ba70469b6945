/*
 * mem-bandwidth: copy from device memory to device memory for a while and say how fast.
 *
 * Prints "copied N MiB in S s: X GB/s" (read and written bytes together, 10^9 a second).
 * Exit code 0, or 1 with a sentence on stderr.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "cuda_driver.h"

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    long mib = argc > 1 ? strtol(argv[1], NULL, 10) : 256;
    double seconds = argc > 2 ? strtod(argv[2], NULL) : 5;
    if (argc > 3 || mib < 1 || mib > 1 << 20 || seconds <= 0) {
        fprintf(stderr, "usage: mem-bandwidth [MIB [SECONDS]]\n");
        return 2;
    }
    CUdeviceptr from = 0, to = 0;
    size_t bytes = (size_t)mib << 20, copied = 0;
    struct cuda_driver cuda;
    cuda_begin(&cuda);
    cuda_must(&cuda, cuda.alloc(&from, bytes), "allocate the source");
    cuda_must(&cuda, cuda.alloc(&to, bytes), "allocate the target");
    cuda_must(&cuda, cuda.set_32(from, 0x5a5a5a5a, bytes / 4), "fill the source");
    cuda_must(&cuda, cuda.on_device(to, from, bytes), "copy");
    cuda_must(&cuda, cuda.synchronize(), "copy");
    double began = now(), took = 0;
    do {
        /* Several at once, so that the time of a call does not count. */
        for (int i = 0; i < 8; i++, copied += bytes)
            cuda_must(&cuda, cuda.on_device(to, from, bytes), "copy");
        cuda_must(&cuda, cuda.synchronize(), "copy");
        took = now() - began;
    } while (took < seconds);
    printf("copied %zu MiB in %.2f s: %.2f GB/s\n", copied >> 20, took,
           2 * (double)copied / took / 1e9);
    return 0;
}
