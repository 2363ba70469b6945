/* Loads the library, starts CUDA and lets go of the library again, as programs do that only look for a GPU.
 *
 *   reloads LIBRARY ROUNDS      prints what the last cuInit returned
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **arguments)
{
    int result = 0, rounds = count == 3 ? atoi(arguments[2]) : 0;
    for (int i = 0; i < rounds && result == 0; i++) {
        void *library = dlopen(arguments[1], RTLD_NOW);
        if (library == NULL)
            return 2;
        result = ((int (*)(unsigned))dlsym(library, "cuInit"))(0);
        dlclose(library);
    }
    printf("%d\n", result);
}
