/* race_order.h: the order of the passes of one queue among themselves.
 *
 * Owns:    nothing: a queue has its window.
 * Calls:   program.h.
 * Threads: behind the lock of races.c.
 * Note:    a pass comes after an earlier one of its queue if a fence or a tracked buffer says
 *          so, or if it comes after a third that does; beyond the window all are taken to be
 *          in order.
 */
#ifndef SOFT_RACE_ORDER_H
#define SOFT_RACE_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "softmetal/gpu/program.h"

#define SOFT_RACE_WINDOW 64

typedef struct soft_race_recent {
    struct {
        uint64_t number;
        uint64_t before; /* bit n: the pass number - 1 - n comes before it */
    } passes[SOFT_RACE_WINDOW];
} soft_race_recent;

/* Which passes come before the one with `number`, as the bits of `before`. */
uint64_t soft_race_order_learn(const soft_race_recent *recent, int component,
                               const soft_pass *pass, uint64_t number);
/* The pass has run: later ones are compared with it. */
void soft_race_order_note(soft_race_recent *recent, int component, const soft_pass *pass,
                          uint64_t number, uint64_t before);
bool soft_race_order_holds(uint64_t before, uint64_t earlier, uint64_t number);

#endif /* SOFT_RACE_ORDER_H */
