/* stream_lost.h: failures of GPU work that no wait can report: they go to sys.unraisablehook.
 *
 * Threads: the GIL is held.
 */
#ifndef MD_STREAM_LOST_H
#define MD_STREAM_LOST_H

/* Report them in the main interpreter from now on, by a pending call, until it ends. */
void stream_lost_watch(void);

#endif /* MD_STREAM_LOST_H */
