/* race_order.c: see race_order.h.
 *
 * Owns:    nothing.
 * Calls:   race_shadow.h, event.h for fences.
 * Threads: see race_order.h.
 */
#include "softmetal/race_order.h"

/* `earlier` and all that is known to come before it come before `number`. */
static void
add_earlier(const soft_race_recent *recent, uint64_t earlier, uint64_t number, uint64_t *before)
{
    if (earlier >= number || number - earlier > SOFT_RACE_WINDOW) {
        return;
    }
    uint64_t distance = number - earlier;
    *before |= UINT64_C(1) << (distance - 1);
    if (distance < SOFT_RACE_WINDOW &&
        recent->passes[earlier % SOFT_RACE_WINDOW].number == earlier) {
        *before |= recent->passes[earlier % SOFT_RACE_WINDOW].before << distance;
    }
}

static void
learn_fences(const soft_race_recent *recent, int component, const soft_pass *pass,
             uint64_t number, uint64_t *before)
{
    for (size_t index = 0; index < pass->awaited_count; index++) {
        const soft_fence_updates *updates = soft_event_fence_updates(pass->awaited[index]);
        for (size_t one = 0; one < SOFT_FENCE_UPDATES; one++) {
            if (updates->queue[one] == component) {
                add_earlier(recent, updates->number[one], number, before);
            }
        }
    }
}

static void
note_fences(int component, const soft_pass *pass, uint64_t number)
{
    for (size_t index = 0; index < pass->updated_count; index++) {
        soft_fence_updates *updates = soft_event_fence_updates(pass->updated[index]);
        size_t place = updates->next++ % SOFT_FENCE_UPDATES;
        updates->queue[place] = component;
        updates->number[place] = number;
    }
}

static size_t
list_uses_of_dispatch(const soft_command *command, soft_race_use *uses)
{
    size_t count = 0;
    for (int index = 0; index < SOFT_MOST_ARGUMENTS; index++) {
        bool is_written;
        soft_storage *storage = soft_command_storage(command, index, &is_written);
        if (storage != NULL) {
            uses[count++] = (soft_race_use){.storage = storage,
                                            .is_gpu_block = true,
                                            .is_written = is_written,
                                            .start = command->dispatch->arguments[index].offset,
                                            .end = storage->nbytes,
                                            .site = command->site};
        }
    }
    return count;
}

size_t
soft_race_order_uses(const soft_command *command, soft_race_use *uses)
{
    if (command->kind == SOFT_DISPATCH) {
        return list_uses_of_dispatch(command, uses);
    }
    soft_race_use written = {.storage = command->destination,
                             .is_gpu_block = command->kind != SOFT_SYNCHRONIZE,
                             .is_written = true,
                             .start = command->destination_offset,
                             .end = command->destination_offset + command->nbytes,
                             .site = command->site};
    soft_race_use read = written;
    read.is_written = false;
    read.is_gpu_block = true;
    if (command->kind == SOFT_COPY) {
        read.storage = command->source;
        read.start = command->source_offset;
        read.end = command->source_offset + command->nbytes;
    }
    size_t count = 0;
    if (command->kind != SOFT_FILL) {
        uses[count++] = read;
    }
    uses[count++] = written;
    return count;
}

/* Metal itself orders passes of one queue that use a tracked buffer, one of them writing. */
static void
learn_hazards(const soft_race_recent *recent, int component, const soft_pass *pass,
              uint64_t number, uint64_t *before)
{
    soft_race_use uses[SOFT_RACE_USES];
    uint64_t earlier[SOFT_RACE_WINDOW];
    for (size_t index = 0; index < pass->command_count; index++) {
        size_t count = soft_race_order_uses(&pass->commands[index], uses);
        for (size_t one = 0; one < count; one++) {
            size_t found =
                soft_race_shadow_list(&uses[one], component, earlier, SOFT_RACE_WINDOW);
            for (size_t each = 0; each < found; each++) {
                add_earlier(recent, earlier[each], number, before);
            }
        }
    }
}

uint64_t
soft_race_order_learn(const soft_race_recent *recent, int component, const soft_pass *pass,
                      uint64_t number)
{
    uint64_t before = 0;
    learn_fences(recent, component, pass, number, &before);
    learn_hazards(recent, component, pass, number, &before);
    return before;
}

void
soft_race_order_note(soft_race_recent *recent, int component, const soft_pass *pass,
                     uint64_t number, uint64_t before)
{
    recent->passes[number % SOFT_RACE_WINDOW].number = number;
    recent->passes[number % SOFT_RACE_WINDOW].before = before;
    note_fences(component, pass, number);
}

bool
soft_race_order_holds(uint64_t before, uint64_t earlier, uint64_t number)
{
    uint64_t distance = number - earlier;
    return earlier < number &&
           (distance > SOFT_RACE_WINDOW || (before >> (distance - 1) & 1) != 0);
}
