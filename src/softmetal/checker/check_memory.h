/* check_memory.h: which memory is the kernel's: its views, its threadgroup memory.
 *
 * Owns:    the shadows of a launch, from open to close.
 * Calls:   check_shadow.h, check_report.h.
 * Threads: the OS thread that runs the launch.
 */
#ifndef SOFT_CHECK_MEMORY_H
#define SOFT_CHECK_MEMORY_H

#include "softmetal/checker/check_state.h"

void soft_memory_open(soft_check *check);
void soft_memory_close(soft_check *check);
/* What an access is part of; NULL: of memory that all may read.  False: it may not be made. */
bool soft_memory_find(const soft_check *check, uintptr_t at, size_t nbytes, soft_u32 how,
                      const soft_range **found);
/* Say of such an access why, and leave the kernel. */
_Noreturn void soft_memory_stop(soft_check *check, uintptr_t at, size_t nbytes, soft_u32 how,
                                const void *site);
#define SOFT_NAME_NBYTES 160
/* "buffer 1 (y)" */
void soft_memory_name(const soft_check *check, const soft_range *range,
                      char text[SOFT_NAME_NBYTES]);

#endif /* SOFT_CHECK_MEMORY_H */
