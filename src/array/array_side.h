/* array_side.h: one side of a copy: the items of an Array, or foreign CPU memory.
 *
 * Threads: the GIL is held.
 */
#ifndef MD_ARRAY_SIDE_H
#define MD_ARRAY_SIDE_H

#include "array/array.h"
#include "array/view_items.h"

typedef struct array_side {
    ArrayObject *array; /* borrowed, or `kept`; NULL: CPU memory */
    PyObject *kept;     /* owned: an Array made for this copy; NULL: none */
    foreign_view view;
    char *origin; /* of CPU memory: where element 0 is */
    strided_layout layout;
    DLDataType dtype;
    bool is_readonly;
} array_side;

void array_side_set(array_side *side, ArrayObject *array);
/* The memory behind the buffer protocol as it stands, with no Metal in between.  False, and no
 * exception: `value` has no such memory, or not in a form that the engine can take. */
bool array_side_open_view(array_side *side, md_state *state, PyObject *value);
void array_side_close(array_side *side); /* after either of the two */

#endif /* MD_ARRAY_SIDE_H */
