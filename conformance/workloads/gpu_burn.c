/*
 * gpu-burn: keep every visible GPU busy for a while and check what it computes.
 *
 * Command line and output follow the well-known tool, with three differences: the exit
 * code is 1 when a GPU is faulty or has not finished a single round, half a minute more is
 * given for that one, and the matrices are as large as the device can multiply in a quarter
 * of a second. 0: all GPUs OK; 19: no device; 22: a wrong option; 123: every test process died.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "burn_device.h"
#include "cuda_driver.h"

enum { MAX_GPUS = 64, ALL_DIED = 123, FIRST_ROUND_SECONDS = 30 };

struct progress {
    long products;
    long errors;
    double operations;
};

struct client {
    pid_t pid;
    int pipe;
    long products, errors;
    double operations;
    int died, faulty;
};

struct options {
    struct burn_request request;
    int one, list, grace, seconds;
};

static volatile sig_atomic_t stopped;

static void stop(int signal)
{
    (void)signal;
    stopped = 1;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static _Noreturn void usage(int code)
{
    fprintf(code ? stderr : stdout,
            "gpu-burn [OPTIONS] [TIME]\n"
            "  -m X      use X MB of memory\n"
            "  -m N%%     use N%% of the available memory (default 90%%)\n"
            "  -d        use doubles\n"
            "  -i N      run on GPU N only\n"
            "  -l        list the GPUs\n"
            "  -stts T   seconds between SIGTERM and SIGKILL (default 2)\n"
            "  -h        show this\n"
            "TIME is in seconds (default 10) and comes last\n");
    exit(code);
}

static int number(const char *text, int least)
{
    char *end = NULL;
    long value = strtol(text, &end, 10);
    if (*text == '\0' || *end != '\0' || value < least || value > 1 << 30) {
        fprintf(stderr, "%s is not a number from %d on\n", text, least);
        usage(EINVAL);
    }
    return (int)value;
}

static struct options read_options(int argc, char **argv)
{
    struct options found = {{0, 0, 0, 90}, -1, 0, 2, 10};
    for (int i = 1; i < argc; i++) {
        const char *option = argv[i];
        int valued = !strcmp(option, "-m") || !strcmp(option, "-i") || !strcmp(option, "-stts");
        if (valued && i + 1 == argc) {
            fprintf(stderr, "%s needs a value\n", option);
            usage(EINVAL);
        }
        if (!strcmp(option, "-h"))
            usage(0);
        else if (!strcmp(option, "-l"))
            found.list = 1;
        else if (!strcmp(option, "-d"))
            found.request.doubles = 1;
        else if (!strcmp(option, "-i"))
            found.one = number(argv[++i], 0);
        else if (!strcmp(option, "-stts"))
            found.grace = number(argv[++i], 0);
        else if (!strcmp(option, "-m")) {
            char *value = argv[++i];
            size_t length = strlen(value);
            if (length > 1 && value[length - 1] == '%') {
                value[length - 1] = '\0';
                found.request.percent = number(value, 1);
                if (found.request.percent > 100)
                    usage(EINVAL);
            } else {
                found.request.megabytes = number(value, 1);
            }
        } else if (i + 1 == argc) {
            found.seconds = number(option, 1);
        } else {
            fprintf(stderr, "unknown option %s\n", option);
            usage(EINVAL);
        }
    }
    return found;
}

/* Look at the devices in a process of their own: a driver must not be forked once initialised. */
static int look(int list)
{
    int channel[2], count = 0;
    if (pipe(channel) != 0)
        return 0;
    fflush(stdout);
    if (fork() == 0) {
        struct cuda_driver cuda;
        if (cuda_open(&cuda) != 0 || cuda.init(0) != CUDA_SUCCESS ||
            cuda.device_count(&count) != CUDA_SUCCESS)
            count = 0;
        for (int i = 0; list && i < count; i++) {
            char name[128] = "", text[48];
            size_t total = 0;
            CUuuid uuid;
            cuda.device_name(name, sizeof name, i);
            cuda.total_memory(&total, i);
            cuda.device_uuid(&uuid, i);
            cuda_uuid_text(name, &uuid, text);
            printf("ID %d: %s, %zuMB (UUID: %s)\n", i, name, total / 1000000, text);
        }
        fflush(stdout);
        _exit(write(channel[1], &count, sizeof count) != sizeof count);
    }
    if (read(channel[0], &count, sizeof count) != sizeof count)
        count = 0;
    wait(NULL);
    close(channel[0]);
    close(channel[1]);
    return count;
}

static _Noreturn void burn(struct burn_request request, int pipe)
{
    struct burn_device device = {0};
    if (burn_open(&device, &request) != 0)
        _exit(1);
    printf("Initialized device %d with %zu MB of memory (%zu MB available, using %zu MB of it), "
           "using %s\n",
           request.device, device.total >> 20, device.available >> 20, device.used >> 20,
           request.doubles ? "DOUBLES" : "FLOATS");
    printf("Results are %zu bytes each, thus performing %u iterations\n",
           (size_t)device.side * device.side * device.element, device.iterations);
    fflush(stdout);
    while (!stopped) {
        struct progress report = {device.iterations, burn_round(&device), burn_operations(&device)};
        if (report.errors < 0)
            report.products = -1;
        if (write(pipe, &report, sizeof report) != sizeof report || report.errors < 0)
            _exit(1);
    }
    _exit(0);
}

