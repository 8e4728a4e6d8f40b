/* counts.h: what counted launches have found, until somebody takes it.
 *
 *     soft_counts          one launch
 *       ├── memories[]     each argument, each threadgroup variable
 *       ├── rows[]         each access of the source to each of them, each branch
 *       ├── barriers[]     where threads waited
 *       └── executions[]   how often each block that `operations` names was carried out
 *
 * Owns:    the launches that were filed; which launches are to be counted.
 * Calls:   nothing.
 * Threads: any.
 */
#ifndef SOFT_COUNTS_H
#define SOFT_COUNTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct soft_counts_memory {
    char *name; /* owned */
    bool is_threadgroup, is_variable;
    uint32_t number; /* index of the argument, or the translator's of the variable */
    uint64_t nbytes; /* of the view, or of threadgroup memory */
    uint64_t distinct_read, distinct_written; /* bytes; of device memory */
    uint64_t atomics, most_atomics; /* operations, and how many of them at one address */
} soft_counts_memory;

/* An access is carried out once by a SIMD-group when its lanes come to it the n-th time since they all
 * met. */
typedef struct soft_counts_row {
    char *file; /* owned */
    uint32_t line, column, nbytes, how;
    uint32_t memory;          /* its place in `memories`; of a branch none */
    uint64_t executions;      /* by SIMD-groups */
    uint64_t lanes, possible; /* that took part, and that there were; summed up */
    uint64_t lines,
        least_lines; /* of a branch: lanes that found it true, executions with both */
    uint64_t rounds, least_rounds; /* of the banks of threadgroup memory */
} soft_counts_row;

typedef struct soft_counts_place {
    uint32_t offset; /* of the instruction in the image */
    uint64_t count;
} soft_counts_place;

typedef struct soft_counts {
    struct soft_counts *next;
    uint64_t tag;
    char *kernel, *image_path, *operations; /* owned; `operations` may be NULL */
    uint32_t grid[3], group[3];
    uint64_t threads, groups, simdgroups;
    uint64_t threadgroup_nbytes;  /* the most that a threadgroup took */
    soft_counts_memory *memories; /* owned, as all arrays */
    soft_counts_row *rows;
    soft_counts_place *barriers; /* by threadgroups */
    soft_counts_place *meetings; /* SIMD-group functions and barriers, by SIMD-groups */
    uint64_t *executions;
    size_t memory_count, row_count, barrier_count, meeting_count, execution_count;
} soft_counts;

/* Steals `counts`. */
void soft_counts_file(soft_counts *counts);
void soft_counts_free(soft_counts *counts); /* NULL is allowed */

/* The oldest launch with this tag that nobody has taken: owned (+1); NULL: there is none. */
soft_counts *soft_counts_take(uint64_t tag);

/* What this OS thread makes and encodes from now on counts, under this tag; 0: it does not. */
void soft_counts_ask(uint64_t tag);
/* The same of all threads, each kernel once. */
void soft_counts_ask_all(uint64_t tag);

/* Is a pipeline that this thread makes now to have an image that counts? */
bool soft_counts_are_asked(void);
/* The tag of a dispatch that this thread encodes now; 0: it is not to be counted.  `*has_counted` is the
 * image's. */
uint64_t soft_counts_tag(int *has_counted);

#endif /* SOFT_COUNTS_H */
