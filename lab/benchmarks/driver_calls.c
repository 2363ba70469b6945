/* Times calls of the driver API: `bench LIBRARY WHAT ROUNDS` prints nanoseconds per call.
 *
 * WHAT: allocate (cuMemAlloc and cuMemFree of 1 MiB), launch (an empty kernel).
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char PTX[] = ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry nothing()\n{\n    ret;\n}\n";

typedef int (*init_fn)(unsigned);
typedef int (*context_fn)(void **, unsigned, int);
typedef int (*allocate_fn)(unsigned long long *, size_t);
typedef int (*free_fn)(unsigned long long);
typedef int (*load_fn)(void **, const void *);
typedef int (*function_fn)(void **, void *, const char *);
typedef int (*launch_fn)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                         void **);

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec * 1e9 + (double)at.tv_nsec;
}

int main(int argc, char **argv)
{
    void *context, *module, *function;
    unsigned long long pointer;
    void *library = argc == 4 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (library == NULL)
        return 2;
    init_fn init = (init_fn)dlsym(library, "cuInit");
    context_fn create = (context_fn)dlsym(library, "cuCtxCreate_v2");
    allocate_fn allocate = (allocate_fn)dlsym(library, "cuMemAlloc_v2");
    free_fn give_back = (free_fn)dlsym(library, "cuMemFree_v2");
    load_fn load = (load_fn)dlsym(library, "cuModuleLoadData");
    function_fn find = (function_fn)dlsym(library, "cuModuleGetFunction");
    launch_fn launch = (launch_fn)dlsym(library, "cuLaunchKernel");
    if (init(0) != 0 || create(&context, 0, 0) != 0 || load(&module, PTX) != 0 ||
        find(&function, module, "nothing") != 0)
        return 3;
    long rounds = atol(argv[3]);
    double begun = now();
    for (long i = 0; i < rounds; i++)
        if (strcmp(argv[2], "launch") == 0) {
            if (launch(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) != 0)
                return 4;
        } else if (allocate(&pointer, 1 << 20) != 0 || give_back(pointer) != 0) {
            return 5;
        }
    printf("%.1f\n", (now() - begun) / (double)rounds);
    return 0;
}
