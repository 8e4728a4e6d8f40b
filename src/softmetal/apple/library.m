/* library.m: libraries, their functions, and the values of function constants.
 *
 * Owns:    a library its text and what the compiler found in it; a function its values.
 * Calls:   compiler.h, kernel.h for kernels in C, validation.h.
 * Threads: any; values are set by one thread at a time.
 * Note:    a text that names a registered kernel is not compiled, and neither is any without a
 *          compiler: its functions are the registered kernels that it names.
 */
#import "softmetal/apple/objects.h"

#include <objc/runtime.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "softmetal/call_site.h"
#include "softmetal/compiler.h"
#include "softmetal/host.h"
#include "softmetal/settings.h"
#include "softmetal/validation.h"

void
soft_error_set(NSError **error, NSInteger code, const char *text)
{
    if (error != NULL) {
        *error = [[[NSError alloc] initWithDomain:MTLLibraryErrorDomain
                                             code:code
                                             text:text
                                         userInfo:nil] autorelease];
    }
}

/* The compiler's error, which is freed.  Without a text there is none: it was interrupted. */
static void
take_error(NSError **error, soft_compile_error *failure)
{
    if (failure->text != NULL) {
        soft_error_set(error, failure->code, failure->text);
    }
    else if (error != NULL) {
        *error = nil;
    }
    free(failure->text);
}

@implementation MTLCompileOptions

- (instancetype)init
{
    self = [super init];
    _mathMode = MTLMathModeFast;
    _mathFloatingPointFunctions = MTLMathFloatingPointFunctionsFast;
    _languageVersion = SOFT_DEFAULT_LANGUAGE;
    return self;
}

- (BOOL)fastMathEnabled
{
    return _mathMode == MTLMathModeFast;
}

- (void)setFastMathEnabled:(BOOL)fastMathEnabled
{
    _mathMode = fastMathEnabled ? MTLMathModeFast : MTLMathModeSafe;
    _mathFloatingPointFunctions = fastMathEnabled ? MTLMathFloatingPointFunctionsFast
                                                  : MTLMathFloatingPointFunctionsPrecise;
}

/* What macOS 15 brought is not there in 14. */
- (BOOL)respondsToSelector:(SEL)aSelector
{
    bool is_of_15 = sel_isEqual(aSelector, @selector(setMathMode:)) ||
                    sel_isEqual(aSelector, @selector(setMathFloatingPointFunctions:));
    bool is_there = !is_of_15 || soft_macos() >= 15;
    return is_there && [super respondsToSelector:aSelector];
}

@synthesize mathMode = _mathMode, mathFloatingPointFunctions = _mathFloatingPointFunctions,
            languageVersion = _languageVersion;

/* Not synthesized: GCC warns of those that it makes. */
- (void)setMathMode:(MTLMathMode)mathMode
{
    _mathMode = mathMode;
}

- (void)setMathFloatingPointFunctions:(MTLMathFloatingPointFunctions)functions
{
    _mathFloatingPointFunctions = functions;
}

- (void)setLanguageVersion:(MTLLanguageVersion)languageVersion
{
    _languageVersion = languageVersion;
}

@end

/* ---- values of function constants ---- */

@implementation MTLFunctionConstantValues

- (void)dealloc
{
    free(_values);
    [super dealloc];
}

- (void)setConstantValue:(const void *)value type:(MTLDataType)type atIndex:(NSUInteger)index
{
    const char *method = "MTLFunctionConstantValues setConstantValue:type:atIndex:";
    size_t nbytes = soft_data_type_nbytes((unsigned)type);
    soft_constant_list *list = _values;
    if (!SOFT_DEMAND(
            value != NULL && nbytes != 0 && index <= UINT16_MAX, SOFT_REPORT_ARGUMENT,
            "-[%s]: no value (%p), no type of a constant (%lu), or an index (%lu) over "
            "65535.",
            method, value, type, index)) {
        return;
    }
    size_t place = 0, count = list == NULL ? 0 : list->count;
    while (place < count && list->values[place].index != index) {
        place += 1;
    }
    if (place == count) {
        list = realloc(list, sizeof *list + (count + 1) * sizeof list->values[0]);
        if (list == NULL) {
            soft_end_without_memory("the value of a function constant");
        }
        list->count = count + 1;
        _values = list;
    }
    list->values[place] =
        (soft_constant_value){.index = (unsigned)index, .nbytes = (unsigned char)nbytes};
    memcpy(list->values[place].bytes, value, nbytes);
}

