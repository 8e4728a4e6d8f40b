/* compiler.h: who turns Metal's language into images that run here: a table of C functions that
 * the program above gives.
 *
 * Owns:    one pointer to that table.
 * Threads: any; the functions of the table are called under no lock of softmetal, by any thread.
 * Note:    a library is its text: it is handed over again for each kernel, so that nothing of the
 *          compiler's lives in an object that any thread may release.
 */
#ifndef SOFT_COMPILER_H
#define SOFT_COMPILER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- what a text holds ---- */

typedef struct soft_constant_facts {
    char *name;    /* owned */
    unsigned type; /* MTLDataType */
    unsigned index;
    bool is_required;
} soft_constant_facts;

typedef struct soft_function_facts {
    char *name;    /* owned */
    unsigned type; /* MTLFunctionType */
    soft_constant_facts *constants;
    size_t constant_count;
} soft_function_facts;

/* In the order of the text. */
typedef struct soft_functions {
    soft_function_facts *functions;
    size_t count;
} soft_functions;

soft_functions *soft_functions_new(void);            /* owned (+1); NULL: there is no memory */
void soft_functions_free(soft_functions *functions); /* NULL is allowed */
/* False: there is no memory, or no such type, and nothing was added. */
bool soft_functions_add(soft_functions *functions, const char *name, unsigned type);
/* A constant of the function that was added last; its type as Metal's language has it. */
bool soft_functions_add_constant(soft_functions *functions, const char *name, const char *type,
                                 unsigned index, bool is_required);
const soft_function_facts *soft_functions_find(
    const soft_functions *functions,
    const char *name); /* NULL: there is none, or no functions */

/* ---- the table ---- */

/* Why there is nothing. */
typedef struct soft_compile_error {
    int code;   /* MTLLibraryError */
    char *text; /* malloc'ed; NULL: the compiler was interrupted, and may be asked again */
} soft_compile_error;

typedef struct soft_constant_value {
    unsigned index;
    unsigned char nbytes;
    unsigned char bytes[32];
} soft_constant_value;

#define SOFT_LINE_NBYTES 256

/* `language` is an MTLLanguageVersion.  No function is told the math: all modes are one on a CPU. */
typedef struct softmetal_compiler {
    /* What the text holds: owned (+1), or NULL with `*error` filled. */
    soft_functions *(*open)(const char *source, unsigned language, soft_compile_error *error);
    /* The path of an image of one function, which counts or does not: malloc'ed, or NULL with `*error` filled. */
    char *(*compile)(const char *source, unsigned language, const char *function,
                     const soft_constant_value *values, size_t count, bool is_counting,
                     soft_compile_error *error);
    /* Which line an instruction comes from: "file:line:column", of a long one the end; or "".
     * The same as the user knows it, for a message; and whether he says that what is found there
     * is meant so. */
    void (*name_lines)(const char *image_path, const uint64_t *addresses, size_t count,
                       char (*lines)[SOFT_LINE_NBYTES], char (*shown)[SOFT_LINE_NBYTES],
                       bool *is_silenced);
} softmetal_compiler;

/* From now on, `compiler` (borrowed for ever) compiles; NULL: nobody does.  A text that names a
 * kernel of softmetal_register_kernel is never compiled. */
void softmetal_set_compiler(const softmetal_compiler *compiler);
const softmetal_compiler *soft_compiler_current(void);

/* ---- the types of Metal's language that a constant can have ---- */

/* sizeof a MTLDataType; 0 for one that no constant has. */
size_t soft_data_type_nbytes(unsigned type);

#endif /* SOFT_COMPILER_H */
