/* race_use.c: see race_use.h.
 *
 * Owns:    nothing.
 * Calls:   program.h, soft_storage.h, call_site.h, validation.h.
 * Threads: see race_use.h.
 */
#include "softmetal/gpu/race_use.h"

#include <stdio.h>

#include "softmetal/call_site.h"
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
            size_t offset = dispatch->arguments[index].offset;
            uses[count++] = make_use(command, storage, is_written, offset, storage->nbytes);
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
