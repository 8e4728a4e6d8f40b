"""Arrays through joblib: to its workers by mapped files, as NumPy's go; to disk, and hashed, without a detour."""

import os
import pickle
import sys

import pytest
from eventually import until

pytest.importorskip("joblib")

import joblib
import numpy as np

import metal_dlpack as md
from metal_dlpack import pickling

pytestmark = pytest.mark.needs_no_sanitizer  # the workers are other processes, and NumPy reads what we write

LARGE = 1 << 20  # items: past joblib's max_nbytes
STORAGES = ["shared", "managed", "private"]


def mapped_file(array) -> str | None:
    """The file under a NumPy array, or under the memory that an Array keeps."""
    owner = array.buffer.owner if isinstance(array, md.Array) else array
    return getattr(owner, "filename", None)


def seen(*arrays):
    """In a worker: what arrived."""
    return [
        {
            "items": np.asarray(array).tolist()[-3:],
            "facts": (array.shape, str(array.dtype.name)),
            "storage": getattr(array, "storage", None),
            "file": mapped_file(array),
            "can write": not array.readonly if isinstance(array, md.Array) else array.flags.writeable,
        }
        for array in arrays
    ]


def send(*tasks, **options):
    """What each task's worker saw of its arrays."""
    return joblib.Parallel(n_jobs=2, **options)(joblib.delayed(seen)(*task) for task in tasks)


def filled(shape, dtype="float32", storage="shared") -> md.Array:
    array = md.empty(shape, dtype, storage=storage)
    array.copy_from(np.arange(array.size).astype(array.dtype.numpy).reshape(shape))
    return array


# ---- to workers ----


@pytest.mark.parametrize("mmap_mode", ["r", *(pytest.param(mode, marks=pytest.mark.long) for mode in ("r+", "c"))])
def test_a_large_array_is_mapped_in_the_workers_as_numpy_s_is(mmap_mode):
    array = filled(LARGE)
    numpy = np.asarray(array).copy()
    (ours, theirs), (again, _) = send((array, numpy), (array, numpy), mmap_mode=mmap_mode)
    assert ours["items"] == theirs["items"] == again["items"]
    assert ours["facts"] == theirs["facts"]
    assert ours["can write"] == theirs["can write"]
    assert ours["file"] is not None
    assert again["file"] == ours["file"], "an Array that goes twice is written once"
    until(lambda: not os.path.exists(ours["file"]), patience=30)  # joblib's tracker removes it, a process of its own


def test_what_is_below_the_limit_goes_by_value_and_can_be_written():
    ((ours, theirs),) = send((filled(10), np.arange(10, dtype="f4")))
    assert ours["items"] == theirs["items"]
    assert ours["file"] is theirs["file"] is None
    assert ours["can write"] and theirs["can write"]


VIEWS = [lambda a: a.T, lambda a: a[::2], lambda a: a[:, 5:], lambda a: a.as_readonly()]


@pytest.mark.some(3)
def test_every_storage_arrives_as_what_it_was_and_views_and_types_that_numpy_lacks_are_mapped(subtests):
    asked = [("float32", storage, lambda a: a) for storage in STORAGES]
    asked += [(dtype, "shared", view) for dtype in ("float32", "bfloat16") for view in VIEWS]
    for dtype, storage, view in asked:
        with subtests.test(view=view, dtype=dtype, storage=storage):
            array = view(filled((1024, 2048), dtype, storage))
            ((there,),) = send((array,))
            assert there["items"] == np.asarray(array.copy(storage="shared")).tolist()[-3:]
            assert (there["facts"], there["storage"]) == ((array.shape, dtype), storage)
            assert (there["file"] is not None) == (storage == "shared"), "other storage is memory of its own"


@pytest.mark.needs_softmetal
def test_work_in_flight_is_waited_for(settings):
    settings(latency_us=20000)
    array, stream = filled(LARGE), md.Stream()
    array.fill(7, stream=stream)
    ((there,),) = send((array,))
    assert there["items"] == [7.0] * 3
    array.fill(8, stream=stream)
    ((there,),) = send((array,))
    assert there["items"] == [8.0] * 3, "a later call writes a file of its own"


