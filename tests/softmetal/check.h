/* check.h: a test program is a list of cases; one process runs one case.
 *
 * Owns:    the list of the program's cases.
 * Calls:   softmetal.h: after each case nothing may be left alive.
 * Usage:   `program NAME` runs a case.  CASE(name) must end well.  REPORTS("kind", name) does
 * one wrong thing; with SOFTMETAL_VALIDATION=1 in the mode `log` it must be reported once, as
 * that kind and no other, and in the mode `abort` the process dies of it.  RACES(name) does it
 * with races, as often as it likes.
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

struct test_case {
    const char *name;
    const char *kind; /* of the report it must cause, or NULL */
    int may_leak, may_repeat;
    void (*run)(void);
    struct test_case *next;
};

static struct test_case *first_case;

#define ADD_CASE(name_, kind_, may_leak_, may_repeat_) \
    static void name_(void); \
    __attribute__((constructor)) static void add_##name_(void) \
    { \
        static struct test_case one = {#name_, kind_, may_leak_, may_repeat_, name_, NULL}; \
        one.next = first_case; \
        first_case = &one; \
    } \
    static void name_(void)

#define CASE(name_) ADD_CASE(name_, NULL, 0, 0)
#define LEAKY_CASE(name_) ADD_CASE(name_, NULL, 1, 0)
#define REPORTS(kind_, name_) ADD_CASE(name_, kind_, 0, 0)
#define LEAKY_REPORTS(kind_, name_) ADD_CASE(name_, kind_, 1, 0)
#define RACES(name_) ADD_CASE(name_, "race", 0, 1)

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

static inline id<MTLDevice>
open_device(void)
{
    id<MTLDevice> device = MTLCreateSystemDefaultDevice();
    CHECK(device != nil);
    return device;
}

static inline void
print_live(const char *class_name, const void *object, long retain_count, const char *site,
           void *context)
{
    (void)context;
    fprintf(stderr, "alive: %s %p, retained %ld times, made at %s\n", class_name, object,
            retain_count, site);
}

static inline int
run_case(const struct test_case *one)
{
    NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
    one->run();
    [pool drain];
    CHECK(softmetal_wait_idle(10000));
    if (!one->may_leak && softmetal_live_objects(NULL) != 0) {
        softmetal_visit_live_objects(NULL, print_live, NULL);
        exit(1);
    }
    size_t expected = one->kind != NULL && getenv("SOFTMETAL_VALIDATION") != NULL;
    size_t found = softmetal_reports(NULL);
    if (one->may_repeat && expected == 1 && found > 1) {
        expected = found;
    }
    if (found != expected || softmetal_reports(one->kind) != expected) {
        fprintf(stderr, "reports: %zu, of the expected kind: %zu\n", found,
                softmetal_reports(one->kind));
        exit(1);
    }
    return 0;
}

int
main(int argc, char **argv)
{
    for (struct test_case *one = first_case; one != NULL; one = one->next) {
        if (argc == 2 && strcmp(argv[1], one->name) == 0) {
            return run_case(one);
        }
    }
    fprintf(stderr, "no such case\n");
    return 2;
}

#endif /* CHECK_H */
