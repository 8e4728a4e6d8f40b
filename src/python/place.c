/* place.c: see place.h. */
#include "python/place.h"

#include <stdlib.h>

#define MOST_PLACES 8192 /* then no more are told apart */
#define SLOTS (2 * MOST_PLACES)

typedef struct place {
    PyObject *code; /* owned (+1) */
    int instruction;
    bool is_passed; /* over */
} place;

static PyInterpreterState *owner; /* atomic; NULL: no place is noted */
/* All behind the owner's GIL. */
static PyObject *folders; /* owned: whose code is passed over */
static place *places;     /* owned; [0] is not used */
static uint16_t *slots;   /* owned: indices of places by hash; 0: free */
static uint32_t count;
static uint32_t gone; /* the numbers that earlier places had: records of them may be left */

static bool
is_owner(void)
{
    return __atomic_load_n(&owner, __ATOMIC_ACQUIRE) == PyInterpreterState_Get();
}

static bool
is_passed_over(PyObject *code)
{
    PyObject *file = ((PyCodeObject *)code)->co_filename;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(folders); i++) {
        if (PyUnicode_Tailmatch(file, PyTuple_GET_ITEM(folders, i), 0, PY_SSIZE_T_MAX, -1) ==
            1) {
            return true;
        }
    }
    return false;
}

/* 0: there are too many. */
static uint32_t
index_of(PyObject *code, int instruction)
{
    uint64_t mixed = ((uint64_t)(uintptr_t)code >> 4) + (uint64_t)instruction;
    size_t slot = (size_t)((mixed * UINT64_C(0x9E3779B97F4A7C15)) >> 32) % SLOTS;
    while (slots[slot] != 0) {
        const place *found = &places[slots[slot]];
        if (found->code == code && found->instruction == instruction) {
            return slots[slot];
        }
        slot = (slot + 1) % SLOTS;
    }
    if (count == MOST_PLACES) {
        return 0;
    }
    count++;
    places[count] = (place){Py_NewRef(code), instruction, is_passed_over(code)};
    slots[slot] = (uint16_t)count;
    return count;
}

void
place_note_now(void)
{
    timeline_note_now()->place = 0;
    if (!is_owner()) {
        return;
    }
    PyFrameObject *frame = (PyFrameObject *)Py_XNewRef((PyObject *)PyEval_GetFrame());
    while (frame != NULL) {
        PyObject *code = (PyObject *)PyFrame_GetCode(frame);
        uint32_t index = index_of(code, PyFrame_GetLasti(frame));
        Py_DECREF(code);
        if (index == 0 || !places[index].is_passed) {
            timeline_note_now()->place = index == 0 ? 0 : gone + index;
            break;
        }
        Py_SETREF(frame, PyFrame_GetBack(frame));
    }
    Py_XDECREF(frame);
}

/* What is there belongs to this interpreter. */
static void
drop_places(void)
{
    place *old = places;
    uint32_t old_count = count;
    places = NULL;
    gone += count;
    count = 0;
    free(slots);
    slots = NULL;
    PyObject *old_folders = folders;
    folders = NULL;
    /* Before Python runs, which may begin anew. */
    __atomic_store_n(&owner, NULL, __ATOMIC_RELEASE);
    Py_XDECREF(old_folders);
    for (uint32_t i = 1; i <= old_count; i++) {
        Py_DECREF(old[i].code);
    }
    free(old);
}

int
place_begin(size_t *timelines, PyObject *given)
{
    PyInterpreterState *nobody = NULL;
    if (__atomic_compare_exchange_n(&owner, &nobody, PyInterpreterState_Get(), false,
                                    __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
        places = calloc(MOST_PLACES + 1, sizeof *places);
        slots = calloc(SLOTS, sizeof *slots);
        if (places == NULL || slots == NULL) {
            drop_places();
            PyErr_NoMemory();
            return -1;
        }
        folders = Py_NewRef(given);
    }
    ++*timelines;
    return 0;
}

void
place_end(size_t *timelines)
{
    if (--*timelines == 0 && is_owner()) {
        drop_places();
    }
}

PyObject *
place_list(void)
{
    PyObject *list = PyList_New(0);
    uint32_t own_count = is_owner() ? count : 0;
    for (uint32_t i = 1; list != NULL && i <= own_count; i++) {
        PyCodeObject *code = (PyCodeObject *)places[i].code;
        PyObject *found =
            Py_BuildValue("(IOiO)", gone + i, code->co_filename,
                          PyCode_Addr2Line(code, places[i].instruction), code->co_qualname);
        if (found == NULL || PyList_Append(list, found) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(found);
    }
    return list;
}
