/* check_report.h: what a checked launch has found, kept until its end and then said.
 *
 * Owns:    the findings: a few; of the same lines only the first.
 * Calls:   compiler.h for the lines, validation.h to say them.
 * Threads: one at a time.
 */
#ifndef SOFT_CHECK_REPORT_H
#define SOFT_CHECK_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SOFT_MOST_FINDINGS 16

/* A thread of the kernel at an instruction. */
typedef struct soft_at {
    uint32_t offset; /* of the instruction in the image; 0: not known */
    uint32_t thread[3];
    uint32_t group[3];
} soft_at;

typedef struct soft_finding {
    char text[320]; /* what is wrong; no line, no thread */
    soft_at at[2];
    int count; /* of `at` */
    bool is_unwritten;
} soft_finding;

typedef struct soft_findings {
    soft_finding list[SOFT_MOST_FINDINGS];
    size_t count;
    bool has_more;
} soft_findings;

/* Has one of the same kind at these two instructions been found?  Then the launch knows it. */
bool soft_findings_has(const soft_findings *findings, uint32_t offset, uint32_t other);
/* Where to write a finding; NULL when there are enough. */
soft_finding *soft_findings_add(soft_findings *findings);
/* Say all of them; the first one's text goes to `error`.  No lock is held: Python is asked. */
void soft_findings_say(const soft_findings *findings, const char *kernel,
                       const char *image_path, char *error, size_t nbytes);

#endif /* SOFT_CHECK_REPORT_H */
