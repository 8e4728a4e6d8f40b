"""msl/line_table.py: the line, file and column of an instruction, beside what pyelftools reads."""

import itertools
import re
import struct
import sys
from pathlib import Path

import pytest
from kernel_images import quickly, translated
from places import ROOT

from metal_dlpack.language.errors import CompilerError
from softmetal import msl
from softmetal.msl import line_table

elffile = pytest.importorskip("elftools.elf.elffile")

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="Metal compiles kernels there")

#: sizeof(soft_site).
SITE_NBYTES = 72

#: Lines far apart and far on, files in folders, code of several places in one line.
TEXT = """
#line 70000 "deep/in/folders.h"
static int square(int x) { return x *
  x; }
#line 5 "/absolute/other.h"
template <class T> T thrice(T x) { for (int i = 0; i < x; ++i)
    x += square(x) / 7;
  return x; }
""" + translated("y[i] = thrice(square(int(x[i]))) + (x[i + 1] > 2 ? square(3) : x[2]);")


@pytest.fixture(scope="module")
def image(shim):
    return shim.image(TEXT, checked=True)


def rows_by_pyelftools(path):
    """(address, file, line, column) of each row; the file None where a sequence ends."""
    rows = []
    with path.open("rb") as file:
        dwarf = elffile.ELFFile(file).get_dwarf_info()
        for unit in dwarf.iter_CUs():
            program = dwarf.line_program_for_CU(unit)
            folders = [b"", *program["include_directory"]]
            names = [entry.name for entry in program["file_entry"]]
            where = [folders[entry.dir_index] for entry in program["file_entry"]]
            for entry in program.get_entries():
                state = entry.state
                if state is None:
                    continue
                at = state.file - 1
                name = b"/".join(filter(None, [where[at], names[at]])).decode()
                rows.append((state.address, None if state.end_sequence else name, state.line, state.column))
    return rows


def test_each_row_is_what_pyelftools_reads(image):
    rows = [row for row in rows_by_pyelftools(image) if row[1] is not None]
    assert len(rows) > 30
    assert {name for _, name, _, _ in rows} >= {"deep/in/folders.h", "/absolute/other.h", "program_source"}
    users = [row for row in rows if row[2] and "softmetal_" not in row[1]]
    last = {address: (name, line, column) for address, name, line, column in users}  # of several the last counts
    for address, (name, line, column) in last.items():
        columns = [one[3] for one in rows if one[1:3] == (name, line) and one[3]]
        last[address] = (name, line, column or min(columns, default=0))
    assert line_table.lines_of(image, list(last)) == list(last.values())


def test_an_address_within_an_instruction_is_of_its_line(image):
    """What follows it may be of another line."""
    rows = sorted(row for row in rows_by_pyelftools(image) if row[1] is not None and row[2])
    (before, after) = next(pair for pair in itertools.pairwise(rows) if pair[0][0] < pair[1][0])
    assert line_table.lines_of(image, [after[0] - 1]) == [before[1:]]


def test_an_address_without_a_line_has_none(image):
    end = max(address for address, name, _, _ in rows_by_pyelftools(image) if name is None)
    assert line_table.lines_of(image, [0, 1, end, 1 << 40]) == [("", 0, 0)] * 4
    assert line_table.lines_of(image, []) == []


def test_an_instruction_of_no_line_is_near_the_one_before(monkeypatch):
    rows = [
        line_table._Row(10, ("a", 1, 2)),
        line_table._Row(20, ("a", 0, 0)),
        line_table._Row(30, ("", 0, 0), is_end=True),
        line_table._Row(40, ("a", 0, 0)),
    ]
    monkeypatch.setattr(line_table, "_rows", lambda *_: rows)
    assert line_table.lines_of(__file__, [15, 25, 35, 45]) == [("a", 1, 2), ("near a", 1, 2), ("", 0, 0), ("", 0, 0)]


def test_an_instruction_made_of_several_of_a_line_has_the_line_s_first_column(monkeypatch):
    rows = [
        line_table._Row(10 * i, (file, 1, column))
        for i, (file, column) in enumerate([("a", 0), ("a", 7), ("a", 0), ("b", 2), ("a", 3)])
    ]
    monkeypatch.setattr(line_table, "_rows", lambda *_: rows)
    assert line_table.lines_of(__file__, [5, 15, 25, 35]) == [("a", 1, 3), ("a", 1, 7), ("a", 1, 3), ("b", 1, 2)]


def test_lines_of_ours_are_no_lines_of_the_users(monkeypatch):
    ours = line_table._Row(10, (line_table.__file__, 7, 1))
    rows = [ours, line_table._Row(20, ("a", 5, 0)), line_table._Row(30, ("", 0, 0), is_end=True)]
    monkeypatch.setattr(line_table, "_rows", lambda *_: rows)
    assert line_table.lines_of(__file__, [15, 25]) == [("near a", 5, 0), ("a", 5, 0)]


def places_that_ask(path):
    """Find each access of a checked image: the address of the instruction in its soft_site."""
    with path.open("rb") as file:
        elf = elffile.ELFFile(file)
        sites = elf.get_section_by_name("softmetal_sites")
        offsets = range(sites["sh_addr"], sites["sh_addr"] + sites["sh_size"], SITE_NBYTES)
        moved = elf.get_section_by_name(".rela.dyn").iter_relocations()
        return [one["r_addend"] for one in moved if one["r_offset"] in offsets]


#: A kernel of each kind, and one that asks for its lane, or for memory, where it touches memory.
CHECKED_KERNELS = (
    (ROOT / "benchmarks/checked.metal").read_text()
    + """
kernel void matrices(device float *b, uint t [[thread_index_in_threadgroup]]) {
    threadgroup float s[64];
    simdgroup_float8x8 x, y;
    simdgroup_load(x, b, 8);
    simdgroup_store(x, s, 8);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    simdgroup_load(y, s, 8, ulong2(0, 0), true);
    simdgroup_store(y, b, 8);
}
"""
)


@pytest.mark.parametrize(
    "name", quickly("softmax", "reduction", "matrices", of=re.findall(r"^kernel void (\w+)", CHECKED_KERNELS, re.M))
)
def test_each_access_of_a_checked_kernel_has_its_line(name, clang):
    """But for the row's length, which is read once instead of in each loop."""
    image = msl.open_library(CHECKED_KERNELS).compile(name, {}, checked=True)
    places = line_table.lines_of(image, places_that_ask(Path(image)))
    assert len(places) > 1
    files = [file for file, _, _ in places]
    assert set(files) <= {"program_source", "near program_source"}
    assert files.count("near program_source") <= (2 if name == "softmax" else 0)


@pytest.mark.parametrize("nbytes", [0, 4, 63, 1000])
def test_a_file_that_is_cut_off_is_a_sentence(image, tmp_path, nbytes):
    broken = tmp_path / "image.so"
    broken.write_bytes(image.read_bytes()[:nbytes])
    with pytest.raises(CompilerError, match="is not an image of a kernel, or its line table is broken"):
        line_table.lines_of(broken, [1])


def test_a_table_of_another_version_is_a_sentence():
    header = struct.pack("<IH", 2, 5)
    with pytest.raises(ValueError, match="its version is 5, not 4"):
        list(line_table._read_table(line_table._Reader(header)))
