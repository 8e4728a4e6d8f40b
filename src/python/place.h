/* place.h: where in the user's Python the work is asked for that an open timeline shows.
 *
 * Owns:    the code objects of the places seen, until place_forget.
 * Threads: the GIL is held.
 */
#ifndef MD_PLACE_H
#define MD_PLACE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "metal/timeline.h"

/* Note for this thread's next record which line calls: the first that is the user's.  Of
 * the interpreter that has opened the timeline; never fails. */
void place_note_now(void);

static inline void
place_note(void)
{
    if (timeline_on()) {
        place_note_now();
    }
}

/* From now on places are noted in this interpreter, and code in these folders (a tuple of str) is no
 * user's. */
int place_begin(PyObject *folders);
/* [(file, line, function)]: number 1 comes first. */
PyObject *place_list(void);
void place_forget(void);

#endif /* MD_PLACE_H */