static void start(struct client *client, struct burn_request request)
{
    int channel[2];
    if (pipe(channel) != 0) {
        perror("pipe");
        exit(1);
    }
    fflush(stdout);
    client->pid = fork();
    if (client->pid == 0) {
        close(channel[0]);
        burn(request, channel[1]);
    }
    close(channel[1]);
    client->pipe = channel[0];
}

static void hear(struct client *client)
{
    struct progress report;
    ssize_t got = read(client->pipe, &report, sizeof report);
    if (got == (ssize_t)sizeof report && report.products >= 0) {
        client->products += report.products;
        client->errors += report.errors;
        client->operations += report.operations * (double)report.products;
        client->faulty |= report.errors > 0;
        return;
    }
    client->died = 1;
    client->faulty = 1;
}

static void show(const struct client *clients, int count, double began, int seconds)
{
    double took = now() - began, share = took / seconds * 100;
    printf("\r%.1f%%  proc'd: ", share > 100 ? 100 : share);
    for (int i = 0; i < count; i++) {
        double rate = clients[i].operations / took / 1e9;
        printf("%s%ld (%.*f Gflop/s)", i ? " - " : "", clients[i].products, rate < 10 ? 2 : 0,
               rate);
    }
    printf("   errors: ");
    for (int i = 0; i < count; i++)
        printf("%s%ld%s", i ? " - " : "", clients[i].errors,
               clients[i].died ? " (DIED!)" : clients[i].errors ? " (WARNING!)" : "");
    printf("   temps: ");
    for (int i = 0; i < count; i++)
        printf("%s--", i ? " - " : "");
    fflush(stdout);
}

/* Whether the time is over: each GPU has finished a round by then, or will not. */
static int is_over(const struct client *clients, int count, double took, int seconds)
{
    int waits = 0;
    for (int i = 0; i < count; i++)
        waits |= !clients[i].died && clients[i].products == 0;
    return took >= (waits ? seconds + FIRST_ROUND_SECONDS : seconds);
}

static int watch(struct client *clients, int count, int seconds)
{
    double began = now(), shown = began;
    for (;;) {
        struct pollfd polled[MAX_GPUS];
        int alive = 0;
        for (int i = 0; i < count; i++) {
            polled[i] = (struct pollfd){clients[i].died ? -1 : clients[i].pipe, POLLIN, 0};
            alive += !clients[i].died;
        }
        if (alive == 0) {
            fprintf(stderr, "\nNo clients are alive!  Aborting\n");
            return ALL_DIED;
        }
        if (stopped || is_over(clients, count, now() - began, seconds))
            break;
        if (poll(polled, (nfds_t)count, 200) > 0)
            for (int i = 0; i < count; i++)
                if (polled[i].revents)
                    hear(&clients[i]);
        if (now() - shown >= 1) {
            show(clients, count, began, seconds);
            shown = now();
        }
    }
    show(clients, count, began, seconds);
    return 0;
}

static void end(struct client *clients, int count, int grace)
{
    printf("\nKilling processes with SIGTERM (soft kill)\n");
    fflush(stdout);
    for (int i = 0; i < count; i++)
        kill(clients[i].pid, SIGTERM);
    double until = now() + grace;
    for (int i = 0; i < count; i++) {
        while (waitpid(clients[i].pid, NULL, WNOHANG) == 0) {
            if (now() >= until)
                kill(clients[i].pid, SIGKILL);
            usleep(20000);
        }
    }
    printf("done\n\n");
}

int main(int argc, char **argv)
{
    struct options options = read_options(argc, argv);
    static struct client clients[MAX_GPUS];
    struct sigaction action = {.sa_handler = stop};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    int visible = look(options.list);
    if (visible == 0 || options.one >= visible) {
        fprintf(stderr, visible ? "No GPU %d\n" : "No CUDA devices\n", options.one);
        return ENODEV;
    }
    if (options.list)
        return 0;
    int count = options.one >= 0 ? 1 : visible > MAX_GPUS ? MAX_GPUS : visible;
    printf("Burning for %d seconds.\n", options.seconds);
    for (int i = 0; i < count; i++) {
        struct burn_request request = options.request;
        request.device = options.one >= 0 ? options.one : i;
        start(&clients[i], request);
    }
    int code = watch(clients, count, options.seconds);
    end(clients, count, options.grace);
    if (code != 0)
        return code;
    printf("Tested %d GPUs:\n", count);
    for (int i = 0; i < count; i++) {
        /* What has computed nothing has shown nothing. */
        clients[i].faulty |= clients[i].products == 0;
        printf("\tGPU %d: %s\n", options.one >= 0 ? options.one : i,
               clients[i].faulty ? "FAULTY" : "OK");
        code |= clients[i].faulty;
    }
    return code;
}
