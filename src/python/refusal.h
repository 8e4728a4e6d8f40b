/* refusal.h: the last error that our producer raised, for users whose framework hides
 * it.
 *
 * Owns:    one exception a thread, in the thread's own dict, without its traceback (which
 *          would keep the frames it passed, and so arrays, alive).
 * Threads: the GIL is held.
 */
#ifndef MD_REFUSAL_H
#define MD_REFUSAL_H

#include "python/state.h"

/* Remember the exception that is set; it stays set.  What cannot be remembered is not. */
void refusal_note(void);

extern PyMethodDef refusal_functions[];

#endif /* MD_REFUSAL_H */
