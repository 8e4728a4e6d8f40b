/* place.h: where in the user's Python the work is asked for that an open timeline shows.
 *
 * Owns:    the code objects of the places seen.  They are one interpreter's, whose timeline was there
 *          first, and gone with its last one: another interpreter may have a GIL of its own, and
 *          neither reads nor drops them.
 * Threads: the GIL is held.
 */
#ifndef MD_PLACE_H
#define MD_PLACE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "metal/timeline.h"

/* Note for this thread's next record which line calls: the first that is the user's.
 * The lines are those of the interpreter that has opened the timeline; never fails. */
void place_note_now(void);

static inline void
place_note(void)
{
    if (timeline_on()) {
        place_note_now();
    }
}

/* A timeline of this interpreter opens: from now on places are noted in it, unless they are in another
 * one, and code in these folders (a tuple of str) is no user's.  `*timelines` counts this
 * interpreter's.  Each call that succeeds has its place_end, when nobody reads that timeline any more. */
int place_begin(size_t *timelines, PyObject *folders);
void place_end(size_t *timelines);
/* [(number, file, line, function)] of this interpreter. */
PyObject *place_list(void);

#endif /* MD_PLACE_H */
