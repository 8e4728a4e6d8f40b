/* check_report.c: see check_report.h.
 *
 * Owns:    nothing.
 * Calls:   validation.h.
 * Threads: one at a time.
 */
#include "softmetal/kernels/check_report.h"

#include <stdio.h>

#include "softmetal/validation.h"

#define TEXT_NBYTES 1400

bool
soft_findings_has(const soft_findings *findings, uint32_t offset, uint32_t other)
{
    for (size_t i = 0; i < findings->count; i++) {
        const soft_at *at = findings->list[i].at;
        if (findings->list[i].count == 2 &&
            ((at[0].offset == offset && at[1].offset == other) ||
             (at[0].offset == other && at[1].offset == offset))) {
            return true;
        }
    }
    return false;
}

soft_finding *
soft_findings_add(soft_findings *findings)
{
    if (findings->count == SOFT_MOST_FINDINGS) {
        findings->has_more = true;
        return NULL;
    }
    soft_finding *finding = &findings->list[findings->count++];
    *finding = (soft_finding){.count = 0};
    return finding;
}

/* "program_source:12:5, thread (3,0,0) of threadgroup (0,0,0)" */
static int
describe(const soft_at *at, const char *image_path, char *text, size_t nbytes)
{
    char line[512] = "an unknown line";
    if (at->offset != 0) {
        snprintf(line, sizeof line, "%s+0x%x", image_path, at->offset);
    }
    return snprintf(text, nbytes, "%s, thread (%u,%u,%u) of threadgroup (%u,%u,%u)", line,
                    at->thread[0], at->thread[1], at->thread[2], at->group[0], at->group[1],
                    at->group[2]);
}

static void
compose(const soft_finding *finding, const char *kernel, const char *image_path,
        char text[TEXT_NBYTES])
{
    char places[2][700];
    for (int i = 0; i < finding->count; i++) {
        describe(&finding->at[i], image_path, places[i], sizeof places[i]);
    }
    snprintf(text, TEXT_NBYTES, "%s%s%s%s%s%s%s.", kernel == NULL ? "" : kernel,
             kernel == NULL ? "" : ": ", finding->text, finding->count > 0 ? ": " : "",
             finding->count > 0 ? places[0] : "", finding->count > 1 ? "; " : "",
             finding->count > 1 ? places[1] : "");
}

void
soft_findings_say(const soft_findings *findings, const char *kernel, const char *image_path,
                  char *error, size_t nbytes)
{
    for (size_t i = 0; i < findings->count; i++) {
        char text[TEXT_NBYTES];
        compose(&findings->list[i], kernel, image_path, text);
        if (i == 0) {
            snprintf(error, nbytes, "%s", text);
        }
        soft_validation_insist(SOFT_REPORT_KERNEL, "%s%s", text,
                               findings->has_more && i + 1 == findings->count
                                   ? " (More was found.)"
                                   : "");
    }
}
