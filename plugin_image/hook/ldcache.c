/* How it is confined: ldconfig runs over a stranger's files, and as root. It gets
 *  - namespaces of its own (mount, PID, network, IPC, host name), whose root is the container's
 *    root file system and in which nothing else is mounted: links lead nowhere outside;
 *  - an empty file system over /proc: its links to other processes' roots lead out otherwise;
 *  - one capability (to write files whose owner is another), limits, twenty seconds, and an
 *    empty environment.
 * It is the static ldconfig of the agent's image, opened before the host goes out of sight.
 */
#include "ldcache.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "inside.h"

#ifndef DIVVY_HOOK_SECONDS /* tests do not wait so long */
#define DIVVY_HOOK_SECONDS 20
#endif
enum { SECONDS = DIVVY_HOOK_SECONDS, LARGEST_FILE = 64 << 20 };

static const char *const LOADERS[] = {
    "/lib64/ld-linux-x86-64.so.2",
    "/lib/ld-linux-aarch64.so.1",
    NULL,
};

static int failed(const char *what)
{
    fprintf(stderr, "divvy: loader cache: %s: %s\n", what, strerror(errno));
    return -1;
}

/* Make `rootfs` the root of this process's mount namespace, with an empty /proc of our own;
 * return that folder. */
static int enter(const char *rootfs)
{
    if (mount("", "/", NULL, MS_SLAVE | MS_REC, NULL) != 0)
        return failed("making mounts private");
    /* A root has to be a mount; which one it is does not matter to what is mounted below it. */
    if (mount(rootfs, rootfs, NULL, MS_BIND | MS_REC, NULL) != 0)
        return failed("binding the root file system");
    int root = open(rootfs, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return failed("opening the root file system");
    if (mkdirat(root, "proc", 0555) != 0 && errno != EEXIST)
        return failed("making /proc");
    int proc = inside_open(root, "proc", O_PATH | O_DIRECTORY | O_NOFOLLOW, 0);
    if (proc < 0)
        return failed("opening /proc");
    char place[32];
    snprintf(place, sizeof place, "/proc/self/fd/%d", proc);
    if (mount("divvy", place, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=64k,mode=755") != 0)
        return failed("covering /proc");
    close(proc);
    if (fchdir(root) != 0 || syscall(SYS_pivot_root, ".", ".") != 0)
        return failed("changing the root");
    close(root);
    if (umount2(".", MNT_DETACH) != 0 || chdir("/") != 0)
        return failed("leaving the host's root");
    return open("/proc", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* Write what ldconfig reads: our folders, the image's own configuration, then the folders that
 * distributions other than Debian have built into theirs. */
static int configure(int proc, const char *const *folders)
{
    char text[4096] = "", own[4096] = "";
    size_t used = 0;
    for (; *folders != NULL && used < sizeof own; folders++)
        used += (size_t)snprintf(own + used, sizeof own - used, "%s\n", *folders);
    int length = snprintf(text, sizeof text,
                          "%sinclude /etc/ld.so.conf\n/lib64\n/usr/lib64\n/lib\n/usr/lib\n", own);
    if (used >= sizeof own || (size_t)length >= sizeof text) {
        errno = ENAMETOOLONG;
        return failed("the folders' names");
    }
    if (inside_replace(proc, "ld.so.conf", text) != 0)
        return failed("writing its configuration");
    /* For an ldconfig that the container itself runs later. */
    int here = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int folder = inside_open(here, "/etc/ld.so.conf.d", O_RDONLY | O_DIRECTORY, 0);
    if (folder >= 0 && inside_replace(folder, "00-divvy.conf", own) != 0)
        return failed("writing /etc/ld.so.conf.d/00-divvy.conf");
    return 0;
}

/* Lower a limit; one that is lower already stays, since raising it may not be allowed. */
static bool limit(int resource, rlim_t most)
{
    struct rlimit now;
    if (getrlimit(resource, &now) != 0)
        return false;
    now.rlim_max = now.rlim_max < most ? now.rlim_max : most;
    now.rlim_cur = now.rlim_max;
    return setrlimit(resource, &now) == 0;
}

static int drop_rights(void)
{
    if (!limit(RLIMIT_FSIZE, LARGEST_FILE) || !limit(RLIMIT_CORE, 0) ||
        !limit(RLIMIT_CPU, SECONDS))
        return failed("setting limits");
    for (unsigned long each = 0; prctl(PR_CAPBSET_READ, each, 0, 0, 0) >= 0; each++) {
        if (each != CAP_DAC_OVERRIDE && prctl(PR_CAPBSET_DROP, each, 0, 0, 0) != 0)
            return failed("dropping capabilities");
    }
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{0}};
    data[0].effective = data[0].permitted = 1U << CAP_DAC_OVERRIDE;
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0 ||
        syscall(SYS_capset, &header, data) != 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return failed("dropping capabilities");
    return 0;
}

/* In the child: become ldconfig, or end. */
static void become(const char *rootfs, int program, int nothing, const char *const *folders)
{
    char *const arguments[] = {"ldconfig", "-f", "/proc/ld.so.conf", "-C", "/etc/ld.so.cache", NULL};
    char *const environment[] = {NULL};
    int proc = enter(rootfs);
    if (proc < 0 || configure(proc, folders) != 0 || drop_rights() != 0)
        _exit(1);
    /* Its warnings are the image's business, and not ours to print. */
    for (int each = 0; each < 3; each++)
        dup2(nothing, each);
    syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC); /* what a runtime has left open */
    execveat(program, "", arguments, environment, AT_EMPTY_PATH);
    _exit(127);
}

/* Wait for the child, not for ever: an image can make ldconfig hang. */
static int await(pid_t child, const sigset_t *ended)
{
    struct timespec patience = {SECONDS, 0};
    int status = 0;
    pid_t found;
    while ((found = waitpid(child, &status, WNOHANG)) == 0) {
        if (sigtimedwait(ended, NULL, &patience) < 0 && errno == EAGAIN) {
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
            fprintf(stderr, "divvy: loader cache: ldconfig did not end within %d s\n", SECONDS);
            return -1;
        }
    }
    if (found < 0)
        return failed("waiting for ldconfig");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    fprintf(stderr, "divvy: the container's loader cache could not be refreshed (%s %d)\n",
            WIFEXITED(status) ? "exit code" : "signal",
            WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    return -1;
}

static bool has_glibc(const char *rootfs)
{
    int root = open(rootfs, O_PATH | O_DIRECTORY | O_CLOEXEC);
    bool found = false;
    for (const char *const *each = LOADERS; root >= 0 && *each != NULL; each++)
        found |= inside_exists(root, *each);
    if (root >= 0)
        close(root);
    return found;
}

int ldcache_refresh(const char *rootfs, const char *ldconfig, const char *const *folders)
{
    if (!has_glibc(rootfs))
        return 0;
    int program = open(ldconfig, O_RDONLY | O_CLOEXEC);
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (program < 0 || nothing < 0)
        return failed(ldconfig);
    sigset_t ended;
    sigemptyset(&ended);
    sigaddset(&ended, SIGCHLD);
    sigprocmask(SIG_BLOCK, &ended, NULL);
    signal(SIGCHLD, SIG_DFL); /* a runtime that ignores it would leave nothing to wait for */
    if (unshare(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS) != 0)
        return failed("making namespaces");
    pid_t child = fork();
    if (child < 0)
        return failed("starting ldconfig");
    if (child == 0)
        become(rootfs, program, nothing, folders);
    close(program);
    close(nothing);
    return await(child, &ended);
}
