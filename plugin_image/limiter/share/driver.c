/* Which file is the driver's: the one that our library needs, under a name of its own. */
#include "driver.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

/* It is loaded already, as a dependency; so nothing of the environment chooses another. */
static void *handle(void)
{
    static void *found;
    void *known = __atomic_load_n(&found, __ATOMIC_RELAXED);
    if (known == NULL) {
        known = dlopen(driver_library, RTLD_LAZY | RTLD_NOLOAD);
        __atomic_store_n(&found, known, __ATOMIC_RELAXED);
    }
    return known;
}

void *driver_symbol(const char *name)
{
    void *library = handle();
    return library == NULL ? NULL : dlsym(library, name);
}

void *own_symbol(const char *name)
{
    static void *found;
    void *known = __atomic_load_n(&found, __ATOMIC_RELAXED);
    Dl_info here;
    if (known == NULL && dladdr((void *)(uintptr_t)&own_symbol, &here) != 0) {
        known = dlopen(here.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
        __atomic_store_n(&found, known, __ATOMIC_RELAXED);
    }
    return known == NULL ? NULL : dlsym(known, name);
}

const char *driver_folder(void)
{
    static char folder[4096];
    struct link_map *map;
    if (folder[0] == '\0' && handle() != NULL && dlinfo(handle(), RTLD_DI_LINKMAP, &map) == 0) {
        const char *slash = strrchr(map->l_name, '/');
        size_t length = slash == NULL ? 0 : (size_t)(slash - map->l_name);
        if (length > 0 && length < sizeof folder)
            memcpy(folder, map->l_name, length);
    }
    return folder;
}
