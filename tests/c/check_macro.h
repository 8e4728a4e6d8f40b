/* check_macro.h: a check that stops the program and says where. */
#ifndef CHECK_MACRO_H
#define CHECK_MACRO_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
            exit(1); \
        } \
    } while (0)

#endif /* CHECK_MACRO_H */
