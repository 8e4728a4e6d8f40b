/* nsobject.m: the root class: memory, counting, questions about classes; and the autorelease pool.
 *
 * Owns:      a header (object_list.h) in front of every object, which holds its retain count.
 *            What is left of a freed object while validation is on lies in object_list.c.
 *            Per thread: an array of objects, each owned (+1), and the number of open pools.
 * Calls:     the GNU Objective-C runtime; validation.h, when there is no pool or a dead object is used.
 * Threads:   retain and release from any thread.  A stack belongs to its thread; the counter of
 *            leaked objects is atomic.
 * Invariant: a living object is in the list of living objects.  Pools are marks in one array, so
 *            closing an outer pool closes those inside it.
 */
#import <Foundation/Foundation.h>

#include <objc/objc.h>
#include <objc/runtime.h>
#include <objc/thr.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "softmetal/apple/object_list.h"
#include "softmetal/apple/objects.h"
#include "softmetal/call_site.h"
#include "softmetal/host.h"
#include "softmetal/softmetal.h"
#include "softmetal/validation.h"

/* To the pool: takes over one reference; leaks it with no pool. */
static void add_autoreleased(id object);

/* ---- objects that are gone ---- */

#define FRAMES_OF_ENDS 8 /* as many objects end as are made, and each frame takes time */

/* It answers no message itself, so the runtime hands each one to `forward::`. */
#if __has_attribute(objc_root_class)
__attribute__((objc_root_class))
#endif
@interface SoftMetalZombie {
    Class isa;
}
@end

@implementation SoftMetalZombie

+ (void)initialize
{
}

- (void *)forward:(SEL)selector:(void *)arguments
{
    char made[512], freed[512];
    const soft_object *object = soft_object_of(self);
    (void)arguments;
    soft_call_site_describe(object->site, made, sizeof made);
    soft_call_site_describe(object->end, freed, sizeof freed);
    soft_validation_report(
        SOFT_REPORT_DEAD_OBJECT,
        "-[%s %s] is sent to an object that is gone; it was made at %s and freed "
        "at %s",
        class_getName(object->former), sel_getName(selector), made, freed);
    return NULL; /* the message does nothing and gives 0 */
}

@end

/* Turn an object without owners into one that reports every message.  Takes over its memory, and `end`. */
static void
make_zombie(id object, soft_call_site *end)
{
    soft_object *header = soft_object_of(object);
    header->former = object_getClass(object);
    header->end = end;
    object_setClass(object, objc_getClass("SoftMetalZombie"));
    soft_object_list_bury(header);
}

/* Takes over `end`. */
static void
end_instance(id object, soft_call_site *end)
{
    soft_object_list_remove(soft_object_of(object));
    if (soft_validation_is_on()) {
        make_zombie(object, end);
    }
    else {
        free(end);
        soft_object_free(soft_object_of(object));
    }
}

/* Callers check Metal objects for nil, but not NSString or NSArray: nil would read as empty. */
static void
end_unless_metals(const char *class_name)
{
    if (strncmp(class_name, "SoftMetal", 9) != 0) {
        soft_end_without_memory(class_name);
    }
}

/* Takes over `site`. */
static id
make_instance(Class class, soft_call_site *site)
{
    soft_object *object = calloc(1, sizeof *object + class_getInstanceSize(class));
    if (object == NULL) {
        free(site);
        end_unless_metals(class_getName(class));
        return nil;
    }
    object->retain_count = 1;
    object->site = site;
    id instance = soft_object_self(object);
    object_setClass(instance, class);
    soft_object_list_add(object);
    return instance;
}

@implementation NSObject

+ (void)load
{
    /* From here on the runtime frees no dispatch table that a thread may still read. */
    objc_thread_add();
}

+ (void)initialize
{
}

+ (instancetype)alloc
{
    return make_instance(self, soft_call_site_record(SOFT_MOST_FRAMES));
}

