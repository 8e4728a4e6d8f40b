/* nserror.m: NSError, NSArray, and the error domain of command buffers.
 *
 * Owns:    copies of the texts; the members of an array, each +1.
 * Threads: any; nothing here changes once made.
 */
#import <Metal/Metal.h>

#include <stdlib.h>
#include <string.h>

#include "objects.h"

/* A constant string needs its class, which only the runtime knows: the class puts it there. */
static struct {
    Class isa;
    const char *bytes;
    unsigned int length;
} domain_storage = {Nil, "MTLCommandBufferErrorDomain", 27};

NSErrorDomain const MTLCommandBufferErrorDomain = (NSString *)&domain_storage;

void
soft_error_domain_set_class(Class constant_string)
{
    domain_storage.isa = constant_string;
}

@implementation SoftMetalError

- (instancetype)initWithCode:(NSInteger)code text:(const char *)text
{
    self = [super init];
    if (self != nil) {
        _code = code;
        _text = [[NSString alloc] initWithUTF8String:text];
    }
    return self;
}

- (void)dealloc
{
    [_text release];
    [super dealloc];
}

- (NSErrorDomain)domain
{
    return MTLCommandBufferErrorDomain;
}

- (NSInteger)code
{
    return _code;
}

- (NSString *)localizedDescription
{
    return [[_text retain] autorelease];
}

- (NSString *)description
{
    return [self localizedDescription];
}

@end

@implementation NSError

- (NSErrorDomain)domain
{
    return nil;
}

- (NSInteger)code
{
    return 0;
}

- (NSString *)localizedDescription
{
    return nil;
}

@end

@implementation NSArray

- (NSUInteger)count
{
    return 0;
}

- (id)objectAtIndex:(NSUInteger)index
{
    (void)index;
    return nil;
}

@end

@implementation SoftMetalArray

- (instancetype)initWithObjects:(id *)objects count:(NSUInteger)count
{
    self = [super init];
    if (self == nil) {
        return nil;
    }
    _objects = calloc(count + 1, sizeof *_objects);
    if (_objects == NULL) {
        [self release];
        return nil;
    }
    for (_count = 0; _count < count; _count++) {
        _objects[_count] = [objects[_count] retain];
    }
    return self;
}

- (void)dealloc
{
    for (NSUInteger index = 0; index < _count; index++) {
        [_objects[index] release];
    }
    free(_objects);
    [super dealloc];
}

- (NSUInteger)count
{
    return _count;
}

- (id)objectAtIndex:(NSUInteger)index
{
    if (index >= _count) {
        abort(); /* Foundation raises NSRangeException */
    }
    return _objects[index];
}

@end
