/* bell.h: a file descriptor that becomes readable when GPU work is done, for event loops.
 *
 * Owns:    a pipe, counted: whoever still has to ring keeps it open.
 * Calls:   nothing of ours.
 * Threads: every function from any thread, without the GIL.  bell_ring never waits.
 */
#ifndef MD_BELL_H
#define MD_BELL_H

typedef struct metal_bell metal_bell;

metal_bell *bell_new(void); /* +1; NULL with errno */
void bell_retain(metal_bell *bell);
void bell_release(metal_bell *bell);

/* The end that becomes readable: borrowed from the bell. */
int bell_descriptor(const metal_bell *bell);
void bell_ring(metal_bell *bell);

#endif /* MD_BELL_H */
