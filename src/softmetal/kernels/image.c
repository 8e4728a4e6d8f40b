/* image.c: see image.h. */
#define _GNU_SOURCE /* dladdr, dl_iterate_phdr */

#include "softmetal/kernels/image.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "softmetal/host.h"
#include "softmetal/kernels/threadgroup.h"

static soft_image *
find_image(void *library, const char *path, char *error, size_t error_nbytes)
{
    soft_image *image = dlsym(library, "softmetal_image");
    if (image == NULL) {
        snprintf(error, error_nbytes, "The file %s is not a compiled kernel.", path);
        return NULL;
    }
    if (image->abi != SOFT_KERNEL_ABI) {
        snprintf(error, error_nbytes,
                 "The compiled kernel %s has version %u of the interface, and this run time "
                 "version %u: delete the file, and it is compiled again.",
                 path, image->abi, SOFT_KERNEL_ABI);
        return NULL;
    }
    return image;
}

static int
measure(struct dl_phdr_info *library, size_t info_nbytes, void *context)
{
    soft_loaded_image *loaded = context;
    (void)info_nbytes;
    if ((const char *)library->dlpi_addr != loaded->base) {
        return 0;
    }
    for (int index = 0; index < library->dlpi_phnum; index++) {
        const ElfW(Phdr) *segment = &library->dlpi_phdr[index];
        size_t end = segment->p_vaddr + segment->p_memsz;
        if (segment->p_type == PT_LOAD && end > loaded->nbytes) {
            loaded->nbytes = end;
        }
    }
    return 1;
}

static void
find_place(soft_loaded_image *loaded)
{
    Dl_info info;
    if (dladdr(loaded->image, &info) != 0) {
        loaded->base = info.dli_fbase;
        dl_iterate_phdr(measure, loaded);
    }
}

soft_loaded_image *
soft_image_open(const char *path, const char *name, char *error, size_t error_nbytes)
{
    if (soft_process_is_forked()) {
        snprintf(error, error_nbytes, "Kernels cannot be used in a forked child.");
        return NULL;
    }
    size_t path_nbytes = strlen(path) + 1, name_nbytes = strlen(name) + 1;
    soft_loaded_image *loaded = malloc(sizeof *loaded + path_nbytes + name_nbytes);
    if (loaded == NULL) {
        snprintf(error, error_nbytes, "There is no memory for the compiled kernel %s.", path);
        return NULL;
    }
    *loaded = (soft_loaded_image){.references = 1, .name = loaded->path + path_nbytes};
    memcpy(loaded->path, path, path_nbytes);
    memcpy(loaded->path + path_nbytes, name, name_nbytes);
    loaded->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (loaded->library == NULL) {
        snprintf(error, error_nbytes, "The compiled kernel cannot be loaded: %s.", dlerror());
    }
    else {
        loaded->image = find_image(loaded->library, path, error, error_nbytes);
    }
    if (loaded->image == NULL) {
        soft_image_release(loaded);
        return NULL;
    }
    find_place(loaded);
    __atomic_store_n(&loaded->image->runtime, &soft_threadgroup_runtime, __ATOMIC_RELEASE);
    return loaded;
}

soft_loaded_image *
soft_image_retain(soft_loaded_image *image)
{
    __atomic_add_fetch(&image->references, 1, __ATOMIC_RELAXED);
    return image;
}

/* In a forked child the library stays: the loader's lock may be held there. */
void
soft_image_release(soft_loaded_image *image)
{
    if (image == NULL || __atomic_sub_fetch(&image->references, 1, __ATOMIC_ACQ_REL) > 0) {
        return;
    }
    if (image->library != NULL && !soft_process_is_forked()) {
        dlclose(image->library);
    }
    free(image);
}
