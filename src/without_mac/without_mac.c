/* without_mac.c: names the parts of this folder to module.c, which stands below and knows none of them.
 *
 * Threads: the one that loads the library, before anything else of it runs.
 */
#include "without_mac/without_mac.h"

/* The Python module that metal_dlpack imports when it first asks: it knows no module above itself. */
static int
name_python(PyObject *module)
{
    return PyModule_AddStringConstant(module, "_stand_in", "softmetal.running.standing_in");
}

static module_part parts[] = {
    {.functions = softmetal_probe_functions},  {.functions = softmetal_counts_functions},
    {.functions = softmetal_record_functions}, {.add = softmetal_torch_add},
    {.add = softmetal_compiler_install},       {.add = name_python},
};

__attribute__((constructor)) static void
name_parts(void)
{
    for (size_t i = sizeof parts / sizeof parts[0]; i-- > 0;) {
        parts[i].next = module_parts;
        module_parts = &parts[i];
    }
}
