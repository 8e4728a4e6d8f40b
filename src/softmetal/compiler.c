/* compiler.c: see compiler.h. */
#include "softmetal/compiler.h"

#include <stdlib.h>
#include <string.h>

#include "softmetal/data_type.h"

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
soft_functions_add(soft_functions *functions, const char *name)
{
    size_t count = functions->count;
    soft_function_facts *larger = realloc(functions->functions, (count + 1) * sizeof *larger);
    if (larger == NULL) {
        return false;
    }
    functions->functions = larger;
    larger[count] = (soft_function_facts){.name = strdup(name)};
    functions->count += larger[count].name != NULL;
    return functions->count > count;
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
        (soft_constant_facts){strdup(name), soft_data_type_named(type), index, is_required};
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
    for (size_t i = 0; i < functions->count; i++) {
        if (strcmp(functions->functions[i].name, name) == 0) {
            return &functions->functions[i];
        }
    }
    return NULL;
}
