"""The programs of stream_programs.py with torch's mps device among them: operators, kernels, events, hand-overs.

    python tests/support/torch_programs.py [COUNT] [FIRST]     make streams runs 10,000

An array is ours or torch's at any moment: whoever takes it over says so, in one of the ways that a user has.
"""

import contextlib
import gc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import stream_programs
import torch

import metal_dlpack as md
import softmetal

softmetal.torch_mps(float64=True)

KERNEL = "kernel void add_two(device float *x, uint i [[thread_position_in_grid]]) { x[i] += 2; }"


class TorchProgram(stream_programs.Program):
    kernel = None  # compiled once

    def __init__(self, number: int, steps: int = 40, threads: int = 3):
        self.tensors = []
        super().__init__(number, steps, threads)
        self.events = [torch.mps.Event() for _ in range(2)]

    def add_array(self):
        super().add_array()
        self.tensors.append(None)  # or the array's tensor, whose work may be in flight

    # ---- hand-overs ----

    def pick_index(self):
        index = super().pick_index()
        self.take_back(index)
        return index

    def take_back(self, index):
        """From torch to us."""
        tensor, self.tensors[index] = self.tensors[index], None
        if tensor is None:
            return
        way = self.random.choice(("stream", "stream", "import", "kept", "event", "all"))
        if way == "stream":
            stream = self.random.choice(self.streams)
            self.arrays[index] = md.from_dlpack(tensor, stream=stream)
        elif way == "import":
            self.arrays[index] = md.from_dlpack(tensor)
        elif way == "kept":
            md.from_dlpack(tensor, stream=self.random.choice(self.streams))
        elif way == "event":
            event = self.random.choice(self.events)
            event.record()
            event.synchronize()
        else:
            torch.mps.synchronize()

    def pick_tensor(self, dtype=None, shape=None):
        """From us to torch, where it is not there yet; private memory is not the CPU's.  Its number, it, its model."""
        fit = [
            index
            for index, (array, wanted) in enumerate(zip(self.arrays, self.wanted, strict=True))
            if array.storage != "private" and dtype in (None, wanted.dtype.name) and shape in (None, wanted.shape)
        ]
        if not fit:
            self.arrays.append(md.zeros(shape or (64,), dtype or "float32"))
            self.wanted.append(np.zeros(shape or (64,), dtype or "float32"))
            self.tensors.append(None)
            fit = [len(self.arrays) - 1]
        index = self.random.choice(fit)
        if self.tensors[index] is None:
            array = self.arrays[index]
            self.tensors[index] = array.to(torch) if self.random.random() < 0.7 else torch.from_dlpack(array)
        return index, self.tensors[index], self.wanted[index]

    def part(self, count):
        start = self.random.randrange(count)
        return slice(start, self.random.randint(start + 1, count), self.random.choice((1, 1, 2)))

    # ---- torch's steps ----

    def compute_in_place(self):
        _, tensor, wanted = self.pick_tensor()
        where, number = self.part(len(wanted)), self.random.randint(0, 3)
        how = self.random.choice(("add", "mul", "fill", "zero", "index", "all"))
        if how == "add":
            tensor[where].add_(number)
            wanted[where] += number
        elif how == "mul":
            tensor[where].mul_(number)
            wanted[where] *= number
        elif how == "fill":
            tensor[where].fill_(number)
            wanted[where] = number
        elif how == "zero":
            tensor.zero_()
            wanted[...] = 0
        elif how == "index":
            tensor[where.start] = number
            wanted[where.start] = number
        else:
            tensor += number
            wanted += number

    def compute_out(self):
        _, target, wanted = self.pick_tensor()
        _, source, taken = self.pick_tensor(wanted.dtype.name, wanted.shape)
        where = self.part(len(wanted))
        torch.add(source[where], target[where], out=target[where])
        wanted[where] = taken[where] + wanted[where]

    def copy_in_torch(self):
        _, target, wanted = self.pick_tensor()
        _, source, taken = self.pick_tensor(wanted.dtype.name, wanted.shape)
        if self.random.random() < 0.5:
            source, taken = source.flip(0), taken[::-1]
        target.copy_(source)
        wanted[...] = taken.copy()

    def compute_anew(self):
        """A tensor of torch's own memory takes the array's place."""
        index, tensor, wanted = self.pick_tensor()
        if self.random.random() < 0.5:
            self.put(index, tensor + 1, wanted + wanted.dtype.type(1))
        else:
            self.put(index, torch.cat([tensor[1:], tensor[:1]]), np.concatenate([wanted[1:], wanted[:1]]))
        del tensor
        if self.random.random() < 0.3:
            gc.collect(0)

    def put(self, index, tensor, wanted):
        self.tensors[index], self.wanted[index] = tensor, wanted
        self.arrays[index] = md.from_dlpack(tensor, stream=-1)  # torch's for now

    def upload_in_torch(self):
        index, _, wanted = self.pick_tensor()
        memory = np.full_like(wanted, self.random.randint(0, 9))
        self.put(index, torch.from_numpy(memory.copy()).to("mps"), memory)

    def look_in_torch(self):
        _, tensor, wanted = self.pick_tensor()
        how = self.random.choice(("cpu", "max", "list", "equal", "item"))
        if how == "cpu":
            assert np.array_equal(tensor.cpu().numpy(), wanted)
        elif how == "max":
            assert tensor.max().item() == wanted.max()
        elif how == "list":
            assert tensor.tolist() == wanted.tolist()
        elif how == "equal":
            assert torch.equal(tensor, tensor.clone())
        else:
            assert tensor.reshape(-1)[0].item() == wanted.reshape(-1)[0]

    def fail_in_torch(self):
        _, tensor, wanted = self.pick_tensor()
        with contextlib.suppress(RuntimeError):
            tensor.add_(torch.zeros(len(wanted) + 7, 3, dtype=tensor.dtype, device="mps"))
            raise AssertionError("shapes that do not fit")

    def write_beside_torch(self):
        """The CPU writes bytes that torch's work in flight does not touch; torch's next operator finds them."""
        index, tensor, wanted = self.pick_tensor()
        half = len(wanted) // 2
        if half == 0 or self.arrays[index].storage != "shared":
            return
        torch.mps.synchronize()
        view = np.from_dlpack(self.arrays[index].host)
        tensor[:half].add_(1)
        view[half:] = 3
        tensor[half:].add_(1)
        wanted[half:] = 3
        wanted += 1

    def run_a_kernel(self):
        _, tensor, wanted = self.pick_tensor("float32")
        if not tensor.is_contiguous():
            return
        if TorchProgram.kernel is None:
            TorchProgram.kernel = md.kernel(KERNEL)
        stream = self.pick_stream()
        TorchProgram.kernel(tensor, n=wanted.size, **({} if stream is None else {"stream": stream}))
        wanted += 2

    def note_an_event(self):
        event = self.random.choice(self.events)
        getattr(event, self.random.choice(("record", "record", "wait", "query")))()

    def synchronize(self):
        torch.mps.synchronize()

    def drop(self):
        """Whatever is in flight, the array and its tensor go."""
        index = self.random.randrange(len(self.arrays))
        del self.arrays[index], self.wanted[index], self.tensors[index]
        self.add_array()

    # ---- the whole ----

    def table(self):
        table = [self.compute_in_place] * 6 + [self.compute_out, self.copy_in_torch, self.look_in_torch] * 2
        table += [self.compute_anew, self.upload_in_torch, self.run_a_kernel, self.note_an_event, self.fail_in_torch]
        return [*super().table(), *table, self.write_beside_torch, self.synchronize, self.drop]

    renew = drop

    def settle(self):
        for index in range(len(self.arrays)):
            self.take_back(index)


# ---- threads that know nothing of each other ----


def run_threads(number: int) -> None:
    """Each thread has tensors of its own, half of a buffer and the same tensor to read."""
    softmetal.configure(latency_us=(0, 100, 1000)[number % 3])
    shared, whole = torch.arange(100.0, device="mps"), md.zeros(200)
    torch.mps.synchronize()

    def work(place):
        own, total = torch.zeros(100, device="mps"), 0.0
        half = torch.from_dlpack(whole)[place * 100 : place * 100 + 100]
        for step in range(30):
            own = own + shared * step
            own.add_(1)
            half.add_(own)
            total += own.clone()
            if step % 10 == number % 10:
                assert own.sum().item() == sum(range(step + 1)) * 4950 + 100 * (step + 1)
        return torch.equal(half.cpu(), total.cpu())

    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(work, range(2)))
    softmetal.configure(latency_us=None)


def main(kind=TorchProgram):
    stream_programs.main(kind)
    for number in range(30):
        run_threads(number)
    print("30 times two threads with tensors of their own, and shared ones")


if __name__ == "__main__":
    main()
