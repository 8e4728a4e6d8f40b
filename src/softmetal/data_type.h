/* data_type.h: the types of Metal's language that a constant can have.
 *
 * Owns:    nothing; a static table.
 * Threads: pure functions.
 */
#ifndef SOFT_DATA_TYPE_H
#define SOFT_DATA_TYPE_H

#include <stddef.h>

/* A MTLDataType, by its name in Metal's language ("uint", "float4"); 0: there is none. */
unsigned soft_data_type_named(const char *name);
/* sizeof; 0 for a type that no constant has. */
size_t soft_data_type_nbytes(unsigned type);

#endif /* SOFT_DATA_TYPE_H */
