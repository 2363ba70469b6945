/* Says how much memory the variables of an image in a file take: images FILE. */
#include <stdio.h>
#include <stdlib.h>

#include "../../plugin_image/limiter/cuda/images.h"

int main(int count, char **arguments)
{
    FILE *file = count == 2 ? fopen(arguments[1], "rb") : NULL;
    if (file == NULL)
        return 1;
    fseek(file, 0, SEEK_END);
    size_t size = (size_t)ftell(file);
    rewind(file);
    char *image = malloc(size > 0 ? size : 1); /* exactly, so that a step too far is seen */
    if (fread(image, 1, size, file) != size)
        return 1;
    printf("%llu\n", (unsigned long long)image_bytes(image, size));
    free(image);
    fclose(file);
    return 0;
}
