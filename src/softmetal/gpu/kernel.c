/* kernel.c: see kernel.h. */
#include "softmetal/gpu/kernel.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "softmetal/checker/counts.h"
#include "softmetal/host.h"
#include "softmetal/kernels/image.h"

#define MOST_KERNELS 256

pthread_mutex_t soft_kernel_mutex = PTHREAD_MUTEX_INITIALIZER;
static soft_kernel table[MOST_KERNELS];
static int table_count;

/* The place of a name in the table, or `table_count`. */
static int
place_of_locked(const char *name)
{
    int place = 0;
    while (place < table_count && strcmp(table[place].name, name) != 0) {
        place += 1;
    }
    return place;
}

int
softmetal_register_kernel(const char *name, softmetal_kernel *run, unsigned written)
{
    pthread_mutex_lock(&soft_kernel_mutex);
    int place = place_of_locked(name);
    if (place < MOST_KERNELS) {
        table[place] = (soft_kernel){.name = name, .run = run, .written = written};
        table_count = place == table_count ? place + 1 : table_count;
    }
    pthread_mutex_unlock(&soft_kernel_mutex);
    return place < MOST_KERNELS ? 0 : -1;
}

bool
soft_kernel_find(const char *name, soft_kernel *out)
{
    pthread_mutex_lock(&soft_kernel_mutex);
    int place = place_of_locked(name);
    bool found = place < table_count;
    if (found) {
        *out = table[place];
    }
    pthread_mutex_unlock(&soft_kernel_mutex);
    return found;
}

bool
soft_kernel_is_named_in(const char *text)
{
    pthread_mutex_lock(&soft_kernel_mutex);
    int place = 0;
    while (place < table_count && strstr(text, table[place].name) == NULL) {
        place += 1;
    }
    bool found = place < table_count;
    pthread_mutex_unlock(&soft_kernel_mutex);
    return found;
}

bool
soft_kernel_is_idle(const soft_kernel *kernel)
{
    return kernel->run == NULL && kernel->image == NULL;
}

/* ---- one dispatch ---- */

soft_dispatch *
soft_dispatch_new(void)
{
    return calloc(1, sizeof(soft_dispatch) + SOFT_MOST_ARGUMENTS * sizeof(soft_argument));
}

soft_argument *
soft_dispatch_clear_argument(soft_dispatch *dispatch, size_t index)
{
    soft_argument *argument = &dispatch->arguments[index];
    free(argument->bytes);
    *argument = (soft_argument){.view_nbytes = SIZE_MAX};
    dispatch->count = dispatch->count > (int)index ? dispatch->count : (int)index + 1;
    return argument;
}

/* The size of a cache line: a launch's counts do not depend on the address.  It is more than the largest type
 * asks for that a kernel may find there, a long4. */
#define BYTES_ALIGNMENT 128

bool
soft_argument_set_bytes(soft_argument *argument, const void *bytes, size_t nbytes)
{
    size_t whole = (nbytes + BYTES_ALIGNMENT - 1) / BYTES_ALIGNMENT * BYTES_ALIGNMENT;
    void *copy = aligned_alloc(BYTES_ALIGNMENT, whole);
    if (copy == NULL) {
        return false;
    }
    memcpy(copy, bytes, nbytes);
    argument->bytes = copy;
    argument->nbytes = nbytes;
    return true;
}

static bool
add_resource(soft_dispatch *dispatch, soft_resource resource)
{
    if (!soft_grow((void **)&dispatch->resources, dispatch->resource_count,
                   &dispatch->resource_capacity, sizeof *dispatch->resources)) {
        return false;
    }
    resource.number = (unsigned)dispatch->resource_count;
    dispatch->resources[dispatch->resource_count++] = resource;
    return true;
}

bool
soft_dispatch_use(soft_dispatch *dispatch, soft_storage *storage, bool is_written)
{
    return add_resource(dispatch, (soft_resource){.storage = storage,
                                                  .nbytes = storage->nbytes,
                                                  .is_written = is_written});
}

static soft_resource
resource_of(const soft_pixels *pixels, bool is_written)
{
    return (soft_resource){.storage = pixels->storage,
                           .offset = soft_pixels_offset(pixels, 0, 0, 0, 0),
                           .nbytes = (size_t)pixels->as.nbytes,
                           .is_written = is_written,
                           .pixel_nbytes = (unsigned)pixel_format_nbytes(pixels->format),
                           .texture = &pixels->as};
}

bool
soft_dispatch_use_texture(soft_dispatch *dispatch, const soft_pixels *pixels, bool is_written)
{
    return add_resource(dispatch, resource_of(pixels, is_written));
}

size_t
soft_dispatch_reached_count(const soft_dispatch *dispatch)
{
    return dispatch->resource_count + dispatch->textures.count;
}

