/* race_report.c: the text of a race; see race_report.h.
 *
 * Owns:    nothing.
 * Calls:   call_site.h, soft_storage.h, validation.h.
 * Threads: see race_report.h.
 */
#include "softmetal/gpu/race_report.h"

#include <stdio.h>

#include "softmetal/call_site.h"
#include "softmetal/validation.h"

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
