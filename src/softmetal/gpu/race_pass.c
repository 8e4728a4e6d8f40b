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

/* The bytes [*begin, *end) of an argument. */
static void
find_range(const soft_dispatch *dispatch, const soft_argument *argument, size_t *begin,
           size_t *end)
{
    *begin = argument->offset - argument->view_before;
    /* one in C touches what it was given, a compiled one whatever its text says */
    if (dispatch->kernel.run != NULL && argument->view_nbytes < *end - *begin) {
        *end = *begin + argument->view_nbytes;
    }
}

/* From the first row's begin to the last one's end. */
static size_t
span_of(const soft_command *command, bool is_written)
{
    const soft_box *box = command->box;
    if (box == NULL) {
        return command->nbytes;
    }
    size_t row = is_written ? box->destination_row : box->source_row;
    size_t image = is_written ? box->destination_image : box->source_image;
    return (box->rows - 1) * row + (box->images - 1) * image + box->row_nbytes;
}

bool
soft_race_use_at(const soft_command *command, int index, soft_race_use *use)
{
    bool is_written;
    const soft_dispatch *dispatch = command->dispatch;
    soft_storage *storage = soft_command_storage(command, index, &is_written);
    bool is_dispatch = command->kind == SOFT_DISPATCH;
    if (storage == NULL || (is_dispatch && soft_kernel_is_idle(&dispatch->kernel))) {
        return false;
    }
    size_t begin = 0, end = storage->nbytes; /* of a resource that is a buffer */
    if (is_dispatch && index < dispatch->count) {
        find_range(dispatch, &dispatch->arguments[index], &begin, &end);
    }
    else if (is_dispatch) {
        soft_resource resource =
            soft_dispatch_reached(dispatch, (size_t)(index - dispatch->count));
        begin = resource.texture != NULL ? resource.offset : begin;
        end = resource.texture != NULL ? begin + resource.nbytes : end;
    }
    else if (!is_dispatch) {
        begin = is_written ? command->destination_offset : command->source_offset;
        end = begin + span_of(command, is_written);
    }
    *use = make_use(command, storage, is_written, begin, end);
    return true;
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
    soft_race_use use;
    uint64_t earlier[SOFT_RACE_WINDOW];
    for (size_t index = 0; index < pass->command_count; index++) {
        const soft_command *command = &pass->commands[index];
        for (int one = 0; one < soft_command_storage_count(command); one++) {
            if (!soft_race_use_at(command, one, &use) || !use.storage->is_tracked) {
                continue;
            }
            if (soft_race_shadow_has_forgotten(use.storage->shadow)) {
                *before = UINT64_MAX;
                return;
            }
            size_t found =
                soft_race_shadow_list(use.storage->shadow, component, use.record.is_written,
                                      earlier, SOFT_RACE_WINDOW);
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
