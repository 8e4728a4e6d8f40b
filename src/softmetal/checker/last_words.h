/* last_words.h: what is said when a process dies in which a kernel ran unchecked.
 *
 * A kernel that writes a little behind its buffer hits somebody's heap, and that somebody faults later.
 *
 * Owns:    the name of the kernel that ran last.
 * Calls:   write; host.h for whether the process ends by our own will.
 * Threads: any; soft_say_last_words also from a signal's handler.
 */
#ifndef SOFT_LAST_WORDS_H
#define SOFT_LAST_WORDS_H

/* A launch that is not checked begins.  NULL: it has no name. */
void soft_last_kernel_set(const char *name);

/* Say it on stderr, once a process; nothing where no kernel ran unchecked. */
void soft_say_last_words(int signal);

#endif /* SOFT_LAST_WORDS_H */
