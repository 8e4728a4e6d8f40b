/* nsobject.m: the root class: memory, counting, questions about classes.
 *
 * Owns:      a header (object_list.h) in front of every object, which holds its retain count.
 *            What is left of a freed object while validation is on lies in object_list.c.
 * Calls:     the GNU Objective-C runtime, autorelease.m, validation.h.
 * Threads:   retain and release from any thread.
 * Invariant: a living object is in the list of living objects.
 */
#import <Foundation/Foundation.h>

#include <objc/objc.h>
#include <objc/runtime.h>
#include <objc/thr.h>
#include <stdlib.h>

#include "softmetal/apple/object_list.h"
#include "softmetal/apple/objects.h"
#include "softmetal/validation.h"

/* ---- objects that are gone ---- */

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

/* Turn an object without owners into one that reports every message.  Takes over its memory. */
static void
make_zombie(id object)
{
    soft_object *header = soft_object_of(object);
    header->former = object_getClass(object);
    header->end = soft_call_site_record();
    object_setClass(object, objc_getClass("SoftMetalZombie"));
    soft_object_list_bury(header);
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
    soft_object *object = calloc(1, sizeof *object + class_getInstanceSize(self));
    if (object == NULL) {
        return nil;
    }
    object->retain_count = 1;
    object->site = soft_call_site_record();
    id instance = soft_object_self(object);
    object_setClass(instance, self);
    soft_object_list_add(object);
    return instance;
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
    soft_object *object = soft_object_of(self);
    soft_object_list_remove(object);
    if (soft_validation_is_on()) {
        make_zombie(self);
    }
    else {
        soft_object_free(object);
    }
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
    soft_autorelease_add(self);
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

- (instancetype)self
{
    return self;
}

+ (Class)class
{
    return self;
}

- (Class)class
{
    return object_getClass(self);
}

+ (BOOL)isSubclassOfClass:(Class)aClass
{
    Class class = self;
    while (class != Nil && class != aClass) {
        class = class_getSuperclass(class);
    }
    return class != Nil;
}

- (BOOL)isKindOfClass:(Class)aClass
{
    return [object_getClass(self) isSubclassOfClass:aClass];
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

+ (BOOL)instancesRespondToSelector:(SEL)aSelector
{
    return class_respondsToSelector(self, aSelector);
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
