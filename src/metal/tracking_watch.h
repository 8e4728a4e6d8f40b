/* tracking_watch.h: what the software Metal is told, so that its validation can tell a race from
 * order that this library keeps by its own counters and locks, so that poison reaches memory
 * that the pool gives again, and so that the checker knows which bytes nobody has written.
 * On a Mac, and with these off, nothing.
 *
 * Owns:    nothing.
 * Calls:   softmetal.h.
 * Threads: any.
 * Rule:    each call stands where the order is made: without the wait there is no call, and a
 *          race is seen.
 */
#ifndef MD_TRACKING_WATCH_H
#define MD_TRACKING_WATCH_H

#include "bridge/metal_bridge.h"

#ifdef __APPLE__
#define WATCH_IS_ON() false
#define WATCH(call) ((void)0)
#define WATCH_RENEW(buffer) ((void)(buffer))
#define WATCH_UNWRITTEN(buffer, nbytes, is_output) ((void)(buffer), (void)(is_output))
#else
#include "softmetal/softmetal.h"
#define WATCH_IS_ON() \
    ((__atomic_load_n(&softmetal_is_watching, __ATOMIC_RELAXED) | \
      __atomic_load_n(&softmetal_knows_unwritten, __ATOMIC_RELAXED)) != 0)
#define WATCH(call) (WATCH_IS_ON() ? (call) : (void)0)
/* A free buffer of the pool's is about to be given out as a new one. */
#define WATCH_RENEW(buffer) \
    ((__atomic_load_n(&softmetal_is_poisoning, __ATOMIC_RELAXED) | \
      __atomic_load_n(&softmetal_knows_unwritten, __ATOMIC_RELAXED)) != 0 \
         ? softmetal_host_renews(buffer) \
         : (void)0)
/* Nobody has written the first bytes of a buffer that was made now. */
#define WATCH_UNWRITTEN(buffer, nbytes, is_output) \
    (__atomic_load_n(&softmetal_is_checking, __ATOMIC_RELAXED) != 0 \
         ? softmetal_host_unwritten(buffer, nbytes, is_output) \
         : (void)0)
#endif

/* The handle goes out: whoever has it may write. */
#define WATCH_GIVE(buffer) WATCH(softmetal_host_gives(buffer))

/* The CPU is about to read or write the bytes of a buffer. */
#define WATCH_HOST_ACCESS(buffer, offset_bytes, nbytes, is_written) \
    WATCH(softmetal_host_access(buffer, offset_bytes, nbytes, is_written))
/* The thread has seen, in our memory, that the work of this value is over. */
#define WATCH_REACHED(event, value) WATCH(softmetal_host_reached(event, value))
/* A handler leaves what it knows about the work on a buffer; whoever looks that up afterwards
 * learns it. */
#define WATCH_LEAVE(buffer) WATCH(softmetal_host_release(buffer))
/* Nobody uses the buffer any more: Metal holds no reference to it. */
#define WATCH_FREE(buffer) WATCH(softmetal_host_frees(buffer))
#define WATCH_LOOK_UP(buffer) WATCH(softmetal_host_acquire(buffer))
/* None of our work is in flight, so none on this buffer; NULL: there is none. */
#define WATCH_QUIET(buffer) ((buffer) != NULL ? WATCH(softmetal_host_acquire(buffer)) : (void)0)

#endif /* MD_TRACKING_WATCH_H */
