/* process.h: starts workers, counts their work, and watches the process fork and exit.
 *
 * Owns:    the count of workers and of unfinished command buffers.
 * Calls:   the locks of other files, which fork holds; host.h for what low files ask.
 * Threads: any.
 */
#ifndef SOFT_PROCESS_H
#define SOFT_PROCESS_H

#include <stdbool.h>

/* Call it before a device is made: from then on fork and exit are watched. */
void soft_process_watch(void);

/* False if the system has no thread left. */
bool soft_process_start_worker(void *(*run)(void *), void *argument);
void soft_process_enter_worker(void); /* the first thing `run` does */
void soft_process_end_worker(void);   /* the last thing `run` does */

/* One more (1), one fewer (-1) command buffer between commit and the end of its handlers. */
void soft_process_count_work(long change);

#endif /* SOFT_PROCESS_H */
