/* compiler.c: see compiler.h. */
#include "softmetal/compiler.h"

#include <stdlib.h>
#include <string.h>

#include "softmetal/metal_scalars.h"

static const softmetal_compiler *current; /* atomic */

void
softmetal_set_compiler(const softmetal_compiler *compiler)
{
    __atomic_store_n(&current, compiler, __ATOMIC_RELEASE);
}

const softmetal_compiler *
soft_compiler_current(void)
{
    return __atomic_load_n(&current, __ATOMIC_ACQUIRE);
}

soft_functions *
soft_functions_new(void)
{
    return calloc(1, sizeof(soft_functions));
}

void
soft_functions_free(soft_functions *functions)
{
    if (functions == NULL) {
        return;
    }
    for (size_t i = 0; i < functions->count; i++) {
        soft_function_facts *function = &functions->functions[i];
        for (size_t k = 0; k < function->constant_count; k++) {
            free(function->constants[k].name);
        }
        free(function->constants);
        free(function->name);
    }
    free(functions->functions);
    free(functions);
}

bool
soft_functions_add(soft_functions *functions, const char *name, unsigned type)
{
    size_t count = functions->count;
    soft_function_facts *larger = realloc(functions->functions, (count + 1) * sizeof *larger);
    if (larger == NULL) {
        return false;
    }
    functions->functions = larger;
    larger[count] = (soft_function_facts){.name = strdup(name), .type = type};
    functions->count += larger[count].name != NULL;
    return functions->count > count;
}

static const struct scalar {
    const char *name;
    unsigned type;
    size_t nbytes;
} scalars[] = {
#define SCALAR(name, type, matrix, code, bits) {#name, type, (bits) / 8},
    METAL_SCALARS(SCALAR)
#undef SCALAR
};
#define SCALAR_COUNT (sizeof scalars / sizeof scalars[0])

/* A MTLDataType, by its name in Metal's language ("uint", "float4"); 0: there is none. */
static unsigned
data_type_named(const char *name)
{
    for (size_t i = 0; i < SCALAR_COUNT; i++) {
        size_t length = strlen(scalars[i].name);
        const char *width = name + length;
        if (strncmp(name, scalars[i].name, length) != 0) {
            continue;
        }
        if (*width == '\0') {
            return scalars[i].type;
        }
        if (*width >= '2' && *width <= '4' && width[1] == '\0') {
            return scalars[i].type + (unsigned)(*width - '1');
        }
    }
    return 0;
}

bool
soft_functions_add_constant(soft_functions *functions, const char *name, const char *type,
                            unsigned index, bool is_required)
{
    soft_function_facts *function = &functions->functions[functions->count - 1];
    size_t count = function->constant_count;
    soft_constant_facts *larger = realloc(function->constants, (count + 1) * sizeof *larger);
    if (larger == NULL) {
        return false;
    }
    function->constants = larger;
    larger[count] =
        (soft_constant_facts){strdup(name), data_type_named(type), index, is_required};
    if (larger[count].name == NULL || larger[count].type == 0) {
        free(larger[count].name);
        return false;
    }
    function->constant_count = count + 1;
    return true;
}

const soft_function_facts *
soft_functions_find(const soft_functions *functions, const char *name)
{
    for (size_t i = 0; functions != NULL && i < functions->count; i++) {
        if (strcmp(functions->functions[i].name, name) == 0) {
            return &functions->functions[i];
        }
    }
    return NULL;
}

size_t
soft_data_type_nbytes(unsigned type)
{
    static const size_t items[] = {1, 2, 4, 4};
    for (size_t i = 0; i < SCALAR_COUNT; i++) {
        if (type >= scalars[i].type && type < scalars[i].type + 4) {
            return scalars[i].nbytes * items[type - scalars[i].type];
        }
    }
    return 0;
}
