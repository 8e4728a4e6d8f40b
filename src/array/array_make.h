/* array_make.h: empty, zeros, ones and full, and the same like another array. */
#ifndef MD_ARRAY_MAKE_H
#define MD_ARRAY_MAKE_H

#include "python/state.h"

extern PyMethodDef array_make_functions[];

#endif /* MD_ARRAY_MAKE_H */
