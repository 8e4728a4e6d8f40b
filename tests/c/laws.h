/* laws.h: what the programs of laws share: a check that stops, and numbers that follow from the
 * seed.
 */
#ifndef TEST_LAWS_H
#define TEST_LAWS_H

#include <stdint.h>

#include "check_macro.h"

/* Never 0 once it is seeded.  SPEC Marsaglia, "Xorshift RNGs": 13, 7, 17. */
static uint64_t random_state;

static inline uint64_t
next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* From low to high, both included. */
static inline int64_t
pick(int64_t low, int64_t high)
{
    return low + (int64_t)(next_random() % (uint64_t)(high - low + 1));
}

/* SEED COUNT, as every program is called: the count. */
static inline int64_t
begin_laws(int argc, char **argv)
{
    CHECK(argc == 3);
    random_state = strtoull(argv[1], NULL, 10) * 0x9e3779b97f4a7c15u + 1;
    return strtoll(argv[2], NULL, 10);
}

#endif /* TEST_LAWS_H */
