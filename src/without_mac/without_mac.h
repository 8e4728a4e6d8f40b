/* without_mac.h: what the module has where the software Metal stands in; none of it is built on a Mac.
 *
 * Threads: the GIL is held.
 */
#ifndef MD_WITHOUT_MAC_H
#define MD_WITHOUT_MAC_H

#include "module/module.h"

/* softmetal_probe.c: counts and reports of the software Metal, for tests. */
extern PyMethodDef softmetal_probe_functions[];
/* softmetal_counts.c: what counted launches found. */
extern PyMethodDef softmetal_counts_functions[];
/* softmetal_record.c: tells softmetal/report/ what ran and what was found. */
extern PyMethodDef softmetal_record_functions[];

/* softmetal_compiler.c: from now on the software Metal compiles by softmetal.msl, which is
 * imported when it first does.  0. */
int softmetal_compiler_install(PyObject *module);

/* softmetal_torch.c: puts _softmetal_torch, a table for softmetal/torch/, into the module.
 * 0, or -1 with an exception. */
int softmetal_torch_add(PyObject *module);

#endif /* MD_WITHOUT_MAC_H */