- (const soft_constant_list *)softValues
{
    return _values;
}

@end

@implementation MTLFunctionConstant

- (instancetype)initWithFacts:(const soft_constant_facts *)facts
{
    self = [super init];
    _name = [[NSString alloc] initWithUTF8String:facts->name];
    _type = facts->type;
    _index = facts->index;
    _required = facts->is_required;
    return self;
}

- (void)dealloc
{
    [_name release];
    [super dealloc];
}

@synthesize name = _name, type = _type, index = _index, required = _required;

@end

/* ---- libraries ---- */

@implementation SoftMetalLibrary

- (instancetype)initWithDevice:(SoftMetalDevice *)device
                        source:(NSString *)source
                      language:(MTLLanguageVersion)language
{
    /* mutant survives (dropped assignment): NSObject's init gives the object itself */
    self = [super init];
    _device = [device retain];
    _language = (unsigned)language;
    _source = strdup([source UTF8String]);
    if (_source == NULL) {
        [self release];
        return nil;
    }
    return self;
}

- (BOOL)open:(NSError **)error
{
    soft_compile_error failure = {0, NULL};
    _compiler = soft_compiler_current();
    if (_compiler == NULL || soft_kernel_is_named_in(_source)) {
        return YES;
    }
    _functions = _compiler->open(_source, _language, &failure);
    if (_functions == NULL) {
        take_error(error, &failure);
    }
    return _functions != NULL;
}

- (void)dealloc
{
    soft_functions_free(_functions);
    free(_source);
    [_device release];
    [super dealloc];
}

@synthesize device = _device;

- (NSArray *)functionNames
{
    size_t count = _functions == NULL ? 0 : _functions->count;
    id *names = calloc(count + 1, sizeof *names);
    if (names == NULL) {
        soft_end_without_memory("the names of a library's functions");
    }
    for (size_t i = 0; i < count; i++) {
        names[i] = [NSString stringWithUTF8String:_functions->functions[i].name];
    }
    NSArray *array = [[NSArray alloc] initWithObjects:names count:count];
    free(names);
    return [array autorelease];
}

/* One that was compiled, or one in C that the text names; +1.  nil: the library has neither. */
- (SoftMetalFunction *)newFunction:(const char *)name
                             facts:(const soft_function_facts *)facts
                            values:(const soft_constant_list *)values
{
    soft_kernel kernel = {0};
    if (facts == NULL && (_functions != NULL || strstr(_source, name) == NULL ||
                          !soft_kernel_find(name, &kernel))) {
        return nil;
    }
    return [[SoftMetalFunction alloc] initWithLibrary:self
                                               kernel:kernel
                                                facts:facts
                                               values:values];
}

- (id<MTLFunction>)newFunctionWithName:(NSString *)functionName
{
    SOFT_CALLED();
    if (functionName == nil) {
        return nil;
    }
    const char *name = [functionName UTF8String];
    return [self newFunction:name facts:soft_functions_find(_functions, name) values:NULL];
}

static const soft_constant_value *
find_value(const soft_constant_list *list, unsigned index)
{
    for (size_t i = 0; list != NULL && i < list->count; i++) {
        if (list->values[i].index == index) {
            return &list->values[i];
        }
    }
    return NULL;
}

