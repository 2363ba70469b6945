/* Looks at the pages of a GPU whenever it reads an empty line, and says whose it knows. At any
 * other it puts files of its own in the place of the pages' numbers.
 *
 *   peers FOLDER UUID OWN     the share's folder; below it the pages of the GPU, and its own
 */
#include <stdio.h>
#include <unistd.h>

#include "../../plugin_image/limiter/cuda/peers.h"

int main(int count, char **arguments)
{
    static struct peers peers;
    if (count != 4 || !peers_open(&peers, arguments[1], arguments[2], arguments[3]))
        return 1;
    char line[16];
    while (fgets(line, sizeof line, stdin) != NULL) {
        for (unsigned i = 0; line[0] != '\n' && i < peers.count; i++)
            dup2(STDIN_FILENO, peers.peer[i].file);
        if (line[0] != '\n')
            continue;
        peers_scan(&peers);
        for (unsigned i = 0; i < peers.count; i++)
            printf("%s ", peers.peer[i].name);
        puts("");
        fflush(stdout);
    }
    return 0;
}
