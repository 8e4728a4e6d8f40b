/* parts.m: what all parts of the bridge need of this process: words, fork, pools, release.
 *
 * Owns:    the flag that says this process is a forked child.
 */
#import "bridge/parts.h"

#include <pthread.h>

#define BRIDGE_AS_TEXT(name, text) [name] = text,
static const char *const status_texts[] = {BRIDGE_STATUS_LIST(BRIDGE_AS_TEXT)};
#undef BRIDGE_AS_TEXT

const char *
bridge_status_text(bridge_status status)
{
    return status_texts[status];
}

/* ---- fork ---- */

bool bridge_forked;

static void
note_fork(void)
{
    __atomic_store_n(&bridge_forked, true, __ATOMIC_RELAXED);
}

/* When the module is loaded: a child must know even if its parent never asked for a device. */
__attribute__((constructor)) static void
watch_fork(void)
{
    (void)pthread_atfork(NULL, NULL, note_fork);
}

/* ---- pools and what lies in them ---- */

void
bridge_in_pool(void (*work)(void *context), void *context)
{
    IN_POOL;
    work(context);
}

void
release_object(void *handle)
{
    if (handle == NULL || bridge_is_forked()) {
        return;
    }
    IN_POOL;
    [(id<NSObject>)handle release];
}

void
copy_text(NSString *text, char *out, size_t capacity)
{
    const char *utf8 = text == nil ? NULL : [text UTF8String];
    out[0] = '\0';
    if (utf8 != NULL) {
        strncpy(out, utf8, capacity - 1);
        out[capacity - 1] = '\0';
    }
}

/* ---- texts ---- */

text_block
make_text_block(size_t array_nbytes, size_t text_nbytes)
{
    /* mutant survives (off by one): glibc has a place for 0 bytes too */
    char *memory = malloc(array_nbytes + text_nbytes + 1); /* never of 0 bytes */
    return (text_block){memory, memory == NULL ? NULL : memory + array_nbytes};
}

size_t
text_nbytes(NSString *text)
{
    const char *utf8 = [text UTF8String];
    return utf8 == NULL ? 1 : strlen(utf8) + 1;
}

char *
add_text(text_block *block, NSString *text)
{
    const char *utf8 = [text UTF8String];
    char *at = block->free;
    size_t nbytes = text_nbytes(text);
    memcpy(at, utf8 == NULL ? "" : utf8, nbytes);
    block->free += nbytes;
    return at;
}
