"""share_mps_tensors: queues and a DataLoader's workers send mps tensors through shared memory."""

import json

import pytest
from children import run_child

pytestmark = [pytest.mark.needs_mps, pytest.mark.needs_no_sanitizer]

START = """
import gc, json, os, sys, torch
import torch.multiprocessing as mp
import metal_dlpack as md
from metal_dlpack.sending import SHARED

md.share_mps_tensors()
md.share_mps_tensors()


def is_shared(tensor):
    return hasattr(tensor.untyped_storage(), SHARED)
"""

#: Its arguments: how children start, and torch's strategies of the parent and of the child.
QUEUES = """
def child(strategy, inbox, outbox):
    mp.set_sharing_strategy(strategy)
    got = inbox.get()
    facts = {name: (str(x.dtype), x.stride(), x.storage_offset(), x.requires_grad) for name, x in got.items()}
    facts["values"] = {name: x.tolist() for name, x in got.items()}
    facts["shared"] = [is_shared(x) for x in got.values() if x.is_mps and x.numel()]
    facts["one storage"] = got["base"].untyped_storage() is got["view"].untyped_storage()
    facts["sender is gone"] = got.pop("large").sum().item()
    facts["kind"] = type(got["parameter"]).__name__
    got["view"].add_(100)
    outbox.put(facts)
    outbox.put(got["base"])
    assert inbox.get() == "written"
    outbox.put((got["base"][0, 0].item(), got["bfloat16"]))
    assert inbox.get() == "end"
    os._exit(0)  # before the parent reads what came


if __name__ == "__main__":
    method, ours, theirs = sys.argv[1:]
    mp.set_sharing_strategy(ours)
    context = mp.get_context(method)
    inbox, outbox = context.SimpleQueue(), context.SimpleQueue()
    process = context.Process(target=child, args=(theirs, inbox, outbox), daemon=True)
    process.start()
    base = torch.arange(12.0, device="mps").reshape(3, 4)
    sent = {"base": base, "view": base.T[1:3], "none": base[:0, 1:], "cpu": torch.ones(2)}
    sent["parameter"] = torch.nn.Parameter(torch.full((3,), 2.0, device="mps"))
    sent["bfloat16"] = torch.tensor([1.5, -2.0], dtype=torch.bfloat16, device="mps")
    sent["int8"] = torch.tensor(7, dtype=torch.int8, device="mps")
    sent["complex64"] = torch.tensor([1 + 2j], device="mps")
    sent["bool"] = torch.tensor([True, False], device="mps")
    sent["large"] = torch.ones(1 << 16, device="mps")
    expected = {name: [str(x.dtype), list(x.stride()), x.storage_offset(), x.requires_grad] for name, x in sent.items()}
    values = {name: x.tolist() if not x.is_complex() else None for name, x in sent.items()}
    inbox.put(sent)
    sent.clear()
    gc.collect()
    facts = json.loads(json.dumps(outbox.get(), default=lambda _: None))
    facts["values"]["complex64"] = None
    assert facts.pop("values") == values
    assert all(facts.pop("shared")) and facts.pop("one storage")
    assert facts.pop("sender is gone") == 1 << 16 and facts.pop("kind") == "Parameter"
    assert facts == expected, (facts, expected)
    back = outbox.get()
    assert base[0].tolist() == [0, 1, 2, 3], "what was copied is the sender's own"
    back[0, 0] = -1
    torch.mps.synchronize()
    inbox.put("written")
    seen, last = outbox.get()
    inbox.put("end")
    process.join()
    print(json.dumps([process.exitcode, back[:2].tolist(), seen, last.tolist()]))
"""


def run(code, tmp_path, *arguments):
    script = tmp_path / "program.py"
    script.write_text(START + code)
    done = run_child(script, *arguments, SOFTMETAL_TORCH="1", timeout=90)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


LONG = pytest.mark.long


@pytest.mark.parametrize(
    ("method", "ours", "theirs"),
    [
        ("spawn", "file_system", "file_system"),
        pytest.param("spawn", "file_descriptor", "file_descriptor", marks=LONG),
        pytest.param("forkserver", "file_system", "file_descriptor", marks=LONG),
    ],
)
def test_tensors_come_as_they_were_sent_and_share_what_is_shared(method, ours, theirs, tmp_path):
    code, back, seen, last = run(QUEUES, tmp_path, method, ours, theirs)
    assert code == 0
    assert back == [[-1, 101, 102, 3], [4, 105, 106, 7]]
    assert seen == (-1 if ours == theirs else 0), "with another strategy it is copied anew"
    assert last == [1.5, -2.0]


LOADER = """
class Rows(torch.utils.data.Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index] + 1, is_shared(self.rows)


def collate(items):
    rows, was_received = torch.utils.data.default_collate(items)
    return rows, is_shared(rows) and was_received.all().item()


if __name__ == "__main__":
    rows = torch.arange(10.0, device="mps").reshape(5, 2)
    loader = torch.utils.data.DataLoader(
        Rows(rows), batch_size=2, num_workers=2, multiprocessing_context="spawn", collate_fn=collate
    )
    batches = list(loader)
    assert all(made_shared and is_shared(batch) for batch, made_shared in batches)
    print(json.dumps([batch.tolist() for batch, _ in batches]))
"""


def test_workers_of_a_data_loader_make_their_batches_in_shared_memory(tmp_path):
    assert run(LOADER, tmp_path) == [[[1, 2], [3, 4]], [[5, 6], [7, 8]], [[9, 10]]]


FORKED = """
import pickle
from multiprocessing.reduction import ForkingPickler

if __name__ == "__main__":
    sent = ForkingPickler.dumps(torch.ones(3, device="mps"))
    if child := os.fork():
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    try:
        pickle.loads(sent)
    except (md.MetalError, RuntimeError) as error:
        print(json.dumps(str(error)), flush=True)
    os._exit(0)
"""


@pytest.mark.needs_softmetal
def test_a_forked_child_is_refused(tmp_path):
    assert "fork" in run(FORKED, tmp_path)
