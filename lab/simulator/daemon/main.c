/* divvy-simd: plays the kernel part of an NVIDIA driver for one node. */
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../common/version.h"

struct daemon sim;

static int usage(void)
{
    fprintf(stderr, "usage: divvy-simd --root FOLDER --description FILE [--persist FILE] "
                    "[--foreground]\n");
    return 2;
}

static int listen_below_root(void)
{
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/run", sim.root);
    mkdir(path, 0755);
    snprintf(path, sizeof path, "%s/run/nvidia-persistenced", sim.root);
    mkdir(path, 0755);
    snprintf(path, sizeof path, "%s%s", sim.root, SIM_SOCKET);
    struct sockaddr_un address;
    if (sim_socket_address(path, &address) != 0)
        return -1;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    unlink(path);
    int bound = bind(fd, (struct sockaddr *)&address, sizeof address);
    sim_socket_address_done(&address);
    /* Any user of a container may use its GPU. */
    if (fd < 0 || bound != 0 || chmod(path, 0666) != 0 || listen(fd, 512) != 0)
        return -1;
    return fd;
}

/* By this file the daemon is found by who wants to end it. */
static void write_pid(pid_t pid)
{
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/run/divvy-simd.pid", sim.root);
    FILE *file = fopen(path, "we");
    if (file != NULL) {
        fprintf(file, "%d\n", (int)pid);
        fclose(file);
    }
}

/* Leave the caller as a daemon does; the caller's process ends when everything is ready. */
static void go_to_background(void)
{
    pid_t child = fork();
    if (child > 0)
        write_pid(child);
    if (child != 0)
        _exit(child < 0);
    setsid();
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd < 3; fd++)
        dup2(null, fd);
    if (chdir("/") != 0)
        _exit(1);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"root", required_argument, NULL, 'r'},
                                            {"description", required_argument, NULL, 'd'},
                                            {"persist", required_argument, NULL, 'p'},
                                            {"foreground", no_argument, NULL, 'f'},
                                            {NULL, 0, NULL, 0}};
    const char *description = NULL, *root = NULL;
    bool foreground = false;
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 'r')
            root = optarg;
        else if (option == 'd')
            description = optarg;
        else if (option == 'p')
            snprintf(sim.persist, sizeof sim.persist, "%s", optarg);
        else if (option == 'f')
            foreground = true;
        else
            return usage();
    }
    if (root == NULL || description == NULL || optind != argc)
        return usage();
    if (realpath(root, sim.root) == NULL) {
        fprintf(stderr, "divvy-simd: driver root %s: %s\n", root, strerror(errno));
        return 1;
    }
    for (int i = 0; i < MAX_CLIENTS; i++)
        sim.clients[i].fd = -1;
    if (!read_description(description))
        return 1;
    modes_load();
    int listener = listen_below_root();
    if (listener < 0) {
        fprintf(stderr, "divvy-simd: socket %s%s: %s\n", sim.root, SIM_SOCKET, strerror(errno));
        return 1;
    }
    tree_write();
    if (foreground)
        write_pid(getpid());
    else
        go_to_background();
    return server_run(listener);
}
