"""What code on mps meets besides its results: devices that differ, seeds, the profiler, attention by masks."""

import threading

import pytest

pytestmark = [pytest.mark.needs_softmetal, pytest.mark.needs_torch, pytest.mark.needs_no_sanitizer]

SAME_DEVICE = "to be on the same device, but found at least two devices, mps:0 and cpu!"


@pytest.mark.parametrize(
    "ask",
    [
        lambda torch, here, there: here + there,
        lambda torch, here, there: torch.add(there, here),
        lambda torch, here, there: here.mm(there),
        lambda torch, here, there: torch.nn.functional.linear(there, here),
        lambda torch, here, there: torch.cat([here, there]),
        lambda torch, here, there: torch.where(there > 0, here, here),
        lambda torch, here, there: torch.add(here, here, out=there),
        lambda torch, here, there: here.mul_(there),
    ],
)
def test_a_tensor_of_the_cpu_is_refused_beside_one_of_mps(torch, ask):
    here, there = torch.ones(2, 2, device="mps"), torch.ones(2, 2)
    with pytest.raises(RuntimeError, match=SAME_DEVICE):
        ask(torch, here, there)
    with pytest.raises(RuntimeError, match=r"Input type .MPSFloatType. and weight type .torch.FloatTensor. should be"):
        torch.conv2d(torch.ones(1, 1, 3, 3, device="mps"), torch.ones(1, 1, 3, 3))


def test_numbers_and_indices_of_the_cpu_are_taken(torch):
    here = torch.arange(4.0, device="mps")
    assert (here + torch.tensor(2.0)).tolist() == [2, 3, 4, 5]
    assert here[torch.tensor([3, 0])].tolist() == [3, 0]
    here[torch.tensor([1])] = 9.0
    assert here.copy_(torch.ones(4)).tolist() == [1] * 4


def test_every_operator_that_draws_has_mpss_sequence(torch):
    ones = torch.ones(50, device="mps")

    def draw():
        torch.mps.manual_seed(1)
        return [torch.nn.functional.dropout(ones), torch.randn(3, device="mps"), torch.randperm(9, device="mps")]

    of_the_cpu = torch.get_rng_state()
    first, offset = draw(), torch.mps._get_default_mps_generator().get_offset()
    assert all(map(torch.equal, first, draw()))
    assert offset == len(first)
    assert torch.equal(torch.get_rng_state(), of_the_cpu)
    generator = torch.Generator(device="mps").manual_seed(5)
    again = torch.randn(3, device="mps", generator=generator)
    assert torch.equal(torch.randn(3, device="mps", generator=generator.set_offset(0)), again)
    with pytest.raises(RuntimeError, match="cannot go to offset 7; set_state goes back"):
        generator.set_offset(7)


def test_numbers_of_the_cpu_are_its_own_while_mps_draws(torch):
    """With an operator on another thread that takes no generator, and with one that torch thinks might draw."""
    ones, query = torch.ones(50_000, device="mps"), torch.ones(1, 2, 64, 32, device="mps")
    state, ends, rounds = torch.get_rng_state(), threading.Event(), threading.Semaphore(0)

    def draw():
        torch.set_rng_state(state)
        return torch.stack([torch.rand(64) for _ in range(500)])

    def compute():
        while not ends.is_set():
            torch.native_dropout(ones, 0.5, True)
            torch.nn.functional.scaled_dot_product_attention(query, query, query)
            rounds.release()

    wanted, thread = draw(), threading.Thread(target=compute)
    thread.start()
    try:
        for _ in range(10):
            assert rounds.acquire(timeout=60)
            assert torch.equal(draw(), wanted)
    finally:
        ends.set()
        thread.join()
        torch.set_rng_state(state)


@pytest.mark.parametrize("draw", ["rand(3, generator=g, device=d)", "zeros(3, device=d).normal_(generator=g)",
                                  "randperm(3, generator=g, device=d)", "multinomial(torch.ones(3, device=d), 2, generator=g)"])  # fmt: skip
def test_a_generator_of_the_cpu_is_refused(torch, draw):
    with pytest.raises(RuntimeError, match="Expected a 'mps' device type for generator but found 'cpu'"):
        eval(f"torch.{draw}", {"torch": torch, "g": torch.Generator(), "d": "mps"})


def test_a_generators_state_has_its_offset_and_is_not_the_cpus(torch):
    generator = torch.Generator(device="mps").manual_seed(5)
    torch.rand(3, generator=generator, device="mps")
    state = generator.get_state()
    drawn = torch.rand(3, generator=generator, device="mps")
    assert generator.set_state(state).get_offset() == 1
    assert torch.equal(torch.rand(3, generator=generator, device="mps"), drawn)
    for wrong in (torch.get_rng_state(), state[:44]):
        with pytest.raises(RuntimeError, match="RNG state is wrong size"):
            generator.set_state(wrong)
    assert generator.get_offset() == 2


OUT_AND_ARGUMENT = ["add(a, b, out=a)", "add(b, a, out=a)", "where(a > 0, a, b, out=a)", "lerp(a, b, 0.5, out=a)",
                    "addcmul(b, b, a, out=a)", "clamp(a, b, out=a)", "matmul(a, torch.ones(3, 3, device=a.device), out=a)",
                    "cumsum(b, 0, out=a)", "cat([a, a], out=a)", "sort(a, out=(a, a.long()))"]  # fmt: skip


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("call", OUT_AND_ARGUMENT)
def test_an_argument_that_is_out_as_well_is_refused_where_the_cpu_refuses_it(torch, call):
    answers = []
    for device in ("cpu", "mps"):
        a, b = torch.tensor([3.0, 1.0, 2.0], device=device), torch.ones(2, 3, device=device)
        try:
            eval(f"torch.{call}", {"torch": torch, "a": a, "b": b})
        except RuntimeError as error:
            answers.append(str(error).partition(" (")[0])
        else:
            answers.append(a.tolist())
    assert answers[0] == answers[1]


