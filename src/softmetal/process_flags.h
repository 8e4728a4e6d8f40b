/* process_flags.h: has the process forked, does it exit?
 *
 * Owns:    the two flags (atomic).
 * Calls:   nothing: events, lanes and races ask, and process.c, which needs those, sets them.
 * Threads: any.
 */
#ifndef SOFT_PROCESS_FLAGS_H
#define SOFT_PROCESS_FLAGS_H

#include <stdbool.h>

/* True in a child made by fork() after Metal was used: no worker exists there, and locks may be
 * held for ever by threads that do not exist. */
bool soft_process_is_forked(void);
/* True once exit() runs: workers stop as soon as they look. */
bool soft_process_is_exiting(void);

/* For process.c alone. */
void soft_process_mark_forked(void);
void soft_process_mark_exiting(void);

#endif /* SOFT_PROCESS_FLAGS_H */
