/* stream_lost.h: failures of GPU work that no wait can tell of: they go to sys.unraisablehook.
 *
 * Threads: the GIL is held.
 */
#ifndef MD_STREAM_LOST_H
#define MD_STREAM_LOST_H

/* From now on they are reported in the main interpreter, by a pending call, until its end. */
void stream_lost_watch(void);

#endif /* MD_STREAM_LOST_H */
