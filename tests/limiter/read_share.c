/* Print what the limiter's reader makes of the files of limits: a line for each device of each. */
#include "share.h"

#include <stdio.h>

int main(int count, char **paths)
{
    static const char *const words[] = {"free", "share", "cap"};
    for (int at = 1; at < count; at++) {
        struct share share;
        char problem[256];
        if (!share_read(paths[at], &share, problem, sizeof problem)) {
            puts("refused");
            continue;
        }
        printf("%u\n", share.count);
        for (unsigned i = 0; i < share.count; i++) {
            const struct share_device *device = &share.device[i];
            printf("%s %llu %s %u %s %s\n", device->uuid, (unsigned long long)device->memory, words[device->compute],
                   device->weight, device->page, device->oversubscribed ? "yes" : "no");
        }
    }
    return 0;
}
