/* validation.h: what the software Metal says about wrong use of Metal.
 *
 * Owns:    the counters and the last text.
 * Threads: any.  In the mode `abort` a report does not return.
 */
#ifndef SOFT_VALIDATION_H
#define SOFT_VALIDATION_H

#include <pthread.h>
#include <stdbool.h>

/* X(name, word): the classes of reports. */
#define SOFT_REPORT_LIST(X) \
    X(SOFT_REPORT_ZERO_LENGTH, "zero-length") \
    X(SOFT_REPORT_OVER_MAXIMUM, "length-over-maximum") \
    X(SOFT_REPORT_PRIVATE_ACCESS, "cpu-access-to-private") \
    X(SOFT_REPORT_NO_COPY_ALIGNMENT, "bytes-no-copy-alignment") \
    X(SOFT_REPORT_BLIT_RANGE, "blit-range") \
    X(SOFT_REPORT_SET_BYTES, "set-bytes") \
    X(SOFT_REPORT_SECOND_ENCODER, "second-encoder") \
    X(SOFT_REPORT_NO_END_ENCODING, "no-end-encoding") \
    X(SOFT_REPORT_COMMIT_ENCODING, "commit") \
    X(SOFT_REPORT_DESTROYED_IN_USE, "destroyed-in-use") \
    X(SOFT_REPORT_DEAD_AT_COMMIT, "deallocated-at-commit") \
    X(SOFT_REPORT_PURGEABLE, "purgeable-at-commit") \
    X(SOFT_REPORT_ENCODER_STATE, "encoder-state") \
    X(SOFT_REPORT_BLIT_ALIGNMENT, "blit-alignment") \
    X(SOFT_REPORT_DISPATCH, "dispatch") \
    X(SOFT_REPORT_TEXTURE, "texture") \
    X(SOFT_REPORT_ARGUMENT, "argument") \
    X(SOFT_REPORT_MISSING_POOL, "missing-pool") \
    X(SOFT_REPORT_DEAD_OBJECT, "dead-object") \
    X(SOFT_REPORT_FORK, "fork") \
    X(SOFT_REPORT_RACE, "race") \
    X(SOFT_REPORT_DEADLOCK, "deadlock") \
    X(SOFT_REPORT_KERNEL, "kernel")

#define SOFT_AS_ENUM(name, word) name,
typedef enum { SOFT_REPORT_LIST(SOFT_AS_ENUM) SOFT_REPORT_COUNT } soft_report;
#undef SOFT_AS_ENUM

bool soft_validation_is_on(void);

/* Report whether validation is on or off: for what would hang or corrupt memory. */
__attribute__((format(printf, 2, 3))) void soft_validation_insist(soft_report kind,
                                                                  const char *format, ...);
/* The same of what a report at the program's end has, which an abort would lose. */
__attribute__((format(printf, 2, 3))) void soft_validation_print(soft_report kind,
                                                                 const char *format, ...);
/* The same of what was printed before: counted, and kept as the last text. */
__attribute__((format(printf, 2, 3))) void soft_validation_again(soft_report kind,
                                                                 const char *format, ...);
/* Report wrong use, if validation is on. */
#define soft_validation_report(kind, ...) \
    (soft_validation_is_on() ? soft_validation_insist(kind, __VA_ARGS__) : (void)0)
/* Does a rule of Metal hold?  If not, that is reported; else nothing after it is evaluated. */
#define SOFT_DEMAND(rule, kind, ...) \
    ((rule) || (soft_validation_report(kind, __VA_ARGS__), false))

extern pthread_mutex_t soft_validation_mutex; /* fork holds it */

#endif /* SOFT_VALIDATION_H */
