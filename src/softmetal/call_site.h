/* call_site.h: where in the program something was made.
 *
 * Owns:    a call site belongs to the one who recorded it.
 * Calls:   validation.h.
 * Threads: any.
 */
#ifndef SOFT_CALL_SITE_H
#define SOFT_CALL_SITE_H

#include <stddef.h>

typedef struct soft_call_site soft_call_site;

/* The first line of each method that makes something: the call site starts at its caller. */
#define SOFT_CALLED() soft_call_site_set_caller(__builtin_return_address(0))
void soft_call_site_set_caller(void *address);

#define SOFT_MOST_FRAMES 16
/* The stack of the caller, as far as it is shown, when validation is on: malloc'ed.  Else, or with no
 * memory, NULL. */
soft_call_site *soft_call_site_record(int most_frames);
/* The same with one frame, where a stack would take too long. */
soft_call_site *soft_call_site_of(void *caller);
/* As soft_call_site_record, but kept once for each stack: borrowed for ever. */
const soft_call_site *soft_call_site_intern(void);
void *soft_call_site_caller(void); /* the last SOFT_CALLED of this thread */
/* One line, innermost frame first: "name (file+0xoffset) < ...", the name only where the
 * program exports it; "?" for NULL.  Returns `text`. */
const char *soft_call_site_describe(const soft_call_site *site, char *text, size_t nbytes);

#endif /* SOFT_CALL_SITE_H */