+ (instancetype)new
{
    return [[self alloc] init];
}

- (instancetype)init
{
    return self;
}

- (void)dealloc
{
    end_instance(self, soft_call_site_record(FRAMES_OF_ENDS));
}

- (instancetype)retain
{
    __atomic_add_fetch(&soft_object_of(self)->retain_count, 1, __ATOMIC_RELAXED);
    return self;
}

- (oneway void)release
{
    long left = __atomic_sub_fetch(&soft_object_of(self)->retain_count, 1, __ATOMIC_ACQ_REL);
    if (left == 0) {
        [self dealloc];
    }
    else if (left < 0) {
        soft_validation_insist(SOFT_REPORT_DEAD_OBJECT,
                               "-[%s release]: the object is released while it is being freed.",
                               object_getClassName(self));
    }
}

- (instancetype)autorelease
{
    add_autoreleased(self);
    return self;
}

- (NSUInteger)retainCount
{
    return (NSUInteger)__atomic_load_n(&soft_object_of(self)->retain_count, __ATOMIC_RELAXED);
}

- (id)copy
{
    return [self retain]; /* every object here that can be copied is immutable */
}

+ (Class)class
{
    return self;
}

- (Class)class
{
    return object_getClass(self);
}

- (BOOL)isKindOfClass:(Class)aClass
{
    Class class = object_getClass(self);
    while (class != Nil && class != aClass) {
        class = class_getSuperclass(class);
    }
    return class != Nil;
}

+ (BOOL)conformsToProtocol:(Protocol *)protocol
{
    for (Class class = self; class != Nil; class = class_getSuperclass(class)) {
        if (class_conformsToProtocol(class, protocol)) {
            return YES;
        }
    }
    return NO;
}

- (BOOL)conformsToProtocol:(Protocol *)aProtocol
{
    return [object_getClass(self) conformsToProtocol:aProtocol];
}

- (BOOL)respondsToSelector:(SEL)aSelector
{
    return class_respondsToSelector(object_getClass(self), aSelector);
}

- (BOOL)isEqual:(id)object
{
    return self == object;
}

- (NSUInteger)hash
{
    return (NSUInteger)self >> 4;
}

@end

/* ---- NSAutoreleasePool, and the stacks behind it ---- */

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
    if (pthread_key_create(&stack_key, free_stack) != 0) {
        soft_end_without_memory("the key of autorelease pools");
    }
}

static struct stack *
get_stack(void)
{
    if (own_stack == NULL) {
        pthread_once(&stack_once, make_key);
        own_stack = calloc(1, sizeof *own_stack);
        if (own_stack == NULL) {
            soft_end_without_memory("an autorelease pool");
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
    soft_call_site *site = soft_call_site_record(SOFT_MOST_FRAMES);
    soft_call_site_describe(site, here, sizeof here);
    free(site);
    soft_call_site_describe(soft_object_of(object)->site, made, sizeof made);
    soft_validation_report(
        SOFT_REPORT_MISSING_POOL,
        "an object of %s is autoreleased with no pool in place and leaks, at %s; "
        "it was made at %s",
        object_getClassName(object), here, made);
}

static void
add_autoreleased(id object)
{
    struct stack *stack = get_stack();
    if (stack->open_pools == 0) {
        report_missing_pool(object);
        return;
    }
    if (!soft_grow((void **)&stack->objects, stack->count, &stack->capacity,
                   sizeof *stack->objects)) {
        soft_end_without_memory("an autoreleased object");
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

/* At each border, and ended where it began: a stack would take longer than the pool. */
+ (instancetype)alloc
{
    return make_instance(self, soft_call_site_of(__builtin_return_address(0)));
}

- (instancetype)init
{
    self = [super init];
    _mark = soft_autorelease_push();
    _stack = own_stack;
    _depth = own_stack->open_pools;
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
    end_instance(self, NULL);
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
