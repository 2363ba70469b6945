/* divvy-hook: a createContainer hook of the OCI runtime specification.
 *
 * Called by the container runtime as root, in the container's namespaces but still on the
 * host's root file system, before anything of the container runs. It refuses an image that
 * needs a newer CUDA than the driver gives, and refreshes the container's loader cache.
 * It is linked statically and uses no variable of its environment: the runtime may pass it the
 * image's.
 */
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "container.h"
#include "inside.h"
#include "ldcache.h"
#include "require.h"

enum { MOST_FOLDERS = 8 };

struct options {
    struct given given;
    const char *ldconfig;
    const char *folders[MOST_FOLDERS + 2]; /* one is left for cuda-compat, one for the end */
    int count;
};

static int usage(void)
{
    fputs("usage: divvy-hook [--cuda X.Y] [--driver X.Y.Z] [--brand NAME] [--arch X.Y]\n"
          "                  [--ldconfig PROGRAM --folder FOLDER...] < state.json\n"
          "       divvy-hook --version\n",
          stderr);
    return 2;
}

static int parse(int count, char **words, struct options *options)
{
    enum { CUDA, DRIVER, BRAND, ARCH, LDCONFIG, FOLDER, VERSION };
    static const struct option known[] = {
        {"cuda", required_argument, NULL, CUDA},
        {"driver", required_argument, NULL, DRIVER},
        {"brand", required_argument, NULL, BRAND},
        {"arch", required_argument, NULL, ARCH},
        {"ldconfig", required_argument, NULL, LDCONFIG},
        {"folder", required_argument, NULL, FOLDER},
        {"version", no_argument, NULL, VERSION},
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
            options->ldconfig = optarg;
        else if (option == FOLDER && options->count < MOST_FOLDERS)
            options->folders[++options->count] = optarg; /* the first place is cuda-compat's */
        else if (option == VERSION)
            exit(puts("divvy-hook 1") < 0);
        else
            return -1;
    }
    return optind == count ? 0 : -1;
}

static int judge(const struct container *container, struct options *options, bool *by_compat)
{
    int root = open(container->rootfs, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0) {
        fprintf(stderr, "divvy: cannot open %s\n", container->rootfs);
        return 1;
    }
    options->given.compat = inside_compat(root);
    close(root);
    char reason[768];
    enum verdict found = require_environment(container->environment, &options->given, by_compat,
                                             reason, sizeof reason);
    if (found == MET)
        return 0;
    fprintf(stderr, "divvy: %s\n", reason);
    return 1;
}

int main(int count, char **words)
{
    clearenv();
    struct options options;
    if (parse(count, words, &options) != 0)
        return usage();
    struct container container;
    bool by_compat = false;
    int code = container_read(STDIN_FILENO, &container) ? judge(&container, &options, &by_compat) : 1;
    if (code == 0 && options.ldconfig != NULL) {
        options.folders[0] = COMPAT_FOLDER;
        const char *const *folders = options.folders + (by_compat ? 0 : 1);
        code = ldcache_refresh(container.rootfs, options.ldconfig, folders) == 0 ? 0 : 1;
    }
    container_free(&container);
    return code;
}
