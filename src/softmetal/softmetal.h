/* softmetal.h: the controls of the software Metal; nothing here exists in Apple's.
 *
 * Owns:    nothing; plain C, no Objective-C, so that any file may include it.
 * Threads: every function from any thread.
 * Names:   docs/softmetal.md lists the settings and their grammar.
 */
#ifndef SOFTMETAL_H
#define SOFTMETAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Change one setting: `name` as in the environment ("SOFTMETAL_LATENCY_US"), `value` in the
 * same grammar; NULL gives the default back.  0, or -1 (nothing changed) for a name or value
 * that is not understood.  Holds for what is made or run from now on. */
int softmetal_set(const char *name, const char *value);
/* All settings as the environment says now. */
void softmetal_reset(void);

/* How many objects live whose class, one of its superclasses or one of its protocols has this
 * name ("MTLBuffer"); NULL counts all.  Worker threads let go of a command buffer before its
 * waiters wake. */
size_t softmetal_live_objects(const char *name);
/* Calls `visit` for each such object, oldest first, under a lock: `visit` must not make, retain
 * or release objects.  `site` is where the object was made ("" unless validation was on). */
void softmetal_visit_live_objects(const char *name,
                                  void (*visit)(const char *class_name, const void *object,
                                                long retain_count, const char *site,
                                                void *context),
                                  void *context);

/* Objects autoreleased where the thread had no pool; such an object leaks. */
size_t softmetal_autoreleased_without_pool(void);

/* How many validation reports of this class ("blit-range"), or of all (NULL), were made. */
size_t softmetal_reports(const char *kind);
/* The text of the last report of this process, copied; its length as snprintf gives it. */
size_t softmetal_last_report(char *text, size_t nbytes);
void softmetal_clear_reports(void);

/* A kernel, in C: every call of it, one after the other.  `arguments[i]` is what was bound at
 * index i, NULL for nothing; `grid` the number of threads along x, y and z. */
typedef void softmetal_kernel(void *const *arguments, const size_t grid[3]);
/* What MTLLibrary's newFunctionWithName: finds under this name (static text), if the library's
 * text has the name as well; bit i of `written`: argument i is written.  `run` NULL: the kernel
 * declares that, and touches no byte.  A later one of the same name replaces it.  0, or -1: there
 * are 256 already. */
int softmetal_register_kernel(const char *name, softmetal_kernel *run, unsigned written);

/* Say what a kernel is to touch of the buffer bound last at this index of an encoder:
 * `nbytes` bytes, of which `before` lie before the offset, and no more.  Metal has no such call: the checker
 * looks. */
void softmetal_note_view(const void *encoder, unsigned index, size_t before, size_t nbytes);

/* Say the same of the resource used last: bytes `offset` to `offset` + `nbytes` of it, which the reports call
 * by `number`. */
void softmetal_note_resource(const void *encoder, unsigned number, size_t offset,
                             size_t nbytes);

/* What a kernel was given at an index, where its parameter does not say so. */
typedef struct softmetal_given {
    unsigned index;
    const char
        *text; /* how a finding ends: "as int, and ..."; of it at most 240 bytes are kept */
    bool
        is_strided; /* its items lie in another order, or apart; else they are of another type */
    /* The axes of items that lie apart: how many steps of how many bytes, the widest
     * first, each wider than all within it; a use of the gaps is told.  0: any use is. */
    int axes;
    const size_t (*steps)[2];
    size_t item_nbytes;
} softmetal_given;

/* Say what the kernel encoded last on this id<MTLCommandBuffer> was given: the checker tells it where the kernel
 * first uses the argument.  Nothing, if the kernel is not a checked one.  Before it is committed. */
void softmetal_host_gave(const void *commands, const softmetal_given *given);

/* Bytes of the residency sets that are wired now, those that are lost among them. */
size_t softmetal_resident_nbytes(void);

/* How many bytes one blit moves at most, a multiple of 8: SOFTMETAL_BLIT_LIMIT. */
size_t softmetal_blit_limit(void);

/* Wait until no committed command buffer is left.  1, or 0 after `timeout_ms`. */
int softmetal_wait_idle(uint64_t timeout_ms);

/* ---- races: what the software Metal cannot see by itself ---- */

/* Not 0: validation and SOFTMETAL_RACES are on.  To be read before the calls below, which cost
 * a few microseconds then and nothing else. */
extern int softmetal_is_watching;

/* The CPU is about to read or write bytes of an MTLBuffer (`buffer`), whose memory it can
 * reach.  Not counted in a handler. */
void softmetal_host_access(const void *buffer, size_t offset_bytes, size_t nbytes,
                           int is_written);
/* The calling thread knows by means of its own (a counter, a condition) that an MTLSharedEvent
 * has had this value. */
void softmetal_host_reached(const void *event, uint64_t value);
/* Call before commit: what was encoded last on this id<MTLCommandBuffer> counts as begun now,
 * since others may commit it at any time. */
void softmetal_host_encoded(const void *commands);
/* An MTLBuffer that no command buffer keeps is about to be given to somebody else: all its uses are
 * over. */
void softmetal_host_frees(const void *buffer);
/* As unlocking and locking a mutex would: release leaves at an MTLBuffer what the calling thread
 * knows, acquire learns what was left there.  NULL: at one more place, which is no buffer's. */
void softmetal_host_release(const void *buffer);
void softmetal_host_acquire(const void *buffer);

/* ---- memory that nobody has written: the checker finds kernels that read it ---- */

/* Not 0: kernels are checked.  To be read before softmetal_host_unwritten. */
extern int softmetal_is_checking;
/* Not 0, from then on: some memory was told to be unwritten.  To be read before softmetal_host_access,
 * softmetal_host_gives and softmetal_host_renews. */
extern int softmetal_knows_unwritten;

/* Nobody has written the first bytes of an MTLBuffer, which nobody uses yet.  `is_output`: nobody but the
 * next launch can. */
void softmetal_host_unwritten(const void *buffer, size_t nbytes, int is_output);
/* Others get the MTLBuffer, and may write to it. */
void softmetal_host_gives(const void *buffer);

/* ---- memory that is used again, without Metal's knowledge ---- */

/* Not 0: SOFTMETAL_POISON is on.  To be read before the call below. */
extern int softmetal_is_poisoning;

/* An MTLBuffer that nobody uses is about to be given out as a new one: its bytes become those of a
 * new one. */
void softmetal_host_renews(const void *buffer);

#endif /* SOFTMETAL_H */
