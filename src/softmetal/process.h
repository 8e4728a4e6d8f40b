/* process.h: what the whole process does: it forks, it exits, its workers are busy or idle.
 *
 * Owns:    the flags `forked` and `exiting`, the count of workers and of unfinished work.
 * Threads: any.
 */
#ifndef SOFT_PROCESS_H
#define SOFT_PROCESS_H

#include <stdbool.h>

#include "softmetal/process_flags.h"

/* Whoever makes a device calls it first: from then on fork and exit are watched. */
void soft_process_watch(void);

/* Start a detached thread with all signals blocked.  False if there is none to be had. */
bool soft_process_start_worker(void *(*run)(void *), void *argument);
void soft_process_enter_worker(void); /* the first thing `run` does */
void soft_process_end_worker(void);   /* the last thing `run` does */

/* One more, one fewer command buffer between commit and the end of its handlers. */
void soft_process_begin_work(void);
void soft_process_end_work(void);

#endif /* SOFT_PROCESS_H */
