/* The file of limits: one line "divvy-share 1", then one line per device:
 *
 *     device UUID memory BYTES compute free|share|cap weight PER-CENT page FILE oversubscribed no|yes
 *
 * The agent writes it and the container has it read-only. Nothing is guessed: a line that is not
 * understood makes the whole file unsound.
 */
#include "share.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static bool uuid_bytes(const char *text, uint8_t bytes[16])
{
    unsigned at = 0;
    const char *dash = strchr(text, '-');
    memset(bytes, 0, 16);
    if (dash == NULL)
        return false;
    for (const char *c = dash + 1; *c != '\0'; c++) {
        if (*c == '-')
            continue;
        if (!isxdigit((unsigned char)*c) || at == 32)
            return false;
        int digit = *c <= '9' ? *c - '0' : (*c | 0x20) - 'a' + 10;
        bytes[at / 2] = (uint8_t)(bytes[at / 2] | digit << (at % 2 ? 0 : 4));
        at++;
    }
    return at == 32;
}

static bool compute_of(const char *word, enum compute *compute)
{
    static const char *const words[] = {"free", "share", "cap"};
    for (unsigned i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i], word) == 0) {
            *compute = (enum compute)i;
            return true;
        }
    return false;
}

static bool device_of(const char *line, struct share_device *device)
{
    char word[8], answer[4];
    unsigned long long memory;
    int length = 0;
    memset(device, 0, sizeof *device);
    if (sscanf(line, "device %63s memory %llu compute %7s weight %u page %79s oversubscribed %3s%n", device->uuid,
               &memory, word, &device->weight, device->page, answer, &length) != 6 || line[length] != '\n')
        return false;
    device->memory = memory;
    device->oversubscribed = strcmp(answer, "yes") == 0;
    if (!device->oversubscribed && strcmp(answer, "no") != 0)
        return false;
    return memory > 0 && strchr(device->page, '/') == NULL && device->weight >= 1 && device->weight <= 100 && compute_of(word, &device->compute) &&
           uuid_bytes(device->uuid, device->bytes);
}

static bool fail(char *problem, size_t size, const char *path, const char *what)
{
    snprintf(problem, size, "%s: %s", path, what);
    return false;
}

bool share_read(const char *path, struct share *share, char *problem, size_t size)
{
    char line[256];
    memset(share, 0, sizeof *share);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return fail(problem, size, path, "the limits of this share cannot be read");
    bool sound = fgets(line, sizeof line, file) != NULL && strcmp(line, "divvy-share 1\n") == 0;
    while (sound && fgets(line, sizeof line, file) != NULL) {
        sound = share->count < MAX_DEVICES && device_of(line, &share->device[share->count]) &&
                share_find(share, share->device[share->count].bytes) < 0;
        share->count++;
    }
    fclose(file);
    return (sound && share->count > 0) || fail(problem, size, path, "the limits of this share are not understood");
}

int share_find(const struct share *share, const uint8_t bytes[16])
{
    for (unsigned i = 0; i < share->count; i++)
        if (memcmp(share->device[i].bytes, bytes, 16) == 0)
            return (int)i;
    return -1;
}

int share_find_text(const struct share *share, const char *uuid)
{
    for (unsigned i = 0; i < share->count; i++)
        if (strcmp(share->device[i].uuid, uuid) == 0)
            return (int)i;
    return -1;
}
