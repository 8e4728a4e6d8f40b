"""Write the reference: every public name of the package, with its signature and docstring.

python tools/reference.py build/reference.md
"""

import inspect
import sys
from pathlib import Path

import metal_dlpack as md


def signature_of(name: str, thing: object) -> str:
    try:
        return f"{name}{inspect.signature(thing)}"  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return name


def entry(name: str, thing: object, level: int) -> str:
    title = signature_of(name, thing) if callable(thing) else name
    text = inspect.getdoc(thing) or ""
    body = f"```text\n{text}\n```\n\n" if text else ""
    return f"{'#' * level} `{title}`\n\n{body}"


def members_of(cls: type) -> list[tuple[str, object]]:
    return [(name, value) for name, value in vars(cls).items() if not name.startswith("_") or "dlpack" in name]


def reference() -> str:
    public = [name for name in dir(md) if not name.startswith("_")]
    names = [name for name in public if not isinstance(getattr(md, name), md.dtype)]
    dtypes = ", ".join(f"`{name}`" for name in public if name not in names)
    parts = [f"# metal_dlpack {md.__version__}\n\nElement types: {dtypes}.\n\n"]
    for name in names:
        thing = getattr(md, name)
        parts.append(entry(name, thing, 2))
        if isinstance(thing, type) and not issubclass(thing, Exception):
            parts += [entry(f"{name}.{member}", getattr(thing, member), 3) for member, _ in members_of(thing)]
    return "".join(parts)


def main() -> None:
    path = Path(sys.argv[1])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(reference())
    print(path)


if __name__ == "__main__":
    main()
