/* array_make.h: the functions of the module that make Arrays. */
#ifndef MD_ARRAY_MAKE_H
#define MD_ARRAY_MAKE_H

#include "state.h"

extern PyMethodDef array_make_functions[];

#endif /* MD_ARRAY_MAKE_H */