soft_resource
soft_dispatch_reached(const soft_dispatch *dispatch, size_t at)
{
    if (at < dispatch->resource_count) {
        return dispatch->resources[at];
    }
    const soft_texture_use *use = &dispatch->textures.uses[at - dispatch->resource_count];
    soft_resource resource = resource_of(use->pixels, use->is_written);
    resource.number = use->index;
    resource.is_argument = true;
    return resource;
}

static bool
copy_resources(soft_dispatch *copy)
{
    size_t nbytes = copy->resource_count * sizeof *copy->resources;
    const soft_resource *resources = copy->resources;
    copy->resources = nbytes == 0 ? NULL : malloc(nbytes);
    copy->resource_capacity = copy->resource_count;
    if (copy->resources != NULL) {
        memcpy(copy->resources, resources, nbytes);
    }
    return nbytes == 0 || copy->resources != NULL;
}

soft_dispatch *
soft_dispatch_copy(const soft_dispatch *dispatch)
{
    size_t nbytes = (size_t)dispatch->count * sizeof(soft_argument);
    soft_dispatch *copy = malloc(sizeof *copy + nbytes);
    if (copy == NULL) {
        return NULL;
    }
    *copy = *dispatch;
    memcpy(copy->arguments, dispatch->arguments, nbytes);
    if (copy->kernel.image != NULL) {
        (void)soft_image_retain(copy->kernel.image);
    }
    if (copy->kernel.counting != NULL) {
        (void)soft_image_retain(copy->kernel.counting);
        copy->count_tag = soft_counts_tag(&copy->kernel.counting->has_counted);
    }
    bool is_whole = copy_resources(copy);
    is_whole = soft_textures_split(&copy->textures) && is_whole;
    for (int index = 0; index < copy->count; index++) {
        soft_argument *argument = &copy->arguments[index];
        const void *bytes = argument->bytes;
        argument->bytes = NULL;
        is_whole = is_whole && (bytes == NULL ||
                                soft_argument_set_bytes(argument, bytes, argument->nbytes));
    }
    if (!is_whole) {
        /* mutant survives (dropped count): a leak, where there is no memory */
        soft_dispatch_free(copy);
        return NULL;
    }
    return copy;
}

void
soft_dispatch_free(soft_dispatch *dispatch)
{
    if (dispatch == NULL) {
        return;
    }
    for (int index = 0; index < dispatch->count; index++) {
        free(dispatch->arguments[index].bytes);
    }
    soft_given *given = dispatch->given;
    while (given != NULL) {
        soft_given *next = given->next;
        free(given);
        given = next;
    }
    soft_image_release(dispatch->kernel.image);
    soft_image_release(dispatch->kernel.counting);
    free(dispatch->resources);
    soft_textures_clear(&dispatch->textures);
    free(dispatch);
}

void
soft_dispatch_gave(soft_dispatch *dispatch, const softmetal_given *from)
{
    size_t axes = (size_t)from->axes;
    soft_given *given = malloc(sizeof *given + axes * sizeof given->steps[0]);
    if (given == NULL) {
        return;
    }
    given->next = dispatch->given;
    given->index = from->index;
    given->is_strided = from->is_strided;
    given->axes = from->axes;
    given->item_nbytes = from->item_nbytes;
    snprintf(given->text, sizeof given->text, "%s", from->text);
    if (axes > 0) {
        memcpy(given->steps, from->steps, axes * sizeof given->steps[0]);
    }
    dispatch->given = given;
}

static void *
address_of(const soft_argument *argument)
{
    return argument->storage != NULL ? argument->storage->bytes + argument->offset
                                     : argument->bytes;
}

static size_t
extent_of(const soft_argument *argument)
{
    size_t begin = argument->offset - argument->view_before;
    size_t most =
        argument->storage == NULL ? argument->nbytes : argument->storage->nbytes - begin;
    return argument->view_nbytes < most ? argument->view_nbytes : most;
}

/* Which bytes nobody has written, of each buffer that has some.  False: none has. */
static bool
find_fresh(const soft_dispatch *dispatch, soft_fresh *fresh[SOFT_MOST_ARGUMENTS])
{
    bool is_any = false;
    for (int index = 0; index < dispatch->count; index++) {
        const soft_argument *argument = &dispatch->arguments[index];
        fresh[index] = argument->storage == NULL
                           ? NULL
                           : __atomic_load_n(&argument->storage->fresh, __ATOMIC_ACQUIRE);
        is_any = is_any || fresh[index] != NULL;
    }
    return is_any;
}

