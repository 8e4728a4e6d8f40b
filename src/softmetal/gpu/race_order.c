/* race_order.c: see race_order.h.
 *
 * Owns:    nothing.
 * Calls:   race_shadow.h and race_use.h for tracked buffers, event.h for fences.
 * Threads: see race_order.h.
 */
#include "softmetal/gpu/race_order.h"

#include "softmetal/gpu/event.h"
#include "softmetal/gpu/race_use.h"

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

/* Metal itself orders passes of one queue that use a tracked buffer, one of them writing. */
static void
learn_hazards(const soft_race_recent *recent, int component, const soft_pass *pass,
              uint64_t number, uint64_t *before)
{
    soft_race_use uses[SOFT_RACE_USES];
    uint64_t earlier[SOFT_RACE_WINDOW];
    for (size_t index = 0; index < pass->command_count; index++) {
        size_t count = soft_race_use_list(&pass->commands[index], uses);
        for (size_t one = 0; one < count; one++) {
            if (!uses[one].storage->is_tracked) {
                continue;
            }
            size_t found =
                soft_race_shadow_list(uses[one].storage->shadow, component,
                                      uses[one].record.is_written, earlier, SOFT_RACE_WINDOW);
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
