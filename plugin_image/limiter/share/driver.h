/* The driver's own library, which lies behind one of ours. */
#ifndef DIVVY_DRIVER_H
#define DIVVY_DRIVER_H

#include <stdint.h>

/* The name under which ours needs it. */
extern const char driver_library[];

/* A function of the driver's library; NULL where this driver has none of that name. */
void *driver_symbol(const char *name);

/* A function of our own library. */
void *own_symbol(const char *name);

/* The folder of the driver's file, without a slash at the end. */
const char *driver_folder(void);

/* The driver's function of the same name as the one of ours that it stands in. */
#define DRIVER(name)                                                                        \
    ({                                                                                      \
        static void *found_;                                                                \
        void *function_ = __atomic_load_n(&found_, __ATOMIC_RELAXED);                       \
        if (function_ == NULL) {                                                            \
            function_ = driver_symbol(#name);                                               \
            __atomic_store_n(&found_, function_, __ATOMIC_RELAXED);                         \
        }                                                                                   \
        (__typeof__(&name))(uintptr_t)function_;                                            \
    })

/* Its answer, or `absent` where this driver does not have it. */
#define CALL_OR(absent, name, ...)                                                          \
    ({                                                                                      \
        __typeof__(&name) call_ = DRIVER(name);                                             \
        call_ == NULL ? (absent) : call_(__VA_ARGS__);                                      \
    })

#endif