def test_times_are_of_events_that_are_recorded_and_made_for_it(torch):
    def event(timed=True, of=torch.mps.Event, **settings):
        one = of(enable_timing=timed, **settings)
        one.record()
        return one

    first, second = event(), event()
    assert first.elapsed_time(second) >= 0
    begin, end = (event(of=torch.Event, device="mps") for _ in range(2))
    assert begin.elapsed_time(end) >= 0
    with pytest.raises(RuntimeError, match=r"^End event \d+ was not recorded after start event \d+"):
        second.elapsed_time(first)
    for other in (torch.mps.Event(enable_timing=True), torch.mps.Event()):
        with pytest.raises(
            RuntimeError, match=r"not created with argument 'enable_timing=True'|must be recorded before"
        ):
            first.elapsed_time(other)
    with pytest.raises(RuntimeError, match="Events were not created with argument 'enable_timing=True'"):
        first.elapsed_time(event(timed=False))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_attention_by_a_mask_of_booleans(torch, dtype):
    q, k, v = (torch.rand(1, 2, 5, 8).to(getattr(torch, dtype)) for _ in range(3))
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    attend = torch.nn.functional.scaled_dot_product_attention
    wanted = attend(q, k, v, attn_mask=mask)
    found = attend(q.to("mps"), k.to("mps"), v.to("mps"), attn_mask=mask.to("mps"))
    torch.testing.assert_close(found.cpu(), wanted, rtol=1e-3, atol=1e-3)
    given = (q.to("mps"), k.to("mps"), v.to("mps"), mask.to("mps"))
    found, weights = torch.ops.aten._scaled_dot_product_attention_math_for_mps(*given)
    torch.testing.assert_close(found.cpu(), wanted, rtol=1e-3, atol=1e-3)
    assert weights.shape == (1, 2, 5, 5) and weights[..., 0, 1:].abs().sum() == 0


def test_the_profiler_is_there_and_records_nothing(torch):
    with torch.mps.profiler.profile(mode="event,interval", wait_until_completed=True):
        assert torch.ones(2, device="mps").sum().item() == 2
    with pytest.raises(RuntimeError, match="Invalid Signpost trace mode: all; it is"):
        torch.mps.profiler.start("all")
    assert not torch.mps.profiler.is_metal_capture_enabled() and not torch.mps.profiler.is_capturing_metal()
    with pytest.raises(RuntimeError, match=r"writes no \.gputrace"), torch.mps.profiler.metal_capture("trace"):
        pass


def test_the_cpus_alias_of_a_storage_is_the_same_memory(torch):
    if not hasattr(torch.mps, "_host_alias_storage"):
        pytest.skip("this torch has none")
    t = torch.zeros(4, device="mps")
    alias = torch.empty(0).set_(torch.mps._host_alias_storage(t.untyped_storage()))
    alias[1] = 7
    assert t.tolist() == [0, 7, 0, 0]
    del t
    assert alias.tolist() == [0, 7, 0, 0]
    with pytest.raises(RuntimeError, match="the storage is on cpu, not on mps"):
        torch.mps._host_alias_storage(alias.untyped_storage())


def test_weights_are_counted_without_float64(torch):
    places = torch.tensor([0, 1, 1], device="mps")
    for weights, wanted in (([1, 2, 3], torch.int32), ([0.5, 1, 2], torch.float32)):
        counted = torch.bincount(places, torch.tensor(weights, device="mps"))
        assert (counted.dtype, counted.tolist()) == (wanted, [weights[0], weights[1] + weights[2]])


@pytest.mark.parametrize("tiles", [2, 4])
def test_weights_of_four_bits(torch, tiles):
    n, k, group = 16, 64, 32
    numbers = torch.arange(n * k).reshape(n, k).remainder(16)
    bytes_of_two = (numbers[:, ::2] * 16 + numbers[:, 1::2]).to(torch.uint8)
    packed = torch._convert_weight_to_int4pack(bytes_of_two.to("mps"), tiles)
    assert (packed.dtype, tuple(packed.shape)) == (torch.int32, (n // 8, k // (16 * tiles), 32, tiles // 2))
    scales, zeros = torch.full((k // group, n), 0.5), torch.full((k // group, n), 3.0)
    x = torch.rand(5, k)
    found = torch._weight_int4pack_mm(x.to("mps"), packed, group, torch.stack([scales, zeros], dim=2).to("mps"))
    wanted = x @ ((numbers - 8) * 0.5 + 3).t()
    torch.testing.assert_close(found.cpu(), wanted, rtol=1e-3, atol=1e-2)
    with pytest.raises(RuntimeError, match="innerKTiles is 2, 4 or 8, not 3"):
        torch._convert_weight_to_int4pack(bytes_of_two.to("mps"), 3)


@pytest.mark.filterwarnings("ignore:The operator")  # it runs on the CPU, as on a Mac
def test_singular_values_have_gradients(torch):
    x = torch.rand(3, 3)
    there, here = x.clone().requires_grad_(), x.to("mps").requires_grad_()
    for matrix in (there, here):
        torch.linalg.svd(matrix)[1].sum().backward()
    torch.testing.assert_close(here.grad.cpu(), there.grad)
