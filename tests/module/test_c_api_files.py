"""The C API in extension modules of several source files: one table a module, and none between modules."""

import os
import subprocess
import sys
import sysconfig

import pytest
from extensions import load

import metal_dlpack as md

#: Imports the table, says where its pointer lies, and can set the pointer back to NULL.
MODULE = """
#include <metal_dlpack.h>

#ifdef __cplusplus
extern "C"
#endif
__attribute__((visibility("hidden"))) PyObject *count_items(PyObject *module, PyObject *op);

static PyObject *
start(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return metal_dlpack_import() < 0 ? NULL : PyLong_FromVoidPtr((void *)&metal_dlpack);
}

static PyObject *
forget(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    metal_dlpack = NULL;
    Py_RETURN_NONE;
}

static PyObject *
is_there(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyBool_FromLong(metal_dlpack != NULL);
}

static PyMethodDef functions[] = {
    {"start", start, METH_NOARGS, NULL},
    {"forget", forget, METH_NOARGS, NULL},
    {"is_there", is_there, METH_NOARGS, NULL},
    {"count_items", count_items, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "NAME", NULL, 0, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC
PyInit_NAME(void)
{
    return PyModule_Create(&definition);
}
"""
#: Uses the table, and does not import it.
USER = """
#include <metal_dlpack.h>

#ifdef __cplusplus
extern "C"
#endif
__attribute__((visibility("hidden"))) PyObject *count_items(PyObject *module, PyObject *op);

PyObject *
count_items(PyObject *module, PyObject *op)
{
    metal_dlpack_view view;
    (void)module;
    if (metal_dlpack == NULL) {
        PyErr_SetString(PyExc_SystemError, "this file has no table");
        return NULL;
    }
    return metal_dlpack->array_get(op, &view) < 0 ? NULL : PyLong_FromLongLong(view.nitems);
}
"""
COMPILERS = {"c": ["cc", "-std=c99"], "c++": ["c++", "-std=c++11"]}
SHARED = ["-shared", *(["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else [])]


def build(folder, name, languages, *flags):
    """An extension module of two source files in the given languages, imported."""
    objects = []
    for text, language, part in zip((MODULE, USER), languages, ("module", "user"), strict=True):
        objects.append(folder / f"{name}_{part}.o")
        command = [*COMPILERS[language], "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wno-missing-field-initializers"]
        where = ["-I", md.get_include(), "-isystem", sysconfig.get_path("include")]
        command += [*flags, "-fPIC", "-x", language, "-c", "-", "-o", objects[-1], *where]
        subprocess.run(command, input=text.replace("NAME", name), text=True, check=True)
    subprocess.run([COMPILERS["c++"][0], *flags, *SHARED, *objects, "-o", folder / f"{name}.built.so"], check=True)
    return load(folder, name)


LANGUAGES = [("c", "c"), ("c", "c++"), ("c++", "c"), ("c++", "c++")]
FLAGS = [["-O0"], ["-O2"], ["-O2", "-fvisibility=hidden"], ["-O2", "-flto"]]
#: Each of either once; the rest is long.
PAIRS = [
    pytest.param(languages, flags, marks=[] if at == place else pytest.mark.long)
    for at, languages in enumerate(LANGUAGES)
    for place, flags in enumerate(FLAGS)
]


@pytest.mark.parametrize(("languages", "flags"), PAIRS)
def test_a_file_uses_the_table_that_another_file_of_its_module_imported(tmp_path, languages, flags):
    module = build(tmp_path, "two_files", languages, *flags)
    with pytest.raises(SystemError, match="no table"):
        module.count_items(md.zeros(5))
    module.start()
    assert module.count_items(md.zeros(5)) == 5
    with pytest.raises(TypeError, match="an Array is needed"):
        module.count_items(5)


def test_modules_do_not_share_their_tables(tmp_path):
    """Also where Python is told to make the symbols of extension modules global."""
    before = sys.getdlopenflags()
    sys.setdlopenflags(before | os.RTLD_GLOBAL)
    try:
        one, two = (build(tmp_path, name, ("c", "c++")) for name in ("first", "second"))
    finally:
        sys.setdlopenflags(before)
    place = one.start()
    assert (one.is_there(), two.is_there()) == (True, False)
    assert two.start() != place
    one.forget()
    assert (one.is_there(), two.is_there()) == (False, True)
    assert two.count_items(md.zeros(3)) == 3


def test_the_pointer_is_hidden_in_our_own_module():
    names = subprocess.run(["nm", "-gU" if sys.platform == "darwin" else "-D", md._core.__file__], capture_output=True)
    assert b" metal_dlpack\n" not in names.stdout
