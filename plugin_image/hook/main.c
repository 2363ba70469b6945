/* divvy-hook: a createContainer hook of the OCI runtime specification, and with --smi a createRuntime
 * hook.
 *
 * createContainer: called by the container runtime as root, in the container's namespaces but still
 * on the host's root file system, before anything of the container runs. It refuses an image that
 * needs a newer CUDA than the driver gives, and refreshes the container's loader cache.
 * createRuntime: called before that, as root in the runtime's own namespaces. It has the driver limit
 * the memory of the container's control group.
 * It is linked statically and uses no variable of its environment: the runtime may pass it the
 * image's. It may run in the PID namespace of a pod whose other containers run already: before
 * anything else it makes itself a copy in memory that cannot be written, and undumpable.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "container.h"
#include "inside.h"
#include "ldcache.h"
#include "memory_limit.h"
#include "require.h"
#include "sealed.h"
#include "share.h"

struct options {
    struct given given;
    struct loader loader;
    const char *limits, *limiter;
    struct limiting limiting;
    bool check;
};

static int usage(void)
{
    fputs("usage: divvy-hook [--cuda X.Y] [--driver X.Y.Z] [--brand NAME] [--arch X.Y]\n"
          "                  [--ldconfig PROGRAM --folder FOLDER]\n"
          "                  [--limits FILE --limiter FOLDER] < state.json\n"
          "       divvy-hook --smi PROGRAM --library FILE --shares FOLDER\n"
          "                  --groups FOLDER < state.json\n"
          "       divvy-hook --check\n",
          stderr);
    return 2;
}

static int parse(int count, char **words, struct options *options)
{
    enum { CUDA, DRIVER, BRAND, ARCH, LDCONFIG, FOLDER, LIMITS, LIMITER, CHECK, SMI, LIBRARY, SHARES, GROUPS };
    static const struct option known[] = {
        {"cuda", required_argument, NULL, CUDA},
        {"driver", required_argument, NULL, DRIVER},
        {"brand", required_argument, NULL, BRAND},
        {"arch", required_argument, NULL, ARCH},
        {"ldconfig", required_argument, NULL, LDCONFIG},
        {"folder", required_argument, NULL, FOLDER},
        {"limits", required_argument, NULL, LIMITS},
        {"limiter", required_argument, NULL, LIMITER},
        {"check", no_argument, NULL, CHECK},
        {"smi", required_argument, NULL, SMI},
        {"library", required_argument, NULL, LIBRARY},
        {"shares", required_argument, NULL, SHARES},
        {"groups", required_argument, NULL, GROUPS},
        {NULL, 0, NULL, 0},
    };
    *options = (struct options){.given = {"", "", "", "", 0}};
    for (int option; (option = getopt_long(count, words, "", known, NULL)) != -1;) {
        if (option == CUDA)
            options->given.cuda = optarg;
        else if (option == DRIVER)
            options->given.driver = optarg;
        else if (option == BRAND)
            options->given.brand = optarg;
        else if (option == ARCH)
            options->given.arch = optarg;
        else if (option == LDCONFIG)
            options->loader.ldconfig = optarg;
        else if (option == FOLDER)
            options->loader.driver = optarg;
        else if (option == LIMITS)
            options->limits = optarg;
        else if (option == LIMITER)
            options->limiter = optarg;
        else if (option == SMI)
            options->limiting.smi = optarg;
        else if (option == LIBRARY)
            options->limiting.library = optarg;
        else if (option == SHARES)
            options->limiting.shares = optarg;
        else if (option == GROUPS)
            options->limiting.groups = optarg;
        else if (option == CHECK)
            options->check = true;
        else
            return -1;
    }
    bool both = (options->loader.ldconfig == NULL) == (options->loader.driver == NULL);
    both = both && (options->limits == NULL) == (options->limiter == NULL);
    const struct limiting *limiting = &options->limiting;
    bool limits = limiting->smi != NULL;
    both = both && (limiting->library != NULL) == limits && (limiting->shares != NULL) == limits &&
           (limiting->groups != NULL) == limits;
    return optind == count && both ? 0 : -1;
}

/* Tell whether the kernel has what the hook needs; nothing is done in a less safe way without. */
static int check(void)
{
    static const struct {
        const char *name;
        long number;
    } needed[] = {
        {"openat2", SYS_openat2},
        {"open_tree", SYS_open_tree},
        {"move_mount", SYS_move_mount},
        {"mount_setattr", SYS_mount_setattr},
    };
    for (size_t each = 0; each < sizeof needed / sizeof *needed; each++) {
        if (syscall(needed[each].number, -1, "", 0, NULL, 0) < 0 && errno == ENOSYS) {
            fprintf(stderr, "divvy: this kernel has no %s: Linux 5.12 or newer is needed\n",
                    needed[each].name);
            return 1;
        }
    }
    return 0;
}

static int judge(const struct container *container, int image, struct options *options)
{
    bool by_compat = false;
    char reason[768];
    options->given.compat = inside_compat(image);
    enum verdict found = require_environment(container->environment, &options->given, &by_compat,
                                             reason, sizeof reason);
    if (by_compat)
        options->loader.compat = COMPAT_FOLDER;
    if (found == MET)
        return 0;
    fprintf(stderr, "divvy: %s\n", reason);
    return 1;
}

static int prepare(const struct container *container, struct options *options)
{
    if (options->limits != NULL && !share_holds(container, options->limits, options->limiter)) {
        fputs("divvy: this container has a claim for a share of a GPU and another claim for a GPU, and the limits of "
              "one would not hold: ask for them in two containers\n",
              stderr);
        return 1;
    }
    int image = inside_image(container->rootfs);
    if (image < 0) {
        fprintf(stderr, "divvy: cannot open %s: %s\n", container->rootfs, strerror(errno));
        return 1;
    }
    int code = judge(container, image, options);
    if (code == 0 && options->loader.ldconfig != NULL)
        code = ldcache_refresh(container->rootfs, image, &options->loader) == 0 ? 0 : 1;
    close(image);
    return code;
}

int main(int count, char **words)
{
    clearenv();
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0 || sealed_restart(words) != 0) {
        fprintf(stderr, "divvy: the hook cannot run from memory: %s\n", strerror(errno));
        return 1;
    }
    struct options options;
    if (parse(count, words, &options) != 0)
        return usage();
    if (options.check)
        return check();
    struct container container;
    int code = 1;
    if (container_read(STDIN_FILENO, &container))
        code = options.limiting.smi == NULL ? prepare(&container, &options)
                                            : memory_limit_set(&container, &options.limiting) ? 0 : 1;
    container_free(&container);
    return code;
}
