/* race_use.c: see race_use.h.
 *
 * Owns:    nothing.
 * Calls:   program.h, storage.h.
 * Threads: see race_use.h.
 */
#include "softmetal/race_use.h"

soft_race_shadow **
soft_race_use_shadow(const soft_race_use *use)
{
    bool is_second = use->is_gpu_block && use->storage->mode == SOFT_MANAGED;
    return &use->storage->shadows[is_second];
}

static soft_race_use
make_use(const soft_command *command, soft_storage *storage, bool is_written, size_t start,
         size_t end)
{
    return (soft_race_use){.storage = storage,
                           .is_gpu_block = true,
                           .record = {.start = start,
                                      .end = end,
                                      .is_written = is_written,
                                      .is_tracked = storage->is_tracked,
                                      .site = command->site}};
}

static size_t
list_uses_of_dispatch(const soft_command *command, soft_race_use *uses)
{
    size_t count = 0;
    const soft_dispatch *dispatch = command->dispatch;
    int most = soft_kernel_is_idle(&dispatch->kernel) ? 0 : dispatch->count;
    for (int index = 0; index < most; index++) {
        bool is_written;
        soft_storage *storage = soft_command_storage(command, index, &is_written);
        if (storage != NULL) {
            size_t offset = dispatch->arguments[index].offset;
            uses[count++] = make_use(command, storage, is_written, offset, storage->nbytes);
        }
    }
    return count;
}

/* It reads the GPU's block and writes the CPU's.  Alone in its pass it is known by now which
 * bytes differ: others are written as they are, and the CPU may read them meanwhile. */
static size_t
list_uses_of_synchronize(const soft_command *command, bool is_alone, soft_race_use *uses)
{
    soft_storage *storage = command->destination;
    soft_range stale[SOFT_RACE_USES - 1] = {{0, storage->nbytes}};
    size_t count = is_alone ? soft_storage_list_stale(storage, stale, SOFT_RACE_USES - 1) : 1;
    uses[0] = make_use(command, storage, false, 0, storage->nbytes);
    for (size_t i = 0; i < count; i++) {
        uses[i + 1] = make_use(command, storage, true, stale[i].start, stale[i].end);
        uses[i + 1].is_gpu_block = false;
    }
    return count + 1;
}

size_t
soft_race_use_list(const soft_command *command, bool is_alone, soft_race_use *uses)
{
    if (command->kind == SOFT_DISPATCH) {
        return list_uses_of_dispatch(command, uses);
    }
    if (command->kind == SOFT_SYNCHRONIZE) {
        return list_uses_of_synchronize(command, is_alone, uses);
    }
    size_t count = 0, start = command->destination_offset, nbytes = command->nbytes;
    if (command->kind == SOFT_COPY) {
        size_t source = command->source_offset;
        uses[count++] = make_use(command, command->source, false, source, source + nbytes);
    }
    uses[count] = make_use(command, command->destination, true, start, start + nbytes);
    return count + 1;
}
