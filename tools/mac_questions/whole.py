"""The package as a whole: the doctor, Apple's tools, and the tests under Metal's validation."""

import shutil
import sys
import threading

import metal_dlpack as md

from .asking import Skipped, call, check, footprint, question, stderr_lines


@question("doctor", "no row is marked as unexpected", is_for_people=True)
def doctor():
    code, output = call([sys.executable, "-m", "metal_dlpack"])
    print(output)
    check(code == 0, "a row is marked")


@question(
    "missing pools",
    "no 'MISSING POOLS' line from our calls",
    needs_mac=True,
    environment={"OBJC_DEBUG_MISSING_POOLS": "YES"},
)
def pools():
    def work():
        for mode in ("shared", "managed", "private"):
            buffer = md.Buffer(4096, storage=mode, label="pools")
            buffer.fill(1)
            buffer.copy_from(b"x" * 4096)
            check(buffer.label == "pools", "the label")
            md.Buffer.from_handle(buffer.handle)

    with stderr_lines() as lines:
        for _ in range(50):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
    said = [line for line in lines if "MISSING POOLS" in line]
    print(len(said), "objects without a pool", *said[:5], sep="\n")
    check(not said, "an object was autoreleased without a pool")


@question(
    "leaks",
    "0 leaks that name an MTL, IOGPU, AGX or NS class; the footprint stays flat",
    needs_mac=True,
    is_for_people=True,
)
def leaks():
    if shutil.which("leaks") is None:
        raise Skipped("leaks is not there; it is part of Xcode's tools: xcode-select --install")
    trips = "from mac_questions.whole import many_trips; many_trips()"
    command = ["leaks", "--quiet", "--atExit", "--", sys.executable, "-c", trips]
    print(*call(command, MallocStackLogging="1")[1].splitlines()[-60:], sep="\n")


def many_trips() -> None:
    """What `leaks` looks at."""

    def trips(count):
        for _ in range(count):
            for mode in ("shared", "managed", "private"):
                md.Buffer(65536, storage=mode, label="leaks").fill(1)

    trips(200)
    before = footprint()
    trips(5000)
    print("grown by", footprint() - before, "bytes")


@question(
    "tests under Metal's validation",
    "all pass; no line begins with -[MTL or says 'failed assertion'",
    needs_mac=True,
    is_long=True,
    seconds=1800,
    environment={
        "MTL_DEBUG_LAYER": "1",
        "MTL_DEBUG_LAYER_ERROR_MODE": "assert",
        "MTL_DEBUG_LAYER_WARNING_MODE": "nslog",
    },
)
def validation():
    # -s: pytest would keep what Metal says during a test that passes
    options = ["-q", "-s", "-p", "no:cacheprovider", "-m", "not long", "tests"]
    code, output = call([sys.executable, "-m", "pytest", *options])
    words = ("failed assertion", "validation error", "-[MTLDebug")
    said = [line for line in output.splitlines() if any(word in line for word in words)]
    print(*output.splitlines()[-30:], *said[:20], sep="\n")
    check(code == 0, "a test fails")
    check(not said, "Metal's validation says something")
