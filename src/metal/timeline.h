/* timeline.h: when each piece of work was submitted, began and ended, and who waited for whom.
 *
 * Owns:    a ring of records, while a timeline is open.
 * Calls:   nothing.
 * Threads: any, with or without the GIL.
 * Rule:    the work never fails and never waits because of it: a record for which there is no room
 *          takes the place of the oldest.
 * Cost:    while none is open, one memory read.
 */
#ifndef MD_TIMELINE_H
#define MD_TIMELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* module/timeline_records.c has their names. */
typedef enum {
    TIMELINE_COPY,
    TIMELINE_FILL,
    TIMELINE_KERNEL,
    TIMELINE_MARK,      /* an empty piece: its value is all that it is for */
    TIMELINE_WAIT,      /* an empty piece that waits: what comes behind it does too */
    TIMELINE_OPERATOR,  /* torch's, on the software Metal */
    TIMELINE_GPU_WAITS, /* what a piece waits for: not a piece itself */
    TIMELINE_CPU_WAITS, /* a thread that waits for the GPU */
} timeline_kind;

typedef enum {
    TIMELINE_ASKED,
    TIMELINE_STAGED,  /* private storage, which the CPU reaches through a stage */
    TIMELINE_PRIVATE, /* private storage, of which NumPy gets a copy */
    TIMELINE_FAULT,   /* and what follows: a dlpack_fault_code, counted from here */
} timeline_reason;

#define TIMELINE_CPU UINT32_MAX /* no mode of storage: memory that is no MTLBuffer */

/*     a piece          stream, value, kind, nbytes, dst and src; submitted, started, ended
 *     GPU_WAITS        `waiter`: the piece; stream and value, or event and value: what for; dst: the
 *                      buffer that it is about
 *     CPU_WAITS        thread, started, ended; what for: the same */
typedef struct timeline_record {
    uint64_t number; /* from 1; 0: no record */
    uint64_t waiter;
    double submitted, scheduled, started,
        ended;         /* seconds of timeline_now; NAN: not yet, or not known */
    double launch;     /* from `submitted` until Metal has it, which the caller is busy with */
    const void *event; /* a foreign MTLSharedEvent: compared only; NULL: a stream's own */
    uint64_t value;
    uint64_t nbytes;
    const void *dst, *src;       /* MTLBuffers: compared only */
    uint64_t thread;             /* as Python counts them */
    uint32_t stream;             /* its serial; 0: the CPU did it */
    uint32_t place;              /* in the user's Python; 0: not known */
    uint32_t dst_mode, src_mode; /* bridge_storage, or TIMELINE_CPU */
    uint8_t kind, reason;
    bool has_failed, was_dropped;
    char name[41]; /* the kernel's, the operator's, or of the function that was called; "" */
} timeline_record;

_Static_assert(sizeof(timeline_record) <= 200, "docs/timeline.md says so");

extern uint32_t timeline_opening; /* atomic; 0: none is open; else another number each time */

static inline bool
timeline_on(void)
{
    return __builtin_expect(__atomic_load_n(&timeline_opening, __ATOMIC_RELAXED) != 0, 0);
}

/* Seconds of the clock that MTLCommandBuffer's times follow.  SPEC GPUStartTime: Apple does not name
 * it; CACurrentMediaTime, which is CLOCK_UPTIME_RAW, is what it is compared with. */
double timeline_now(void);
/* The same; 0: none is open. */
static inline double
timeline_begin(void)
{
    return timeline_on() ? timeline_now() : 0;
}

/* ---- what the caller of this thread knows of the next record; none of it outlives that ---- */

typedef struct timeline_note {
    uint32_t opening; /* in which the rest was noted */
    uint32_t place;
    uint8_t reason;
    const char *name; /* borrowed until the record is made */
} timeline_note;

extern _Thread_local timeline_note timeline_next;

/* The note.  What was noted for a record that was not made, as the timeline closed before, is dropped:
 * the name may be gone, and the place's number means another place. */
timeline_note *timeline_note_now(void);

/* The record that was noted is not made: the call failed. */
static inline void
timeline_note_drop(void)
{
    timeline_next.opening = 0;
}

/* The next piece of this thread's is called so. */
static inline void
timeline_name(const char *name)
{
    if (timeline_on()) {
        timeline_note_now()->name = name;
    }
}

/* Why it is copied, where nobody asked for a copy. */
static inline void
timeline_because(unsigned reason)
{
    if (timeline_on()) {
        timeline_note_now()->reason = (uint8_t)reason;
    }
}

/* ---- recording ---- */

/* What is told of a stream once: its queue's label, and its event, which other pieces may wait for by. */
typedef struct timeline_queue {
    uint32_t stream;
    const void *event; /* an MTLSharedEvent: compared only */
    char label[64];
} timeline_queue;

/* Keep a piece's record, and add the time, the thread and the note.  `*number` is 0 if none is kept.
 * False: its queue was not told, and `queue` is NULL; call again with it.  Both are kept in one step:
 * whatever opens and closes in between, who reads the record knows its queue. */
bool timeline_add(const timeline_record *record, const timeline_queue *queue, uint64_t *number);
/* The piece of this number is committed; 0: none is. */
void timeline_committed(uint64_t number);
/* The piece of this number is done; its times may be NAN.  0: nothing is done. */
void timeline_end(uint64_t number, double scheduled, double started, double ended,
                  bool has_failed);
/* The calling thread has waited since `started` for what the record says, in a call of this name (NULL:
 * not known).  0: no timeline was open then. */
void timeline_waited(double started, const char *name, timeline_record what);
/* It has worked since `started`: kind and times are filled here. */
void timeline_computed(double started, timeline_kind kind, timeline_record what);
/* The piece of this number waits on the GPU for what the record says; 0: none was open. */
void timeline_held(uint64_t waiter, timeline_record what);
/* Memory is handed out: what had this address before was other memory. */
void timeline_note_birth(const void *buffer);

static inline void
timeline_born(const void *buffer)
{
    if (timeline_on()) {
        timeline_note_birth(buffer);
    }
}

/* It was not submitted after all. */
void timeline_drop(uint64_t number);

/* ---- for module/timeline_records.c ---- */

/* Record from now on, at least `capacity` records.  Opened as often as closed.  `*first` is the number
 * of the first record.  False: there is no memory. */
bool timeline_open(size_t capacity, uint64_t *first);
/* Stop recording, unless others are open.  Returns the number after the last record.  The records stay
 * until timeline_forget, which is called once for each that was opened. */
uint64_t timeline_close(void);
void timeline_forget(void);
/* Records from this number on are about the memory that has this address now; or from a later one, if
 * other memory that was handed out since shares its place in a small table. */
uint64_t timeline_birth(const void *buffer);
/* The number after the last record so far. */
uint64_t timeline_end_number(void);
/* Copy the record of this number, which timeline_end_number has passed; false: it was dropped, or another
 * took its place (`*is_lost`). */
bool timeline_read(uint64_t number, timeline_record *out, bool *is_lost);
/* The queues that were told, one after the other; false: there is none at the index. */
bool timeline_read_queue(size_t index, timeline_queue *out);

#endif /* MD_TIMELINE_H */
