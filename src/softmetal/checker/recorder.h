/* recorder.h: who is told what ran and what was found, as values: a table of C functions that the
 * program above gives.
 *
 * Owns:    one pointer to that table.
 * Threads: any; the functions of the table are called under no lock of softmetal, on the OS thread
 *          that ran the launch, its findings first.  Whatever they do, the launch ends as without
 *          them.
 */
#ifndef SOFT_RECORDER_H
#define SOFT_RECORDER_H

#include "softmetal/checker/finding.h"
#include "softmetal/compiler.h"

/* All is borrowed until the call returns. */
typedef struct soft_recorded_finding {
    const char *kernel, *image_path;
    const soft_image *image;
    const soft_finding *finding;
    const char *text;                      /* what is wrong; no line, no thread */
    const char (*lines)[SOFT_LINE_NBYTES]; /* of finding->at: "file:line:column" */
    bool is_silenced;
} soft_recorded_finding;

typedef struct soft_recorded_launch {
    const char *kernel, *image_path;
    const soft_image *image;
    const soft_launch *launch;
    const char
        *runs_as; /* how the threads of a threadgroup took turns: rows, regions, fibers */
    uint64_t ns;
    bool is_done; /* else it was stopped, or a race was found */
} soft_recorded_launch;

typedef struct softmetal_recorder {
    /* True: it was not told before, so it is printed. */
    bool (*finding)(const soft_recorded_finding *finding);
    void (*launch)(const soft_recorded_launch *launch);
} softmetal_recorder;

/* From now on `recorder` (borrowed for ever) is told; NULL: nobody is. */
void softmetal_set_recorder(const softmetal_recorder *recorder);
const softmetal_recorder *soft_recorder_current(void);

#endif /* SOFT_RECORDER_H */
