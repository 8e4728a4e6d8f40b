/* kernel.h: kernels written in C, found by name, and one dispatch of one.
 *
 * Owns:    the table of kernels, behind a lock; a dispatch owns copies of the bytes it is
 *          given.
 * Calls:   storage.h, softmetal.h.
 * Threads: the table from any thread; a dispatch as program.h says.
 */
#ifndef SOFT_KERNEL_H
#define SOFT_KERNEL_H

#include <stdbool.h>
#include <stddef.h>

#include "softmetal/softmetal.h"
#include "softmetal/storage.h"

#define SOFT_MOST_ARGUMENTS 31

typedef struct soft_kernel {
    const char *name;      /* borrowed for ever */
    softmetal_kernel *run; /* NULL: it touches no byte */
    unsigned written;      /* bit i: argument i is written */
} soft_kernel;

typedef struct soft_argument {
    soft_storage *storage; /* borrowed from the program's `bound`; NULL: bytes, or nothing */
    size_t offset;
    void *bytes; /* owned */
} soft_argument;

typedef struct soft_dispatch {
    soft_kernel kernel;
    size_t grid[3];
    soft_argument arguments[SOFT_MOST_ARGUMENTS];
} soft_dispatch;

bool soft_kernel_find(const char *name, soft_kernel *out); /* false: nobody registered it */

/* A copy with bytes of its own; NULL when there is no memory. */
soft_dispatch *soft_dispatch_copy(const soft_dispatch *dispatch);
void soft_dispatch_free(soft_dispatch *dispatch);  /* NULL is allowed */
void soft_dispatch_clear(soft_dispatch *dispatch); /* the arguments alone */
bool soft_argument_set_bytes(soft_argument *argument, const void *bytes, size_t nbytes);
void soft_dispatch_run(const soft_dispatch *dispatch);

void soft_kernel_lock(void); /* held over fork */
void soft_kernel_unlock(void);

#endif /* SOFT_KERNEL_H */