/* The kernel may have written whatever it was given to write. */
static void
note_all_written(const soft_dispatch *dispatch)
{
    for (int index = 0; index < dispatch->count; index++) {
        const soft_argument *argument = &dispatch->arguments[index];
        if (argument->storage != NULL && (dispatch->kernel.written >> index & 1) != 0) {
            soft_storage_written(argument->storage, argument->offset - argument->view_before,
                                 extent_of(argument));
        }
    }
    for (size_t i = 0; i < soft_dispatch_reached_count(dispatch); i++) {
        soft_resource resource = soft_dispatch_reached(dispatch, i);
        if (resource.is_written) {
            soft_storage_written(resource.storage, resource.offset, resource.nbytes);
        }
    }
}

/* What the launch may reach beside its arguments.  True: some of it was never written. */
static bool
list_reached(const soft_dispatch *dispatch, soft_reached *reached)
{
    bool is_fresh = false;
    for (size_t i = 0; i < soft_dispatch_reached_count(dispatch); i++) {
        soft_resource from = soft_dispatch_reached(dispatch, i);
        reached[i] = (soft_reached){
            .address = from.storage->bytes + from.offset,
            .nbytes = from.nbytes,
            .fresh = __atomic_load_n(&from.storage->fresh, __ATOMIC_ACQUIRE),
            .number = from.number,
            .is_written = from.is_written,
            .is_foreign = from.storage->is_foreign,
            .texture = from.texture,
            .is_argument = from.is_argument,
            .pixel_nbytes = (soft_u8)from.pixel_nbytes,
        };
        is_fresh = is_fresh || reached[i].fresh != NULL;
    }
    return is_fresh;
}

static bool
run_image(const soft_dispatch *dispatch, char **text)
{
    soft_loaded_image *image =
        dispatch->count_tag != 0 ? dispatch->kernel.counting : dispatch->kernel.image;
    size_t reached_nbytes = soft_dispatch_reached_count(dispatch) * sizeof(soft_reached);
    soft_reached *reached = reached_nbytes == 0 ? NULL : malloc(reached_nbytes);
    if (reached_nbytes > 0 && reached == NULL) {
        *text = strdup("there is no memory for the launch");
        return false;
    }
    soft_launch launch = {.kernel = image->name,
                          .count_tag = dispatch->count_tag,
                          .given = dispatch->given,
                          .reached = reached,
                          .reached_count = (soft_u32)soft_dispatch_reached_count(dispatch),
                          .find_buffer = soft_storage_find,
                          .samplers = dispatch->textures.samplers};
    const soft_texture *textures[SOFT_MOST_TEXTURES];
    if (dispatch->textures.count > 0) {
        memset(textures, 0, sizeof textures);
        soft_textures_list(&dispatch->textures, textures);
        launch.textures = textures;
    }
    soft_fresh *fresh[SOFT_MOST_ARGUMENTS];
    bool is_fresh = find_fresh(dispatch, fresh);
    launch.fresh = is_fresh ? fresh : NULL;
    is_fresh = list_reached(dispatch, reached) || is_fresh;
    char error[4096] = "";
    for (int axis = 0; axis < 3; axis++) {
        size_t grid = dispatch->grid[axis], group = dispatch->group[axis];
        launch.grid[axis] = (soft_u32)grid;
        launch.group[axis] = (soft_u32)group;
        launch.groups[axis] = (soft_u32)((grid + group - 1) / group);
    }
    for (int index = 0; index < dispatch->count; index++) {
        launch.buffers[index] = address_of(&dispatch->arguments[index]);
        launch.buffer_nbytes[index] = extent_of(&dispatch->arguments[index]);
        launch.buffer_before[index] = dispatch->arguments[index].view_before;
        const soft_storage *storage = dispatch->arguments[index].storage;
        launch.foreign |= (soft_u32)(storage != NULL && storage->is_foreign) << index;
    }
    memcpy(launch.threadgroup_nbytes, dispatch->threadgroup_nbytes,
           sizeof launch.threadgroup_nbytes);
    bool is_done = soft_image_run(image, &launch, error, sizeof error);
    const soft_image *facts = image->image;
    if (is_fresh && !(is_done && facts->is_checked && !facts->is_counting)) {
        note_all_written(dispatch); /* else the checker has said what was */
    }
    free(reached);
    *text = is_done ? NULL : strdup(error);
    return is_done;
}

bool
soft_dispatch_run(const soft_dispatch *dispatch, char **text)
{
    if (dispatch->kernel.image != NULL) {
        return run_image(dispatch, text);
    }
    void *addresses[SOFT_MOST_ARGUMENTS] = {NULL};
    for (int index = 0; index < dispatch->count; index++) {
        addresses[index] = address_of(&dispatch->arguments[index]);
    }
    if (dispatch->kernel.run != NULL) {
        dispatch->kernel.run(addresses, dispatch->grid);
        note_all_written(dispatch);
    }
    return true;
}
