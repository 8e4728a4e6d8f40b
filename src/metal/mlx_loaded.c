/* mlx_loaded.c: see mlx_loaded.h.
 *
 * Source: dyld(3); dl_iterate_phdr(3), where dlpi_adds counts what was loaded.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dl_iterate_phdr */
#endif
#include "metal/mlx_loaded.h"

#include <stdint.h>
#include <string.h>

#ifdef __APPLE__
#include <mach-o/dyld.h>
#else
#include <link.h>
#endif

static bool is_found;     /* atomic; MLX never goes */
static uint64_t how_many; /* atomic: what had been loaded when it was looked for last */

/* MLX's library on a Mac; that on Linux, libmlx.so, knows no Metal. */
static bool
is_mlx(const char *path)
{
    const char *slash = path == NULL ? NULL : strrchr(path, '/');
    return slash != NULL && strcmp(slash, "/libmlx.dylib") == 0;
}

#ifdef __APPLE__
static uint64_t
count_loaded(void)
{
    return _dyld_image_count();
}

static bool
look(void)
{
    for (uint32_t i = 0; i < _dyld_image_count(); i++) {
        if (is_mlx(_dyld_get_image_name(i))) {
            return true;
        }
    }
    return false;
}
#else
static int
read_count(struct dl_phdr_info *image, size_t size, void *count)
{
    (void)size;
    *(uint64_t *)count = image->dlpi_adds;
    return 1; /* the others say the same */
}

static uint64_t
count_loaded(void)
{
    uint64_t count = 0;
    (void)dl_iterate_phdr(read_count, &count);
    return count;
}

static int
read_name(struct dl_phdr_info *image, size_t size, void *unused)
{
    (void)size;
    (void)unused;
    return is_mlx(image->dlpi_name);
}

static bool
look(void)
{
    return dl_iterate_phdr(read_name, NULL) != 0;
}
#endif

bool
mlx_is_loaded(void)
{
    if (__atomic_load_n(&is_found, __ATOMIC_RELAXED)) {
        return true;
    }
    uint64_t count = count_loaded();
    if (count == __atomic_load_n(&how_many, __ATOMIC_RELAXED)) {
        return false;
    }
    bool is_there = look();
    __atomic_store_n(&is_found, is_there, __ATOMIC_RELAXED);
    /* last: what is loaded meanwhile counts again */
    __atomic_store_n(&how_many, count, __ATOMIC_RELAXED);
    return is_there;
}
