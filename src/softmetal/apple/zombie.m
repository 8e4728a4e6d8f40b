/* zombie.m: reports messages to objects that are gone.
 *
 * Owns:    nothing; the dead lie in object_list.c.
 * Calls:   object_list.h, call_site.h, validation.h.
 * Threads: any.
 * Note:    the class answers no message itself, so the runtime hands each one to `forward::`.
 */
#include "softmetal/apple/zombie.h"

#include <objc/runtime.h>

#include "softmetal/apple/object_list.h"
#include "softmetal/validation.h"

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

void
soft_zombie_make(id object)
{
    soft_object *header = soft_object_of(object);
    header->former = object_getClass(object);
    header->end = soft_call_site_record();
    object_setClass(object, objc_getClass("SoftMetalZombie"));
    soft_object_list_bury(header);
}
