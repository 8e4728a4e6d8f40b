/* fault.h: why a kernel that nobody checks cannot go on, in words.
 *
 * Owns:    nothing.
 * Calls:   check_guard.h for what the processor said; finding.h for the names of arguments.
 * Threads: the OS thread that was guarded.
 */
#ifndef SOFT_FAULT_H
#define SOFT_FAULT_H

#include "softmetal/checker/check_guard.h"
#include "softmetal/shim/softmetal_kernel.h"

#define SOFT_FAULT_TEXT_NBYTES 640

/* One sentence for what happened, and one for the way to the line. */
void soft_fault_describe(const soft_guard *guard, const soft_image *image,
                         const soft_launch *launch, char text[SOFT_FAULT_TEXT_NBYTES]);

#endif /* SOFT_FAULT_H */
