"""PyObjC's object over an address: see Metal.py."""

import stand_in

stand_in.come_in("objc")


class objc_object:  # noqa: N801
    """Knows its address."""

    def __init__(self, c_void_p):
        self.handle = c_void_p.value

    def __c_void_p__(self):
        import ctypes

        return ctypes.c_void_p(self.handle)
