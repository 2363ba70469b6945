/*
 * python3: start the kit's Python by the kit's own loader.
 *
 * The kernel finds a program's loader by an absolute path alone, so this static program stands where
 * Python expects itself (sys.executable), in bin/ beside libexec/ and lib/. Containers without a shell
 * have it too. It takes over nothing of the machine's own Python, or of an environment made for it.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef VERSION
#error "VERSION is the name of the interpreter, such as python3.11"
#endif

static const char *const removed[] = {"PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", NULL};
static const char *const set[][2] = {
    {"PYTHONDONTWRITEBYTECODE", "1"},
    {"PYTHONNOUSERSITE", "1"},
    {"PYTHONSAFEPATH", "1"}, /* a platform.py in the folder that it is called from is no module */
    {"PYTHONUTF8", "1"},
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    char self[PATH_MAX], loader[PATH_MAX + 64], python[PATH_MAX + 64], *library = NULL;
    /* It names the driver's libraries where the machine's own cache does not; they come last. */
    const char *other = getenv("LD_LIBRARY_PATH");
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0) {
        perror("python3: /proc/self/exe");
        return 127;
    }
    self[length] = '\0';
    for (int i = 0; i < 2; i++) {
        char *last = strrchr(self, '/');
        if (last != NULL)
            *last = '\0';
    }
    int is_other = other != NULL && *other != '\0';
    if (asprintf(&library, "%s/lib%s%s", self, is_other ? ":" : "", is_other ? other : "") < 0)
        return 127;
    snprintf(loader, sizeof loader, "%s/lib/ld-linux-x86-64.so.2", self);
    snprintf(python, sizeof python, "%s/libexec/" VERSION, self);
    strcat(self, "/bin/python3");
    for (int i = 0; removed[i] != NULL; i++)
        unsetenv(removed[i]);
    for (int i = 0; set[i][0] != NULL; i++)
        setenv(set[i][0], set[i][1], 1);
    char *before[] = {loader, "--argv0", self, "--library-path", library, python};
    enum { BEFORE = sizeof before / sizeof *before };
    char **arguments = calloc((size_t)(argc + BEFORE + 1), sizeof *arguments);
    if (arguments == NULL)
        return 127;
    memcpy(arguments, before, sizeof before);
    for (int i = 1; i < argc; i++)
        arguments[BEFORE + i - 1] = argv[i];
    execv(loader, arguments);
    perror(loader);
    return 127;
}
