/* Keeps a pod's namespaces: sleeps until told to end, and reaps what the pod leaves behind. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int number) { (void)number; _exit(0); }

static void reap(int number) {
    (void)number;
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
}

int main(void) {
    signal(SIGINT, end);
    signal(SIGTERM, end);
    signal(SIGCHLD, reap);
    for (;;) pause();
}
