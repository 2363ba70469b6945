/* The linker: of PTX alone. What it makes is the text of all parts as one module, where real
 * drivers make machine code; cuModuleLoadData takes either. */
#include <stdlib.h>
#include <string.h>

#include "state.h"

enum { INPUT_PTX = 1, INPUT_LAST = 5 };

struct cuda_link {
    struct jit_logs logs; /* the caller's, until the link is destroyed */
    char *text;
    size_t length;
    CUlinkState next;
};

static CUlinkState links;

static KNOWS(is_known, CUlinkState, links)

EXPORT CUresult cuLinkCreate_v2(unsigned count, const int *options, void **values, CUlinkState *made)
{
    WITH_CONTEXT(context);
    struct jit_logs logs;
    CUresult result = made == NULL ? CUDA_ERROR_INVALID_VALUE : jit_logs_find(count, options, values, &logs);
    CUlinkState link = result == 0 ? calloc(1, sizeof *link) : NULL;
    if (link == NULL)
        FINISH(result != 0 ? result : CUDA_ERROR_OUT_OF_MEMORY);
    link->logs = logs;
    link->next = links;
    links = link;
    *made = link;
    FINISH(0);
}

/* The directives that a module begins with; a second time they are in the way. */
static bool is_header(const char *line)
{
    return strncmp(line, ".version", 8) == 0 || strncmp(line, ".target", 7) == 0 ||
           strncmp(line, ".address_size", 13) == 0;
}

static CUresult append(CUlinkState link, const char *text, size_t length)
{
    char *grown = realloc(link->text, link->length + length + 2);
    if (grown == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    bool is_first = link->length == 0;
    link->text = grown;
    for (const char *line = text, *end = text + length; line < end;) {
        const char *next = memchr(line, '\n', (size_t)(end - line));
        next = next == NULL ? end : next + 1;
        if (is_first || !is_header(line)) {
            memcpy(link->text + link->length, line, (size_t)(next - line));
            link->length += (size_t)(next - line);
        }
        line = next;
    }
    link->text[link->length++] = '\n';
    link->text[link->length] = '\0';
    return 0;
}

/* What one part calls another may have, so it is read when all are there. */
static CUresult add(CUlinkState link, int kind, const char *text, size_t size)
{
    WITH_CONTEXT(context);
    if (!is_known(link))
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    if (text == NULL || size == 0 || kind < 0 || kind > INPUT_LAST)
        FINISH(CUDA_ERROR_INVALID_VALUE);
    FINISH(kind == INPUT_PTX ? append(link, text, strnlen(text, size)) : CUDA_ERROR_NO_BINARY_FOR_GPU);
}

EXPORT CUresult cuLinkAddData_v2(CUlinkState link, int kind, void *text, size_t size, const char *name,
                                 unsigned count, int *options, void **values)
{
    (void)name;
    (void)count;
    (void)options;
    (void)values;
    return add(link, kind, text, size);
}

EXPORT CUresult cuLinkAddFile_v2(CUlinkState link, int kind, const char *path, unsigned count, int *options,
                                 void **values)
{
    (void)count;
    (void)options;
    (void)values;
    char *text;
    CUresult result = path == NULL ? CUDA_ERROR_INVALID_VALUE : file_read(path, &text);
    if (result != 0)
        return result;
    result = add(link, kind, text, strlen(text) + 1);
    free(text);
    return result;
}

/* The image is the linker's own, until it is destroyed. */
EXPORT CUresult cuLinkComplete(CUlinkState link, void **image, size_t *size)
{
    WITH_CONTEXT(context);
    struct ptx_module *ptx;
    if (!is_known(link))
        FINISH(CUDA_ERROR_INVALID_HANDLE);
    if (image == NULL || link->length < sizeof(uint32_t))
        FINISH(CUDA_ERROR_INVALID_VALUE);
    CUresult result = image_parse(&context->device->gpu, link->text, &link->logs, &ptx);
    if (result != 0)
        FINISH(result);
    ptx_free(ptx);
    *image = link->text;
    if (size != NULL)
        *size = link->length + 1;
    FINISH(0);
}

EXPORT CUresult cuLinkDestroy(CUlinkState link)
{
    driver_lock();
    CUresult result = driver_ready();
    if (result == 0 && !is_known(link))
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == 0) {
        CUlinkState *at = &links;
        while (*at != link)
            at = &(*at)->next;
        *at = link->next;
        free(link->text);
        free(link);
    }
    FINISH(result);
}
