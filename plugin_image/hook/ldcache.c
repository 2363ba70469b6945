/* How it is confined: ldconfig runs over a stranger's files, and as root, in the PID namespace of
 * a pod whose other containers may run already. It gets
 *  - namespaces of its own (mount, PID, network, IPC, host name) whose root is the image's own
 *    file system, from which nothing can be run and no device opened. Of what else is mounted in
 *    the container only the driver's folder is there, read-only;
 *  - an empty file system over /proc: its links to other processes' roots lead out otherwise;
 *  - a sealed copy in memory of the static ldconfig of the agent's image: what /proc/PID/exe
 *    leads to is no file of the host's;
 *  - two capabilities, limits, twenty seconds, and an empty environment.
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
#include "sealed.h"

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

static bool same_mount(int one, int other)
{
    struct statx first, second;
    return statx(one, "", AT_EMPTY_PATH, STATX_MNT_ID, &first) == 0 &&
           statx(other, "", AT_EMPTY_PATH, STATX_MNT_ID, &second) == 0 &&
           first.stx_mnt_id == second.stx_mnt_id;
}

/* Return the driver's folder as the container sees it: with the files that the runtime mounted
 * there, none of which can be written. */
static int driver_folder(const char *rootfs, const char *path)
{
    int whole = open(rootfs, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int folder = inside_open(whole, path, O_PATH | O_DIRECTORY, 0);
    if (folder < 0)
        return failed("opening the driver's folder");
    int tree = open_tree(folder, "",
                         AT_EMPTY_PATH | AT_RECURSIVE | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    struct mount_attr closed = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID |
                                            MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC};
    struct mount_attr open_again = {.attr_clr = MOUNT_ATTR_RDONLY};
    if (tree < 0 ||
        mount_setattr(tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &closed, sizeof closed) != 0)
        return failed("closing the driver's folder");
    /* The folder itself is the image's, for ldconfig to make links in, unless a volume is there. */
    if (same_mount(whole, folder) &&
        mount_setattr(tree, "", AT_EMPTY_PATH, &open_again, sizeof open_again) != 0)
        return failed("opening the image's folder for links");
    close(whole);
    close(folder);
    return tree;
}

/* Put an empty file system over /proc. */
static int cover_proc(int image)
{
    if (mkdirat(image, "proc", 0555) != 0 && errno != EEXIST)
        return failed("making /proc");
    int proc = inside_open(image, "proc", O_PATH | O_DIRECTORY | O_NOFOLLOW, 0);
    if (proc < 0)
        return failed("opening /proc");
    char place[32];
    snprintf(place, sizeof place, "/proc/self/fd/%d", proc);
    if (mount("divvy", place, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=64k,mode=755") != 0)
        return failed("covering /proc");
    return close(proc);
}

/* Make the image's own file system, with the driver's folder and an empty /proc, the root of
 * this process's mount namespace; return that /proc. */
static int enter(const char *rootfs, int image, const char *driver)
{
    if (mount("", "/", NULL, MS_SLAVE | MS_REC, NULL) != 0)
        return failed("making mounts private");
    int tree = driver_folder(rootfs, driver);
    if (tree < 0)
        return -1;
    if (move_mount(image, "", AT_FDCWD, rootfs, MOVE_MOUNT_F_EMPTY_PATH) != 0)
        return failed("mounting the image");
    int place = inside_open(image, driver, O_PATH | O_DIRECTORY, 0);
    if (place < 0 || move_mount(tree, "", place, "",
                                MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) != 0)
        return failed("mounting the driver's folder");
    if (cover_proc(image) != 0)
        return -1;
    if (fchdir(image) != 0 || syscall(SYS_pivot_root, ".", ".") != 0)
        return failed("changing the root");
    if (umount2(".", MNT_DETACH) != 0 || chdir("/") != 0)
        return failed("leaving the host's root");
    return open("/proc", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* Write what ldconfig reads: our folders, the image's own configuration, then the folders that
 * distributions other than Debian have built into theirs. */
static int configure(int proc, const struct loader *loader)
{
    char text[4096], own[2048];
    int length = snprintf(own, sizeof own, "%s%s%s\n", loader->compat ? loader->compat : "",
                          loader->compat ? "\n" : "", loader->driver);
    if ((size_t)length >= sizeof own) {
        errno = ENAMETOOLONG;
        return failed("the folders' names");
    }
    snprintf(text, sizeof text, "%sinclude /etc/ld.so.conf\n/lib64\n/usr/lib64\n/lib\n/usr/lib\n",
             own);
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

/* Keep DAC_OVERRIDE, to write files whose owner is another, and BLOCK_SUSPEND, which is of no
 * use here: a process may look into one that has no capability beyond its own, and no container
 * has this one unless its pod was given it. */
static int drop_rights(void)
{
    enum { WORD = 32 };
    if (!limit(RLIMIT_FSIZE, LARGEST_FILE) || !limit(RLIMIT_CORE, 0) ||
        !limit(RLIMIT_CPU, SECONDS))
        return failed("setting limits");
    for (unsigned long each = 0; prctl(PR_CAPBSET_READ, each, 0, 0, 0) >= 0; each++) {
        if (each != CAP_DAC_OVERRIDE && each != CAP_BLOCK_SUSPEND &&
            prctl(PR_CAPBSET_DROP, each, 0, 0, 0) != 0)
            return failed("dropping capabilities");
    }
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{0}};
    if (syscall(SYS_capget, &header, data) != 0)
        return failed("reading capabilities");
    unsigned keep[2] = {data[0].permitted & 1U << CAP_DAC_OVERRIDE,
                        data[1].permitted & 1U << (CAP_BLOCK_SUSPEND - WORD)};
    for (int each = 0; each < 2; each++)
        data[each] = (struct __user_cap_data_struct){keep[each], keep[each], 0};
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0 ||
        syscall(SYS_capset, &header, data) != 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return failed("dropping capabilities");
    return 0;
}

/* In the child: become ldconfig, or end. */
static void become(const char *rootfs, int image, const struct loader *loader, int program,
                   int nothing)
{
    char *const arguments[] = {"ldconfig", "-f", "/proc/ld.so.conf", "-C", "/etc/ld.so.cache", NULL};
    char *const environment[] = {NULL};
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0); /* nothing else would end it in time */
    int proc = enter(rootfs, image, loader->driver);
    if (proc < 0 || configure(proc, loader) != 0 || drop_rights() != 0)
        _exit(1);
    /* Its warnings are the image's business, and not ours to print. */
    for (int each = 0; each < 3; each++)
        dup2(nothing, each);
    syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC); /* what a runtime has left open */
    execveat(program, "", arguments, environment, AT_EMPTY_PATH);
    _exit(127);
}

static struct timespec now(void)
{
    struct timespec time = {0, 0};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time;
}

/* Return what is left until then, nothing if it is over. */
static struct timespec left(struct timespec then)
{
    struct timespec at = now();
    struct timespec rest = {then.tv_sec - at.tv_sec, then.tv_nsec - at.tv_nsec};
    if (rest.tv_nsec < 0) {
        rest.tv_sec--;
        rest.tv_nsec += 1000000000;
    }
    return rest.tv_sec < 0 ? (struct timespec){0, 0} : rest;
}

/* Wait for the child, not forever: an image can make ldconfig hang. Until a deadline: processes of
 * the pod may send us signals, and each ends a wait.
 */
static int await(pid_t child, const sigset_t *ended)
{
    struct timespec deadline = now();
    deadline.tv_sec += SECONDS;
    int status = 0;
    pid_t found;
    while ((found = waitpid(child, &status, WNOHANG)) == 0) {
        struct timespec rest = left(deadline);
        bool over = rest.tv_sec == 0 && rest.tv_nsec == 0;
        if (over || (sigtimedwait(ended, NULL, &rest) < 0 && errno == EAGAIN)) {
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

static bool has_glibc(int image)
{
    bool found = false;
    for (const char *const *each = LOADERS; *each != NULL; each++)
        found |= inside_exists(image, *each);
    return found;
}

static int sealed_ldconfig(const char *path)
{
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    int program = file < 0 ? -1 : sealed_copy(file);
    if (file >= 0)
        close(file);
    return program < 0 ? failed(path) : program;
}

int ldcache_refresh(const char *rootfs, int image, const struct loader *loader)
{
    if (!has_glibc(image) || !inside_exists(image, "/etc"))
        return 0;
    int program = sealed_ldconfig(loader->ldconfig);
    if (program < 0)
        return -1;
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (nothing < 0)
        return failed("/dev/null");
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
        become(rootfs, image, loader, program, nothing);
    close(program);
    close(nothing);
    return await(child, &ended);
}
