"""msl/checked_code.py: the calls that it adds to LLVM's text of a kernel."""

import pytest

from metal_dlpack.language.errors import CompilerError
from softmetal.msl import checked_code

FUNCTION = """define void @f(ptr %0) local_unnamed_addr #3 !dbg !5 {{
  %own = alloca [4 x float], align 16
{}
}}

declare void @llvm.memset.p0.i64(ptr nocapture writeonly, i8, i64, i1 immarg) #5

attributes #3 = {{ mustprogress {} "frame-pointer"="all" }}
attributes #5 = {{ nounwind }}
"""
WRITE, READ = "call void @__tsan_write", "call void @__tsan_read"
ALIGNED = "call void @softmetal_aligned"


def added(line, attribute="sanitize_thread"):
    """Without what is there, and without the declarations."""
    text = FUNCTION.format("  " + line.replace("\n", "\n  "), attribute)
    made = checked_code.instrument(text).splitlines()
    assert [one for one in made if one in text.splitlines()] == text.splitlines()
    return [one.strip() for one in made if one not in text.splitlines() and not one.startswith("declare ")]


@pytest.mark.parametrize(
    ("access", "calls"),
    [
        ("%2 = load <2 x float>, ptr %1, align 16, !dbg !7, !tbaa !9", [f"{ALIGNED}(ptr %1, i64 15), !dbg !6"]),
        ("%2 = load float, ptr %1, align 4", [f"{ALIGNED}(ptr %1, i64 3), !dbg !6"]),
        ("%2 = load volatile i8, ptr %1, align 1, !dbg !7", []),
        ("%2 = add i32 %0, 1", []),
    ],
)
def test_an_access_that_clang_tells_of_is_told_its_alignment(access, calls):
    assert added(f"call void @__tsan_read8(ptr %1), !dbg !6\n{access}") == calls
    assert added(access) == []


@pytest.mark.parametrize(
    ("access", "calls"),
    [
        ("store i48 %2, ptr %1, align 4, !dbg !7", [f"{WRITE}_range(ptr %1, i64 6), !dbg !7", f"{ALIGNED}(ptr %1, i64 3), !dbg !7"]),
        ("%2 = load <3 x float>, ptr %1, align 16", [f"{READ}_range(ptr %1, i64 12)", f"{ALIGNED}(ptr %1, i64 15)"]),
        ("store volatile <3 x half> <half 0.0, half 1.0, half 2.0>, ptr %1, align 1", [f"{WRITE}_range(ptr %1, i64 6)"]),
        ("%2 = load <8 x i8>, ptr %1, align 8", []),
        ("%2 = load i24, ptr %own, align 4", []),
        ("store i24 %2, ptr @t, align 4", []),
    ],
)  # fmt: skip
def test_an_access_of_a_size_that_clang_has_no_call_for_is_told(access, calls):
    assert added(access) == calls


def test_the_address_may_be_any_expression():
    address = "getelementptr inbounds (i8, ptr @t, i64 8)"
    told = f"tail call void @__tsan_unaligned_write4(ptr {address})\nstore float 0.0, ptr {address}, align 2"
    assert added(told) == [f"{ALIGNED}(ptr {address}, i64 1)"]


COPY = "call void @llvm.mem{}.p0.p0.i64(ptr noundef nonnull align 16 dereferenceable(16) {}, ptr align 4 {}, i64 {}, i1 false), !dbg !8, !tbaa.struct !2"


@pytest.mark.parametrize(
    ("line", "calls"),
    [
        (COPY.format("cpy", "%1", "%2", 16),
         [f"{READ}16(ptr %2), !dbg !8", f"{ALIGNED}(ptr %2, i64 3), !dbg !8",
          f"{WRITE}16(ptr %1), !dbg !8", f"{ALIGNED}(ptr %1, i64 15), !dbg !8"]),
        (COPY.format("move", "%1", "@t", "%9"),
         [f"{READ}_range(ptr @t, i64 %9), !dbg !8", f"{ALIGNED}(ptr @t, i64 3), !dbg !8",
          f"{WRITE}_range(ptr %1, i64 %9), !dbg !8", f"{ALIGNED}(ptr %1, i64 15), !dbg !8"]),
        (COPY.format("cpy", "%own", "%2", 12), [f"{READ}_range(ptr %2, i64 12), !dbg !8", f"{ALIGNED}(ptr %2, i64 3), !dbg !8"]),
        ("tail call void @llvm.memset.p0.i64(ptr initializes((0, 8)) %1, i8 0, i64 8, i1 false) #5", [f"{WRITE}8(ptr %1)"]),
    ],
)  # fmt: skip
def test_a_copy_is_told_of_where_it_reads_and_where_it_writes(line, calls):
    assert added(line) == calls


def test_a_function_that_is_not_checked_stays_as_it_is():
    assert added(COPY.format("cpy", "%1", "%2", 16), "noinline") == []


def test_a_copy_in_other_words_is_no_copy_unseen():
    with pytest.raises(CompilerError, match="LLVM writes a copy in a way that is not known: call void @llvm"):
        added("call void @llvm.memcpy.p0.p0.i64 to nowhere")