def test_a_pool_that_stays_sees_the_items_of_the_first_call_as_of_numpy_s():
    array, numpy = filled(LARGE), np.arange(LARGE, dtype="f4")
    with joblib.Parallel(n_jobs=2) as pool:
        for number in (5, 6):
            array.fill(number)
            numpy.fill(number)
            ((ours, theirs),) = pool([joblib.delayed(seen)(array, numpy)])
            assert ours["items"] == theirs["items"]


def doubled(array):
    return md.asarray(np.asarray(array) * 2)


def test_results_come_back_as_memory_that_can_be_written(subtests):
    for size in [10, LARGE]:
        with subtests.test(str(size)):
            (found,) = joblib.Parallel(n_jobs=2)([joblib.delayed(doubled)(filled(size))])
            assert np.array_equal(np.asarray(found), 2 * np.arange(size, dtype="f4"))
            assert not found.readonly


# ---- in this process ----


def sent_as(array):
    return type(array.__reduce_ex__(5)[1][0])


def test_it_does_not_matter_which_of_the_two_was_imported_first(monkeypatch):
    assert sent_as(md.zeros(3)) is np.ndarray
    for name in ("joblib", "numpy"):  # joblib needs no NumPy
        with monkeypatch.context() as patch:
            patch.delitem(sys.modules, name)
            assert sent_as(md.zeros(3)) is pickle.PickleBuffer


def test_joblib_sees_one_numpy_array_for_one_array_as_long_as_that_lives(live_buffers):
    array = filled(100)
    first = array.__reduce_ex__(5)[1][0]
    assert array.__reduce_ex__(4)[1][0] is first
    assert array[:].__reduce_ex__(5)[1][0] is not first
    key = id(array)
    assert key in pickling._given_to_joblib
    steps = []
    sys.setprofile(lambda frame, event, _: steps.append(event))
    del array
    sys.setprofile(None)
    assert steps == ["c_call"], "a step of Python's is one where Ctrl-C can come"  # setprofile() itself
    assert key not in pickling._given_to_joblib
    assert first.view("f4")[99] == 99


def test_a_thread_that_comes_between_gets_the_same_numpy_array(monkeypatch):
    array, between = filled(4), []

    class Interrupted(dict):
        """Another thread sends the same Array before this one has stored its view."""

        def come_between(self):
            if not between:
                between.append(None)
                between[0] = array.__reduce_ex__(5)[1][0]

        def __contains__(self, key):
            is_there = super().__contains__(key)
            self.come_between()
            return is_there

        def setdefault(self, key, default=None):
            self.come_between()
            return super().setdefault(key, default)

    monkeypatch.setattr(pickling, "_given_to_joblib", Interrupted())
    assert array.__reduce_ex__(5)[1][0] is between[0]


def test_a_copy_that_was_sent_is_made_anew(subtests):
    for view in [lambda a: a, lambda a: a[::2]]:
        for storage in STORAGES:
            with subtests.test(storage=storage, view=view):
                array = filled((4, 4), storage=storage)
                for number in (1, 2):
                    array.fill(number)
                    assert pickle.loads(pickle.dumps(view(array))).tolist() == view(array).tolist()


def test_a_dump_is_loaded_over_its_file(tmp_path):
    array = filled((1000, 7), "bfloat16")
    path = joblib.dump({"x": array}, tmp_path / "x")[0]
    assert os.path.getsize(path) < array.nbytes + 2000
    loaded = joblib.load(path, mmap_mode="r")["x"]
    assert loaded.tolist() == array.tolist()
    assert mapped_file(loaded) == path
    assert loaded.readonly
    assert not joblib.load(path)["x"].readonly


def test_a_hash_follows_from_the_items():
    array = filled((30, 40))
    assert joblib.hash(array) == joblib.hash(array.copy())
    assert joblib.hash(array) != joblib.hash(array.T)
    other = array.copy()
    other[3, 3] = -1
    assert joblib.hash(array) != joblib.hash(other)
