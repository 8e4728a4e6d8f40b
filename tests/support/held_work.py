"""Hold the GPU back while a test makes calls: what returns meanwhile has waited for nothing.

A clock cannot tell: on a busy machine a call that waits for nobody may take as long as the GPU's work.
"""

import contextlib
import threading
from collections.abc import Iterator

from eventually import PATIENCE
from objc_messages import pool, send

import metal_dlpack as md


@contextlib.contextmanager
def gate() -> Iterator[int]:
    """The handle of an MTLSharedEvent that comes to 1 when the block ends; a call inside that waits for it is an error."""
    with pool():
        event = send(md.default_device().handle, "newSharedEvent")
    has_ended = threading.Event()
    gave_up = []

    def open_late() -> None:
        if not has_ended.wait(PATIENCE):
            gave_up.append(True)
            send(event, "setSignaledValue:", 1, result=None)

    watch = threading.Thread(target=open_late)
    watch.start()
    try:
        yield event
    finally:
        has_ended.set()
        watch.join()
        send(event, "setSignaledValue:", 1, result=None)
        send(event, "release", result=None)
    assert not gave_up, f"a call waited for GPU work that is held back ({PATIENCE} s)"


@contextlib.contextmanager
def held(*streams: md.Stream) -> Iterator[None]:
    """The streams begin nothing before the block ends; a call inside that waits for them is an error."""
    with gate() as event:
        for stream in streams:
            stream.wait(md.Event.from_handle(event, 1))
        yield
