/* autorelease.m: NSAutoreleasePool and the stacks behind it.
 *
 * Owns:      per thread: an array of objects, each owned (+1), and the number of open pools.
 * Calls:     validation.h when there is no pool.
 * Threads:   a stack belongs to its thread; the counter of leaked objects is atomic.
 * Invariant: pools are marks in one array, so closing an outer pool closes those inside it.
 */
#import <Foundation/Foundation.h>

#include <pthread.h>
#include <stdlib.h>

#include <objc/runtime.h>

#include "softmetal/apple/object_list.h"
#include "softmetal/apple/objects.h"
#include "softmetal/call_site.h"
#include "softmetal/softmetal.h"
#include "softmetal/validation.h"

struct stack {
    id *objects;
    size_t count, capacity;
    size_t open_pools;
};

static __thread struct stack *own_stack;
static pthread_key_t stack_key;
static pthread_once_t stack_once = PTHREAD_ONCE_INIT;
static size_t leaked;

static void
shrink_stack(struct stack *stack, size_t count)
{
    while (stack->count > count) { /* a release may autorelease further objects */
        stack->count -= 1;
        [stack->objects[stack->count] release];
    }
}

static void
free_stack(void *argument)
{
    struct stack *stack = argument;
    own_stack = stack;
    shrink_stack(stack, 0);
    own_stack = NULL;
    free(stack->objects);
    free(stack);
}

static void
make_key(void)
{
    pthread_key_create(&stack_key, free_stack);
}

static struct stack *
get_stack(void)
{
    if (own_stack == NULL) {
        pthread_once(&stack_once, make_key);
        own_stack = calloc(1, sizeof *own_stack);
        if (own_stack == NULL) {
            abort();
        }
        pthread_setspecific(stack_key, own_stack);
    }
    return own_stack;
}

static void
report_missing_pool(id object)
{
    char here[512], made[512];
    __atomic_add_fetch(&leaked, 1, __ATOMIC_RELAXED);
    if (!soft_validation_is_on()) {
        return;
    }
    soft_call_site *site = soft_call_site_record();
    soft_call_site_describe(site, here, sizeof here);
    soft_call_site_free(site);
    soft_call_site_describe(soft_object_of(object)->site, made, sizeof made);
    soft_validation_report(
        SOFT_REPORT_MISSING_POOL,
        "an object of %s is autoreleased with no pool in place and leaks, at %s; "
        "it was made at %s",
        object_getClassName(object), here, made);
}

void
soft_autorelease_add(id object)
{
    struct stack *stack = get_stack();
    if (stack->open_pools == 0) {
        report_missing_pool(object);
        return;
    }
    if (stack->count == stack->capacity) {
        size_t capacity = stack->capacity == 0 ? 64 : stack->capacity * 2;
        id *objects = realloc(stack->objects, capacity * sizeof *objects);
        if (objects == NULL) {
            abort();
        }
        stack->objects = objects;
        stack->capacity = capacity;
    }
    stack->objects[stack->count] = object;
    stack->count += 1;
}

size_t
soft_autorelease_push(void)
{
    struct stack *stack = get_stack();
    stack->open_pools += 1;
    return stack->count;
}

void
soft_autorelease_pop(size_t pool)
{
    struct stack *stack = get_stack();
    shrink_stack(stack, pool);
    stack->open_pools -= 1;
}

size_t
softmetal_autoreleased_without_pool(void)
{
    return __atomic_load_n(&leaked, __ATOMIC_RELAXED);
}

@implementation NSAutoreleasePool

- (instancetype)init
{
    self = [super init];
    if (self != nil) {
        _mark = soft_autorelease_push();
        _stack = own_stack;
        _depth = own_stack->open_pools;
    }
    return self;
}

- (void)drain
{
    if (_stack != own_stack || own_stack->open_pools < _depth) {
        soft_validation_insist(
            SOFT_REPORT_MISSING_POOL,
            "an autorelease pool is drained on another thread, or after the pool "
            "around it.");
        return;
    }
    soft_autorelease_pop(_mark);
    own_stack->open_pools = _depth - 1;
    [self dealloc];
}

- (oneway void)release
{
    [self drain];
}

- (instancetype)retain
{
    soft_validation_insist(SOFT_REPORT_ARGUMENT, "an autorelease pool cannot be retained.");
    return self;
}

- (instancetype)autorelease
{
    soft_validation_insist(SOFT_REPORT_ARGUMENT, "an autorelease pool cannot be autoreleased.");
    return self;
}

@end
