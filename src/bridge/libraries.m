/* libraries.m: MTLLibrary: a source compiled, its kernels' names and constants. */
#import "bridge/parts.h"

bridge_status
refuse(NSError *failure, char **message, bool *is_source)
{
    const char *text = [[failure localizedDescription] UTF8String];
    *message = text == NULL ? NULL : strdup(text);
    *is_source = failure != nil && [[failure domain] isEqualToString:MTLLibraryErrorDomain] &&
                 [failure code] == MTLLibraryErrorCompileFailure;
    return BRIDGE_NO_KERNEL;
}

/* As MTLCompileOptions has them since macOS 15, whatever the SDK that compiles this knows. */
@protocol MathSetters
- (void)setMathMode:(NSInteger)mathMode;
- (void)setMathFloatingPointFunctions:(NSInteger)functions;
@end

/* Apple's default is the mode of the options alone: the functions stay fast unless they are named
 * too.  Before macOS 15 one setter does both. */
static void
set_math(MTLCompileOptions *options, bridge_math math)
{
    if ([options respondsToSelector:@selector(setMathMode:)]) {
        [(id<MathSetters>)options setMathMode:(NSInteger)math]; /* the same numbers */
        [(id<MathSetters>)options setMathFloatingPointFunctions:math == BRIDGE_MATH_SAFE];
    }
    else {
        [options setFastMathEnabled:math == BRIDGE_MATH_FAST];
    }
}

/* The newest language of the system: numbers, as the SDK that compiles this may not know their
 * names.  `standard` is what Metal takes unless it is told: that of the SDK which the program was
 * built with, and a Python may have been built long ago.  Never less than that: a system from the
 * future has more than the table. */
static NSUInteger
newest_language(NSUInteger standard)
{
    static const struct {
        NSInteger macos;
        NSUInteger language;
    } rows[] = {{14, BRIDGE_LANGUAGE(3, 1)},
                {15, BRIDGE_LANGUAGE(3, 2)},
                {26, BRIDGE_LANGUAGE(4, 0)},
                {27, BRIDGE_LANGUAGE(4, 1)}};
    NSInteger macos = macos_major();
    NSUInteger newest = standard;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0] && rows[i].macos <= macos; i++) {
        newest = rows[i].language > newest ? rows[i].language : newest;
    }
    return newest;
}

unsigned
bridge_language_newest(void)
{
    if (bridge_is_forked()) { /* unreached: callers ask first */
        return 0;
    }
    IN_POOL;
    MTLCompileOptions *options = [[MTLCompileOptions alloc] init];
    NSUInteger newest = newest_language([options languageVersion]);
    [options release];
    return (unsigned)newest;
}

/* +1 */
static MTLCompileOptions *
make_options(const bridge_compile_options *chosen)
{
    MTLCompileOptions *options = [[MTLCompileOptions alloc] init];
    NSUInteger language =
        chosen->language != 0 ? chosen->language : newest_language([options languageVersion]);
    set_math(options, chosen->math);
    [options setLanguageVersion:(MTLLanguageVersion)language];
    return options;
}

bridge_status
bridge_library_new(bridge_device *device, const char *source,
                   const bridge_compile_options *chosen, bridge_library **out, char **message,
                   bool *is_source)
{
    *out = NULL;
    *message = NULL;
    if (bridge_is_forked()) {
        return BRIDGE_FORKED; /* mutant survives (constant returned): callers refuse before */
    }
    IN_POOL;
    NSString *text = [NSString stringWithUTF8String:source];
    MTLCompileOptions *options = make_options(chosen);
    NSError *failure = nil; /* warnings of the compiler come through it too */
    bridge_status status = BRIDGE_NO_MEMORY;
    if (text != nil) {
        id<MTLLibrary> library = [device_object(device) newLibraryWithSource:text
                                                                     options:options
                                                                       error:&failure];
        *out = (bridge_library *)(void *)library;
        status = library == nil ? refuse(failure, message, is_source) : BRIDGE_OK;
    }
    [options release];
    return status;
}

void
bridge_library_release(bridge_library *library)
{
    release_object(library);
}

/* Metal makes no kernel of a library's other functions.  One that Metal makes only with the
 * values of its constants is taken for one. */
static bool
is_kernel(id<MTLLibrary> library, NSString *name)
{
    id<MTLFunction> function = [library newFunctionWithName:name];
    bool result = function == nil || [function functionType] == MTLFunctionTypeKernel;
    [function release];
    return result;
}

/* A block with room for each name. */
static char **
copy_kernel_names(id<MTLLibrary> library, size_t *count)
{
    NSArray *names = [library functionNames];
    size_t nbytes = 0, most = [names count];
    for (size_t i = 0; i < most; i++) {
        nbytes += text_nbytes([names objectAtIndex:i]);
    }
    text_block block = make_text_block(most * sizeof(char *), nbytes);
    char **out = (char **)(void *)block.memory;
    for (size_t i = 0; out != NULL && i < most; i++) {
        NSString *name = [names objectAtIndex:i];
        if (is_kernel(library, name)) {
            out[(*count)++] = add_text(&block, name);
        }
    }
    return out;
}

char **
bridge_library_names(bridge_library *library, size_t *count)
{
    *count = 0;
    if (bridge_is_forked()) {
        return NULL;
    }
    IN_POOL;
    return copy_kernel_names(library_object(library), count);
}

static int
compare_constants(const void *one, const void *other)
{
    unsigned a = ((const bridge_constant_facts *)one)->index;
    unsigned b = ((const bridge_constant_facts *)other)->index;
    return (a > b) - (a < b); /* mutant survives (bound): no index stands twice */
}

static bridge_status
copy_constants(NSDictionary *constants, bridge_constant_facts **out, size_t *count)
{
    size_t nbytes = 0;
    NSEnumerator *names = [constants keyEnumerator];
    for (NSString *name = [names nextObject]; name != nil; name = [names nextObject]) {
        nbytes += text_nbytes(name);
    }
    text_block block =
        make_text_block([constants count] * sizeof(bridge_constant_facts), nbytes);
    bridge_constant_facts *facts = (bridge_constant_facts *)(void *)block.memory;
    if (facts == NULL) {
        return BRIDGE_NO_MEMORY;
    }
    names = [constants keyEnumerator];
    for (NSString *name = [names nextObject]; name != nil; name = [names nextObject]) {
        MTLFunctionConstant *constant = [constants objectForKey:name];
        facts[(*count)++] = (bridge_constant_facts){
            .name = add_text(&block, name),
            .data_type = (unsigned)[constant type],
            .index = (unsigned)[constant index],
            .is_required = [constant required],
        };
    }
    qsort(facts, *count, sizeof *facts, compare_constants);
    *out = facts;
    return BRIDGE_OK;
}

bridge_status
bridge_library_constants(bridge_library *library, const char *function,
                         bridge_constant_facts **out, size_t *count)
{
    *out = NULL;
    *count = 0;
    if (bridge_is_forked()) {
        return BRIDGE_FORKED;
    }
    IN_POOL;
    bridge_status status = BRIDGE_NO_KERNEL;
    NSString *name = [NSString stringWithUTF8String:function];
    id<MTLFunction> found =
        name == nil ? nil : [library_object(library) newFunctionWithName:name];
    if (found != nil) {
        status = copy_constants([found functionConstantsDictionary], out, count);
    }
    [found release];
    return status;
}