/* Has each constant that must have one a value, and each value its type's size? */
static BOOL
are_values_good(const soft_function_facts *facts, const soft_constant_list *list,
                NSError **error)
{
    char text[256];
    for (size_t i = 0; i < facts->constant_count; i++) {
        const soft_constant_facts *constant = &facts->constants[i];
        const soft_constant_value *value = find_value(list, constant->index);
        if (value == NULL && constant->is_required) {
            snprintf(text, sizeof text, "The function constant %s (index %u) has no value.",
                     constant->name, constant->index);
        }
        else if (value != NULL && value->nbytes != soft_data_type_nbytes(constant->type)) {
            snprintf(
                text, sizeof text,
                "The value of the function constant %s (index %u) has %d bytes, its type %zu.",
                constant->name, constant->index, value->nbytes,
                soft_data_type_nbytes(constant->type));
        }
        else {
            continue;
        }
        soft_error_set(error, MTLLibraryErrorCompileFailure, text);
        return NO;
    }
    return YES;
}

- (id<MTLFunction>)newFunctionWithName:(NSString *)functionName
                        constantValues:(MTLFunctionConstantValues *)constantValues
                                 error:(NSError **)error
{
    SOFT_CALLED();
    const char *name = functionName == nil ? "" : [functionName UTF8String];
    const soft_function_facts *facts = soft_functions_find(_functions, name);
    const soft_constant_list *list = [constantValues softValues];
    if (facts != NULL && !are_values_good(facts, list, error)) {
        return nil;
    }
    SoftMetalFunction *function = [self newFunction:name facts:facts values:list];
    if (function == nil) {
        char text[256];
        snprintf(text, sizeof text, "The library has no function of the name %s.", name);
        soft_error_set(error, MTLLibraryErrorFunctionNotFound, text);
    }
    return function;
}

@end

/* ---- functions ---- */

@implementation SoftMetalFunction

- (instancetype)initWithLibrary:(SoftMetalLibrary *)library
                         kernel:(soft_kernel)kernel
                          facts:(const soft_function_facts *)facts
                         values:(const soft_constant_list *)values
{
    self = [super init];
    _library = [library retain];
    _kernel = kernel;
    _facts = facts;
    if (values != NULL) {
        size_t nbytes = sizeof *values + values->count * sizeof values->values[0];
        _values = malloc(nbytes);
        if (_values == NULL) {
            [self release];
            return nil;
        }
        memcpy(_values, values, nbytes);
    }
    return self;
}

- (void)dealloc
{
    free(_values);
    [_library release];
    [super dealloc];
}

- (id<MTLDevice>)device
{
    return [_library device];
}

- (NSString *)name
{
    return [NSString stringWithUTF8String:_facts == NULL ? _kernel.name : _facts->name];
}

- (MTLFunctionType)functionType
{
    return _facts == NULL ? MTLFunctionTypeKernel : (MTLFunctionType)_facts->type;
}

- (NSDictionary *)functionConstantsDictionary
{
    size_t count = _facts == NULL ? 0 : _facts->constant_count;
    NSString **names = calloc(count + 1, sizeof *names);
    id *constants = calloc(count + 1, sizeof *constants);
    if (names == NULL || constants == NULL) {
        soft_end_without_memory("a function's constants");
    }
    for (size_t i = 0; i < count; i++) {
        constants[i] =
            [[[MTLFunctionConstant alloc] initWithFacts:&_facts->constants[i]] autorelease];
        names[i] = [constants[i] name];
    }
    NSDictionary *dictionary = [[NSDictionary alloc] initWithObjects:constants
                                                             forKeys:names
                                                               count:count];
    free(constants);
    free(names);
    return [dictionary autorelease];
}

- (soft_loaded_image *)compileForCounting:(BOOL)isCounting error:(NSError **)error
{
    soft_compile_error failure = {0, NULL};
    char text[512] = "";
    char *path =
        _library->_compiler->compile(_library->_source, _library->_language, _facts->name,
                                     _values == NULL ? NULL : _values->values,
                                     _values == NULL ? 0 : _values->count, isCounting,
                                     &failure);
    if (path == NULL) {
        take_error(error, &failure);
        return NULL;
    }
    soft_loaded_image *image = soft_image_open(path, _facts->name, text, sizeof text);
    if (image == NULL) {
        soft_error_set(error, MTLLibraryErrorInternal, text);
    }
    free(path);
    return image;
}

@end
