/* image_path.h: where the images of images/ are: beside the program that runs. */
#ifndef IMAGE_PATH_H
#define IMAGE_PATH_H

#include <stdio.h>
#include <unistd.h>

#include "../c/check_macro.h"

#define IMAGE_PATH_SIZE 4096

static inline void
find_image(const char *name, char path[IMAGE_PATH_SIZE])
{
    ssize_t length = readlink("/proc/self/exe", path, IMAGE_PATH_SIZE - 64);
    CHECK(length > 0);
    while (path[length - 1] != '/') {
        length -= 1;
    }
    snprintf(path + length, 64, "%s.so", name);
}

#endif /* IMAGE_PATH_H */
