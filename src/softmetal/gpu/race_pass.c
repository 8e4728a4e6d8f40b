/* race_pass.c: see race_pass.h. */
#include "softmetal/gpu/race_pass.h"

#include <stdio.h>

#include "softmetal/call_site.h"
#include "softmetal/gpu/event.h"
#include "softmetal/validation.h"

static soft_race_use
make_use(const soft_command *command, soft_storage *storage, bool is_written, size_t start,
         size_t end)
{
    return (soft_race_use){.storage = storage,
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
            const soft_argument *argument = &dispatch->arguments[index];
            size_t begin = argument->offset - argument->view_before;
            size_t most = storage->nbytes - begin;
            /* one in C touches what it was given, a compiled one whatever its text says */
            bool is_exact = dispatch->kernel.run != NULL && argument->view_nbytes < most;
            uses[count++] = make_use(command, storage, is_written, begin,
                                     begin + (is_exact ? argument->view_nbytes : most));
        }
    }
    return count;
}

size_t
soft_race_use_list(const soft_command *command, soft_race_use *uses)
{
    if (command->kind == SOFT_DISPATCH) {
        return list_uses_of_dispatch(command, uses);
    }
    size_t count = 0, start = command->destination_offset, nbytes = command->nbytes;
    if (command->kind == SOFT_COPY) {
        size_t source = command->source_offset;
        uses[count++] = make_use(command, command->source, false, source, source + nbytes);
    }
    uses[count] = make_use(command, command->destination, true, start, start + nbytes);
    return count + 1;
}

/* ---- the order of the passes of one queue ---- */

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

/* Metal itself orders passes of one queue that use a tracked buffer, one of them writing.  Where
 * some that used it are forgotten, all are taken to be in order. */
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
            if (soft_race_shadow_has_forgotten(uses[one].storage->shadow)) {
                *before = UINT64_MAX;
                return;
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

/* ---- the text of a race ---- */

void
soft_race_report_add(soft_race_report *report, soft_storage *storage,
                     const soft_race_record *earlier, const soft_race_record *later)
{
    if (report->is_found) {
        return;
    }
    report->is_found = true;
    report->earlier = *earlier;
    report->later = *later;
    report->nbytes = storage->nbytes;
    soft_storage_copy_label(storage, report->label);
}

static const char *
describe(const soft_race_record *record, char *text, size_t nbytes)
{
    char site[512];
    soft_call_site_describe(record->site, site, sizeof site);
    if (record->queue == 0) {
        snprintf(text, nbytes, "a %s of bytes %zu to %zu by the CPU at %s",
                 record->is_written ? "write" : "read", record->start, record->end, site);
    }
    else {
        snprintf(text, nbytes, "a %s of bytes %zu to %zu by queue %llu, encoded at %s",
                 record->is_written ? "write" : "read", record->start, record->end,
                 (unsigned long long)record->queue, site);
    }
    return text;
}

void
soft_race_report_make(const soft_race_report *report)
{
    if (!report->is_found) {
        return;
    }
    char earlier[700], later[700];
    soft_validation_report(SOFT_REPORT_RACE,
                           "nothing orders two uses of the buffer \"%s\" (%zu bytes): %s; and "
                           "%s.",
                           report->label, report->nbytes,
                           describe(&report->earlier, earlier, sizeof earlier),
                           describe(&report->later, later, sizeof later));
}
