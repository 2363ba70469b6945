/* Memory: the limit is the total, what the share's processes have is used. */
#include "nvml.h"

struct memory { /* nvmlMemory_t */
    unsigned long long total, free, used;
};

struct memory_v2 { /* nvmlMemory_v2_t */
    unsigned version;
    unsigned long long total, reserved, free, used;
};

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, struct memory *memory);
EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, struct memory_v2 *memory);

/* The driver may show more than the limit while it frees: never a used beyond the total. */
static uint64_t shown(const struct view *view)
{
    return view->used < view->limit ? view->used : view->limit;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, struct memory *memory)
{
    struct view view;
    nvmlReturn_t result = CALL(nvmlDeviceGetMemoryInfo, device, memory);
    if (result == 0 && view_of(device, &view))
        *memory = (struct memory){view.limit, view.limit - shown(&view), shown(&view)};
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, struct memory_v2 *memory)
{
    struct view view;
    nvmlReturn_t result = CALL(nvmlDeviceGetMemoryInfo_v2, device, memory);
    if (result == 0 && view_of(device, &view))
        *memory = (struct memory_v2){memory->version, view.limit, 0, view.limit - shown(&view), shown(&view)};
    return result;
}
