/* copy_caches.h: how large this machine's caches are.
 *
 * Owns:    the answer, for the life of the process.
 * Threads: any.  The machine is asked once.
 */
#ifndef MD_COPY_CACHES_H
#define MD_COPY_CACHES_H

#include <stdint.h>

typedef struct copy_caches {
    int64_t first_nbytes;  /* the data cache next to a core */
    int64_t second_nbytes; /* one core's share of the next cache */
} copy_caches;

/* Borrowed; never changes.  A size that the machine does not tell is that of a usual one. */
const copy_caches *copy_caches_get(void);

#endif /* MD_COPY_CACHES_H */
