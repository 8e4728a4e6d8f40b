/* seed.h: how SOFTMETAL_SEED orders what Metal leaves open.
 *
 * Owns:    nothing.
 * Calls:   settings.h.
 * Threads: any; a random state belongs to one thread.
 */
#ifndef SOFT_SEED_H
#define SOFT_SEED_H

#include <stdint.h>

typedef enum {
    SOFT_ORDER_FIRST,  /* as encoded */
    SOFT_ORDER_RANDOM, /* any that is ready */
    SOFT_ORDER_LAST    /* the latest that is ready: the worst order Metal allows */
} soft_order;

soft_order soft_seed_order(void); /* as the setting says now */
uint64_t soft_seed_random(uint64_t *state);

#endif /* SOFT_SEED_H */
