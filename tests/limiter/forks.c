/* Forks while other threads allocate, free and launch; each child calls one function, as a destructor does.
 *
 *   forks LIBRARY ROUNDS      prints how many children did not end within two seconds, or died
 */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

typedef unsigned long long pointer_t;

static void *library, *context;
static volatile bool ended;
static int (*allocate)(pointer_t *, size_t), (*give_back)(pointer_t);
static int (*allocate_async)(pointer_t *, size_t, void *), (*free_async)(pointer_t, void *);
static int (*set_current)(void *), (*synchronize)(void);

static void *symbol(const char *name)
{
    void *found = dlsym(library, name);
    if (found == NULL)
        exit(3);
    return found;
}

static void *churn(void *argument)
{
    pointer_t pointer;
    set_current(context);
    for (size_t number = (size_t)argument; !ended; number++) {
        if (number % 3 == 0)
            synchronize();
        else if (number % 2 == 0 && allocate(&pointer, 1 << 16) == 0)
            give_back(pointer);
        else if (number % 2 == 1 && allocate_async(&pointer, 1 << 16, NULL) == 0)
            free_async(pointer, NULL);
    }
    return NULL;
}

static void as_a_child(int what, pointer_t pointer)
{
    pointer_t other;
    if (what == 0)
        give_back(pointer);
    else if (what == 1)
        allocate(&other, 4096);
    else if (what == 2)
        free_async(pointer, NULL);
    else
        synchronize();
    _exit(0);
}

static bool ends(pid_t child)
{
    int status;
    for (int i = 0; i < 400; i++) {
        if (waitpid(child, &status, WNOHANG) == child)
            return WIFEXITED(status);
        usleep(5000);
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return false;
}

int main(int count, char **arguments)
{
    pthread_t thread;
    pointer_t pointer = 0;
    library = count == 3 ? dlopen(arguments[1], RTLD_NOW) : NULL;
    if (library == NULL)
        return 2;
    allocate = symbol("cuMemAlloc_v2");
    give_back = symbol("cuMemFree_v2");
    allocate_async = symbol("cuMemAllocAsync");
    free_async = symbol("cuMemFreeAsync");
    set_current = symbol("cuCtxSetCurrent");
    synchronize = symbol("cuCtxSynchronize");
    if (((int (*)(unsigned))symbol("cuInit"))(0) != 0 ||
        ((int (*)(void **, unsigned, int))symbol("cuCtxCreate_v2"))(&context, 0, 0) != 0 ||
        allocate(&pointer, 4096) != 0)
        return 4;
    for (size_t i = 0; i < 4; i++)
        pthread_create(&thread, NULL, churn, (void *)i);
    int hang = 0, rounds = atoi(arguments[2]);
    for (int i = 0; i < rounds; i++) {
        usleep((unsigned)rand() % 300);
        pid_t child = fork();
        if (child == 0)
            as_a_child(i % 4, pointer);
        hang += !ends(child);
    }
    printf("%d of %d\n", hang, rounds);
    fflush(stdout);
    _exit(0);
}
