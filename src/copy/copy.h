/* copy.h: strided copies and fills between CPU addresses, without Python.
 *
 * Owns:    nothing that outlives a call.
 * Threads: pure functions over the caller's memory: any thread, the GIL not needed.  A large
 *          copy starts helpers and joins them before it returns.
 * Units:   shape and strides in items, addresses and itemsize in bytes.
 * Overlap: source and destination may share memory: the result is as if the source had been
 *          read whole before the first write.
 */
#ifndef MD_COPY_H
#define MD_COPY_H

#include <stdbool.h>
#include <stdint.h>

#include "arithmetic/layout.h"

/* Copy item by item.  Both layouts have the same shape and itemsize; a source may repeat items
 * (stride 0), a destination must not.  `dst_base` and `src_base` are the addresses that offset
 * 0 stands for.  False: out of memory (needed only where the two overlap); nothing was
 * written. */
bool copy_strided(const strided_layout *dst, char *dst_base, const strided_layout *src,
                  const char *src_base);

/* Write one item (`item`, dst->itemsize bytes, not inside `dst`) into every place of `dst`. */
void copy_fill(const strided_layout *dst, char *dst_base, const char *item);

#define COPY_MAX_THREADS 16

/* How many threads a large copy may use, its caller's included: 1 to COPY_MAX_THREADS; 0 is the
 * default, the number of processors but at most 4.  One setting for the process. */
void copy_set_threads(int count);
int copy_get_threads(void);

#endif /* MD_COPY_H */
