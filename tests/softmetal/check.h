/* check.h: the tests of the software Metal are a list of cases; runner.c runs each in a process.
 *
 * Owns:    the list.
 * Calls:   softmetal.h: after each case nothing may be left alive.
 * Usage:   CASE(name) must end well.  REPORTS("kind", name) does one wrong thing; with
 * SOFTMETAL_VALIDATION=1 in the mode `log` it must be reported once, as that kind and no other, and
 * in the mode `abort` the process dies of it.  RACES(name) does it with races, as often as it
 * likes.  FIRST_CASE(name) makes the very first call of the process.
 */
#ifndef CHECK_H
#define CHECK_H

#import <Metal/Metal.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../c/check_macro.h"
#include "softmetal/softmetal.h"

enum { MAY_LEAK = 1, MAY_REPEAT = 2, IS_FIRST = 4 };

struct test_case {
    const char *name;
    const char *kind; /* of the report it must cause, or NULL */
    int flags;
    void (*run)(void);
    struct test_case *next;
};

extern struct test_case *first_case;

#define ADD_CASE(name_, kind_, flags_) \
    static void name_(void); \
    __attribute__((constructor)) static void add_##name_(void) \
    { \
        static struct test_case one = {#name_, kind_, flags_, name_, NULL}; \
        one.next = first_case; \
        first_case = &one; \
    } \
    static void name_(void)

#define CASE(name_) ADD_CASE(name_, NULL, 0)
#define FIRST_CASE(name_) ADD_CASE(name_, NULL, IS_FIRST)
#define LEAKY_CASE(name_) ADD_CASE(name_, NULL, MAY_LEAK)
#define REPORTS(kind_, name_) ADD_CASE(name_, kind_, 0)
#define LEAKY_REPORTS(kind_, name_) ADD_CASE(name_, kind_, MAY_LEAK)
#define RACES(name_) ADD_CASE(name_, "race", MAY_REPEAT)

/* A block with one captured pointer, as clang would lay it out. */
struct block_descriptor {
    unsigned long reserved, size;
};
struct block {
    void *isa;
    int flags, reserved;
    void (*invoke)(void);
    const struct block_descriptor *descriptor;
    void *context;
};
static const struct block_descriptor plain_descriptor = {0, sizeof(struct block)};

#define BLOCK(function, context_) \
    (&(struct block){NULL, 0, 0, (void (*)(void))(function), &plain_descriptor, context_})

/* Of the case's pool. */
static inline id<MTLDevice>
open_device(void)
{
    id<MTLDevice> device = [MTLCreateSystemDefaultDevice() autorelease];
    CHECK(device != nil);
    return device;
}

#endif /* CHECK_H */
