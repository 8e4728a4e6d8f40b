/* short_python.c: lets one of Python's allocations fail.
 *
 * short_python_install(code): hooks the allocators.  `code` is any address in the extension.
 * short_python_call(call, n): call(), whose n-th allocation (from 1) gives NULL.  Only allocations count that
 * the extension's C code asks for by a call of the C API, and none of the interpreter's loop:
 * CPython 3.11 to 3.13 has places there that do not survive (a dict's iterator, a function).
 * short_python_has_failed(): did that call have so many?
 * short_python_left(): how many more there would have had to be.
 */
#define _GNU_SOURCE
#include <Python.h>

#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <stdbool.h>

#define MOST_FRAMES 128

static PyMemAllocatorEx real[3];
static const void *extension_base, *python_base, *own_base;
static pthread_t armed_thread;
static bool has_failed;
static long countdown, left;

static const void *
base_of(const void *address)
{
    Dl_info info;
    return dladdr(address, &info) != 0 ? info.dli_fbase : NULL;
}

/* Is the nearest caller outside of Python's core the extension, and no Python code between? */
static bool
is_asked_by_extension(void)
{
    void *frames[MOST_FRAMES];
    int count = backtrace(frames, MOST_FRAMES);
    for (int i = 0; i < count; i++) {
        Dl_info info;
        if (dladdr(frames[i], &info) == 0 ||
            info.dli_saddr == (void *)_PyEval_EvalFrameDefault) {
            return false;
        }
        if (info.dli_fbase != own_base && info.dli_fbase != python_base) {
            return info.dli_fbase == extension_base;
        }
    }
    return false;
}

static bool
must_fail(void)
{
    if (countdown <= 0 || !pthread_equal(pthread_self(), armed_thread)) {
        return false;
    }
    return is_asked_by_extension() && --countdown == 0;
}

static void *
short_malloc(void *context, size_t nbytes)
{
    const PyMemAllocatorEx *next = context;
    return must_fail() ? NULL : next->malloc(next->ctx, nbytes);
}

static void *
short_calloc(void *context, size_t count, size_t nbytes)
{
    const PyMemAllocatorEx *next = context;
    return must_fail() ? NULL : next->calloc(next->ctx, count, nbytes);
}

static void *
short_realloc(void *context, void *memory, size_t nbytes)
{
    const PyMemAllocatorEx *next = context;
    return must_fail() ? NULL : next->realloc(next->ctx, memory, nbytes);
}

static void
short_free(void *context, void *memory)
{
    const PyMemAllocatorEx *next = context;
    next->free(next->ctx, memory);
}

void
short_python_install(const void *code)
{
    static const PyMemAllocatorDomain domains[3] = {PYMEM_DOMAIN_RAW, PYMEM_DOMAIN_MEM,
                                                    PYMEM_DOMAIN_OBJ};
    extension_base = base_of(code);
    python_base = base_of((const void *)PyObject_Malloc);
    own_base = base_of((const void *)short_python_install);
    void *frame;
    (void)backtrace(&frame, 1); /* loads libgcc once, before anything fails */
    for (int i = 0; i < 3; i++) {
        PyMem_GetAllocator(domains[i], &real[i]);
        PyMemAllocatorEx hook = {&real[i], short_malloc, short_calloc, short_realloc,
                                 short_free};
        PyMem_SetAllocator(domains[i], &hook);
    }
}

PyObject *
short_python_call(PyObject *call, long n)
{
    armed_thread = pthread_self();
    countdown = n;
    PyObject *result = PyObject_CallNoArgs(call);
    has_failed = countdown == 0;
    left = countdown;
    countdown = 0;
    return result;
}

int
short_python_has_failed(void)
{
    return has_failed;
}

long
short_python_left(void)
{
    return left;
}
