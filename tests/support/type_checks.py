"""Whether clang takes each kernel of a source, as the translator made it: many in one run of the compiler."""

from metal_dlpack import kernel_source
from metal_dlpack.msl import compiler
from metal_dlpack.msl.errors import SourceError
from metal_dlpack.msl.translation import Translation

#: In place of an image, of which a text has one: what an image calls, so that each kernel is instantiated.
CALLED = """
#undef SOFTMETAL_IMAGE
#define SOFTMETAL_IMAGE(kernel, ...) \\
    static auto *const softmetal_run = &softmetal::image<(kernel), ##__VA_ARGS__>::run_row;
"""
AT_ONCE = 64


def translated(source: str, folders=()) -> Translation:
    found = compiler.find()
    return Translation(found.preprocess(kernel_source.compose(source, (None, None, folders))))


def refused(translation: Translation, names: list[str]) -> dict[str, str]:
    """What clang says of those kernels that it does not take."""
    base = translation.checked_text() + CALLED
    said: dict[str, str] = {}
    for first in range(0, len(names), AT_ONCE):
        check(base, translation, names[first : first + AT_ONCE], said)
    return said


def check(base: str, translation: Translation, names: list[str], said: dict[str, str]) -> None:
    """All at once; if that fails, each half."""
    images = [translation.image_text(name).replace("softmetal_", f"softmetal_{nth}_") for nth, name in enumerate(names)]
    try:
        compiler.find().check(base + "".join(images))
    except SourceError as error:
        if len(names) == 1:
            said[names[0]] = str(error)
            return
        middle = len(names) // 2
        check(base, translation, names[:middle], said)
        check(base, translation, names[middle:], said)
