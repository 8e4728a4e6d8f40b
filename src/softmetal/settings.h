/* settings.h: every setting of the software Metal, in one list.
 *
 * Owns:    the current values; read from the environment at the first question.
 * Calls:   failure.h.
 * Threads: every function from any thread; values are read without a lock.
 */
#ifndef SOFT_SETTINGS_H
#define SOFT_SETTINGS_H

#include <stdint.h>

/* X(name, environment name, default, its words with a bar between them: the value counts
 * them from 0; or NULL and what reads the text) */
#define SOFT_SETTING_LIST(X) \
    X(SOFT_DEVICES, "SOFTMETAL_DEVICES", "unified", NULL, read_devices) \
    X(SOFT_DEVICE_OBJECTS, "SOFTMETAL_DEVICE_OBJECTS", "one", "one|many", NULL) \
    X(SOFT_MACOS, "SOFTMETAL_MACOS", "15", "14|15|26|27", NULL) \
    X(SOFT_DISCRETE, "SOFTMETAL_DISCRETE", "0", "0|1", NULL) \
    X(SOFT_MAX_BUFFER_LENGTH, "SOFTMETAL_MAX_BUFFER_LENGTH", "32G", NULL, read_size) \
    X(SOFT_MEMORY_LIMIT, "SOFTMETAL_MEMORY_LIMIT", "0", NULL, read_size) \
    X(SOFT_QUEUE_DEPTH, "SOFTMETAL_QUEUE_DEPTH", "64", NULL, read_size) \
    X(SOFT_DEADLOCK_MS, "SOFTMETAL_DEADLOCK_MS", "30000", NULL, read_size) \
    X(SOFT_LATENCY_US, "SOFTMETAL_LATENCY_US", "0", NULL, read_size) \
    X(SOFT_EVENT_TIMEOUT_MS, "SOFTMETAL_EVENT_TIMEOUT_MS", "0", NULL, read_size) \
    X(SOFT_SIGNAL_ON_ERROR, "SOFTMETAL_SIGNAL_ON_ERROR", "0", "0|1", NULL) \
    X(SOFT_AFTER_ERROR, "SOFTMETAL_AFTER_ERROR", "works", "works|ignored", NULL) \
    X(SOFT_WAIT_SCOPE, "SOFTMETAL_WAIT_SCOPE", "queue", "queue|commands", NULL) \
    X(SOFT_SEED, "SOFTMETAL_SEED", "0", NULL, read_seed) \
    X(SOFT_JITTER_US, "SOFTMETAL_JITTER_US", "200", NULL, read_size) \
    X(SOFT_PURGE, "SOFTMETAL_PURGE", "0", "0|1", NULL) \
    X(SOFT_POISON, "SOFTMETAL_POISON", "0", "0|1", NULL) \
    X(SOFT_BLIT_LIMIT, "SOFTMETAL_BLIT_LIMIT", "4G", NULL, read_limit) \
    X(SOFT_NO_COPY, "SOFTMETAL_NO_COPY", "exact", "exact|short|moved|refused", NULL) \
    X(SOFT_VALIDATION, "SOFTMETAL_VALIDATION", "0", "0|1", NULL) \
    X(SOFT_VALIDATION_MODE, "SOFTMETAL_VALIDATION_MODE", "abort", "log|abort", NULL) \
    X(SOFT_RACES, "SOFTMETAL_RACES", "1", "0|1", NULL) \
    X(SOFT_KERNEL_THREADS, "SOFTMETAL_KERNEL_THREADS", "0", NULL, read_size) \
    X(SOFT_KERNEL_CHECK, "SOFTMETAL_KERNEL_CHECK", "0", "0|1|report", NULL) \
    X(SOFT_LEGALITY, "SOFTMETAL_LEGALITY", "1", "0|1", NULL) \
    X(SOFT_KERNEL_TIMEOUT, "SOFTMETAL_KERNEL_TIMEOUT", "60", NULL, read_size) \
    X(SOFT_FAIL, "SOFTMETAL_FAIL", "", NULL, read_fail)

#define SOFT_AS_ENUM(name, environment, initial, words, reader) name,
typedef enum { SOFT_SETTING_LIST(SOFT_AS_ENUM) SOFT_SETTING_COUNT } soft_setting;
#undef SOFT_AS_ENUM

/* SOFT_KERNEL_CHECK where a launch that went on to its end does not fail for what was found. */
#define SOFT_CHECK_REPORT 2

/* What newBufferWithBytesNoCopy gives. */
typedef enum soft_no_copy {
    SOFT_NO_COPY_EXACT,
    SOFT_NO_COPY_SHORT,  /* a byte less than asked */
    SOFT_NO_COPY_MOVED,  /* a copy of the bytes elsewhere */
    SOFT_NO_COPY_REFUSED /* nil, after the deallocator's call */
} soft_no_copy;

/* The value as a number.  SOFT_DEVICES: the number of devices in the low byte, and from bit 8
 * on one bit per device, set for a discrete GPU, from bit 16 on for that of a virtual machine.
 * SOFT_SEED: UINT64_MAX for "last".  SOFT_NO_COPY: a soft_no_copy. */
uint64_t soft_settings_get(soft_setting setting);

/* Read the environment, unless that is done.  For what makes devices: the first call that
 * failure.h counts has to find the rules of SOFTMETAL_FAIL. */
void soft_settings_read(void);

int soft_macos(void); /* 14, 15, ...: the system that stands behind the software Metal */

/* ---- SOFTMETAL_SEED orders what Metal leaves open ---- */

typedef enum {
    SOFT_ORDER_FIRST,  /* as encoded */
    SOFT_ORDER_RANDOM, /* any that is ready */
    SOFT_ORDER_LAST    /* the latest that is ready: the worst order Metal allows */
} soft_seed_kind;

soft_seed_kind soft_seed_order(void);       /* as the setting says now */
uint64_t soft_seed_random(uint64_t *state); /* the state belongs to one thread */

#endif /* SOFT_SETTINGS_H */
