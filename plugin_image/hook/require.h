/* What an image requires of the driver, and whether the driver gives it. */
#ifndef DIVVY_HOOK_REQUIRE_H
#define DIVVY_HOOK_REQUIRE_H

#include <stdbool.h>
#include <stddef.h>

/* What the node has. An empty text: not known, conditions on it are not looked at. */
struct given {
    const char *cuda;   /* newest CUDA of the driver, "12.4" */
    const char *driver; /* "550.163.01" */
    const char *brand;  /* as NVIDIA's images write it: "tesla", "nvidia", "geforce" */
    const char *arch;   /* lowest compute capability, "8.0" */
    long compat;        /* driver branch of the image's own cuda-compat, 0 without */
};

enum verdict { MET, NOT_MET, NOT_UNDERSTOOD };

/* Judge one expression such as "cuda>=12.4 brand=tesla,driver>=470,driver<471": a blank is
 * an OR, a comma an AND. Sets *by_compat where a condition on cuda is met by the image's own
 * cuda-compat, which then has to be loaded instead of the driver's libcuda. */
enum verdict require_judge(const char *expression, const struct given *given, bool *by_compat);

/* Judge a container's environment (ended by NULL) and write the reason of a refusal. */
enum verdict require_environment(char *const *environment, const struct given *given,
                                 bool *by_compat, char *reason, size_t size);

#endif
