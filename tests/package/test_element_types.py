"""What lists element types beside dtype.c names types that are there, and all that its own source has."""

import re

import numpy as np
import pytest

import metal_dlpack as md
from metal_dlpack.asking.explain_rules import ELEMENT_TYPES
from metal_dlpack.files import gguf, safetensors

DTYPES = [value for value in vars(md).values() if isinstance(value, md.dtype)]


def test_a_table_names_types_as_dtype_c_does():
    names = {name for names in ELEMENT_TYPES.values() for name in names or ()}
    names |= {*safetensors.DTYPES.values(), *gguf.DTYPES.values()}
    assert names == {md.dtype(name).name for name in names}


@pytest.mark.parametrize("table", [safetensors.DTYPES, gguf.DTYPES])
def test_a_file_s_word_for_a_type_is_the_begin_of_ours(table):
    words = {"BOOL": "bool", "BF": "bfloat", "I": "int", "U": "uint", "F": "float", "C": "complex"}
    for theirs, ours in table.items():
        kind, rest = re.fullmatch(r"(BOOL|[A-Z]+)(.*)", theirs).groups()
        assert md.dtype(ours).name.startswith(words[kind] + rest.lower()), theirs


def test_safetensors_types_are_those_of_the_format_s_own_package():
    package = pytest.importorskip("safetensors")
    header = b'{"a": {"dtype": "none", "shape": [1], "data_offsets": [0, 1]}}'
    with pytest.raises(package.SafetensorError) as raised:
        package.deserialize(len(header).to_bytes(8, "little") + header + b"1")
    theirs = set(re.findall("`([A-Z][A-Z0-9_]*)`", str(raised.value)))
    assert set(safetensors.DTYPES) == theirs


def test_gguf_types_are_those_that_are_no_blocks():
    constants = pytest.importorskip("gguf.constants")
    theirs = {kind.name: nbytes for kind, (items, nbytes) in constants.GGML_QUANT_SIZES.items() if items == 1}
    assert {name: md.dtype(ours).itemsize for name, ours in gguf.DTYPES.items()} == theirs


def test_numpy_takes_what_it_has():
    theirs = {np.dtype(letter).name for letter in np.typecodes["All"]}
    assert ELEMENT_TYPES["numpy"] == {dtype.name for dtype in DTYPES} & theirs
