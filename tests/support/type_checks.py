"""Whether clang takes each kernel of a source, as the translator made it: many in one run of the compiler.

Each instantiation stands on a line of a file of its own, `instantiation`: the notes of an error tell which one it is.
What several share is reported once, so the rest is asked for again until nothing is refused.
"""

import re

from metal_dlpack import kernel_source
from metal_dlpack.language.errors import SourceError
from softmetal.msl import compiler
from softmetal.msl.translation import Translation

#: In place of an image and the names of its variables, of which a text has one: what an image calls, so that each
#: kernel is instantiated.
CALLED = """
#undef SOFTMETAL_VARIABLE_NAMES
#define SOFTMETAL_VARIABLE_NAMES(...)
#undef SOFTMETAL_IMAGE
#define SOFTMETAL_IMAGE(kernel, ...) \\
    static_assert(&softmetal::image<(kernel), ##__VA_ARGS__>::run_one != nullptr, "");
#undef SOFTMETAL_WAITING_IMAGE
#define SOFTMETAL_WAITING_IMAGE SOFTMETAL_IMAGE
"""
AT_ONCE = 256


def translated(source: str, folders=()) -> Translation:
    found = compiler.find()
    return Translation(found.preprocess(kernel_source.compose(source, (None, None, folders, "safe"))))


def refused(translation: Translation, names: list[str]) -> dict[str, str]:
    """What clang says of those kernels that it does not take."""
    base = translation.checked_text() + CALLED
    said: dict[str, str] = {}
    for first in range(0, len(names), AT_ONCE):
        left = names[first : first + AT_ONCE]
        while found := refused_at_once(base, translation, left):
            said |= found
            left = [name for name in left if name not in said]
    return said


def refused_at_once(base: str, translation: Translation, names: list[str]) -> dict[str, str]:
    """Return the names in clang's errors; all of them, if an error belongs to none."""
    images = [image(translation, name, nth) for nth, name in enumerate(names)]
    try:
        compiler.find().check(base + "".join(images))
    except SourceError as error:
        found: dict[str, str] = {}
        for one in re.split(r"^(?=\S+?:\d+:\d+: error: )", str(error), flags=re.MULTILINE)[1:]:
            for nth in re.findall(r"^instantiation:(\d+):", one, re.MULTILINE):
                found.setdefault(names[int(nth)], one)
        return found or dict.fromkeys(names, str(error))
    return {}


def image(translation: Translation, name: str, nth: int) -> str:
    """The image's text on line `nth`; its names are its own."""
    _, text = translation.image_text(name).split("\n", 1)
    return f'#line {nth} "instantiation"\n' + text.replace("softmetal_", f"softmetal_{nth}_")
