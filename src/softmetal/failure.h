/* failure.h: calls and command buffers that fail because a test said so.
 *
 * Owns:    the rules of SOFTMETAL_FAIL and their counters, behind one lock.
 * Calls:   nothing of softmetal: settings.c gives it the rules.
 * Threads: any.
 * Grammar: rules with commas between; a rule is kind[@n[+]][=code]: the n-th call of that kind
 *          from now on (1 when left out), with + every later one too.
 */
#ifndef SOFT_FAILURE_H
#define SOFT_FAILURE_H

#include <pthread.h>
#include <stdbool.h>

/* X(name, word): what can fail.  SOFT_FAIL_COMMAND is a committed command buffer that ends in
 * an error, the others are calls that give nil. */
#define SOFT_FAILURE_LIST(X) \
    X(SOFT_FAIL_DEVICE, "device") \
    X(SOFT_FAIL_BUFFER, "buffer") \
    X(SOFT_FAIL_QUEUE, "queue") \
    X(SOFT_FAIL_COMMAND_BUFFER, "commandBuffer") \
    X(SOFT_FAIL_ENCODER, "encoder") \
    X(SOFT_FAIL_EVENT, "event") \
    X(SOFT_FAIL_LIBRARY, "library") \
    X(SOFT_FAIL_PIPELINE, "pipeline") \
    X(SOFT_FAIL_FENCE, "fence") \
    X(SOFT_FAIL_RESIDENCY, "residency") \
    X(SOFT_FAIL_TEXTURE, "texture") \
    X(SOFT_FAIL_SAMPLER, "sampler") \
    X(SOFT_FAIL_COMMAND, "commit")

#define SOFT_AS_ENUM(name, word) name,
typedef enum { SOFT_FAILURE_LIST(SOFT_AS_ENUM) SOFT_FAILURE_COUNT } soft_failure;
#undef SOFT_AS_ENUM

/* Forget all rules and counters and take these.  False, with no change, if not understood. */
bool soft_failure_set_rules(const char *text);

/* Count one call of this kind; true if it has to fail.  `code` (may be NULL) gets the code of
 * the rule, a MTLCommandBufferError. */
bool soft_failure_strikes(soft_failure kind, int *code);

/* A command buffer that ended with DeviceRemoved takes the devices with it, until rules are set
 * again. */
void soft_failure_remove_devices(void);
bool soft_failure_devices_are_removed(void);

extern pthread_mutex_t soft_failure_mutex; /* fork holds it */

/* "OutOfMemory" for 8, ...; NULL for a number that is no code. */
const char *soft_failure_code_name(int code);

#endif /* SOFT_FAILURE_H */
