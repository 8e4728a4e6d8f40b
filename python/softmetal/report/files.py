"""Reports as files: the name's end says which form it has."""

from __future__ import annotations

import json
import os
import tempfile

from .building import Report

FORMS = (".html", ".json", ".sarif")


def refusal(path: str) -> str | None:
    """Why no report can be written there; None: it can, as far as one sees before."""
    if os.path.splitext(path)[1].lower() not in FORMS:
        return f"{path} must end in {', '.join(FORMS[:-1])} or {FORMS[-1]}: that says which form the report has."
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        return f"{path} cannot be written: there is no folder {folder}."
    if os.path.isdir(path):
        return f"{path} cannot be written: it is a folder."
    return None


def write(report: Report, path: str) -> None:
    """Write a report: a file that was there is replaced at once, so that no reader, and no other process, sees a half.

    Raises OSError.
    """
    content = _content(report, os.path.splitext(path)[1].lower())
    folder = os.path.dirname(os.path.abspath(path))
    number, temporary = tempfile.mkstemp(prefix=os.path.basename(path) + ".", dir=folder)
    try:
        with open(number, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(content)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _umask() -> int:
    """Return the process's umask; to read it is to set it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _content(report: Report, form: str) -> str:
    # Each form is imported where it is asked for.
    if form == ".html":
        from .page import page_of

        return page_of(report)
    if form == ".sarif":
        from .sarif import sarif_of

        return json.dumps(sarif_of(report), indent=1) + "\n"
    return json.dumps(report, indent=1) + "\n"
