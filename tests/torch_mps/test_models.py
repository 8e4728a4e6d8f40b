"""Real models, small: trained on mps and on the CPU from one seed, they lose alike."""

import contextlib
import importlib.util
import warnings

import pytest

pytestmark = [pytest.mark.needs_softmetal, pytest.mark.needs_torch, pytest.mark.needs_no_sanitizer]

STEPS = 4


@pytest.fixture(params=[0, 200])
def latency(late, request):
    late(request.param)


def u_net(torch):
    nn = torch.nn

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.down = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
            self.deep = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(4, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU())
            self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
            self.end = nn.Conv2d(8, 1, 1)

        def forward(self, x):
            x = self.down(x)
            return self.end(torch.cat([x, self.up(self.deep(x))], 1))

    return UNet(), torch.rand(2, 1, 8, 8), lambda y: y.pow(2).mean()


def lstm(torch):
    class Last(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = torch.nn.LSTM(3, 8, num_layers=2, dropout=0.2, batch_first=True, bidirectional=True)
            self.end = torch.nn.Linear(16, 2)

        def forward(self, x):
            return self.end(self.lstm(x)[0][:, -1])

    return Last(), torch.rand(4, 5, 3), lambda y: torch.nn.functional.cross_entropy(y, y.argmin(1).detach())


def embedding_language_model(torch):
    nn = torch.nn
    model = nn.Sequential(
        nn.Embedding(20, 16),
        nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True),
        nn.LayerNorm(16),
        nn.Linear(16, 20),
    )
    tokens = torch.randint(0, 20, (3, 7))
    return model, tokens, lambda y: nn.functional.cross_entropy(y[:, :-1].flatten(0, 1), tokens_on(y, tokens))


def tokens_on(y, tokens):
    return tokens[:, 1:].flatten().to(y.device)


def import_torchvision(torch):
    """Its wheel for CUDA, beside a torch for the CPU, lacks operators that it wants to describe; no model here has them."""
    with contextlib.suppress(RuntimeError):
        return importlib.import_module("torchvision")
    for name in ("nms", "qnms"):
        declared.append(torch.library.Library("torchvision", "FRAGMENT"))
        declared[-1].define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return importlib.import_module("torchvision")


declared = []


def resnet(torch):
    torchvision = import_torchvision(torch)
    return torchvision.models.resnet18(num_classes=4), torch.rand(2, 3, 32, 32), lambda y: y.logsumexp(1).mean()


def transformer(torch):
    if importlib.util.find_spec("torchvision"):
        import_torchvision(torch)  # transformers does
    import transformers

    config = transformers.GPT2Config(vocab_size=40, n_positions=16, n_embd=16, n_layer=2, n_head=2)
    model = transformers.GPT2LMHeadModel(config)
    tokens = torch.randint(0, 40, (2, 9))
    return (
        model,
        tokens,
        lambda y: torch.nn.functional.cross_entropy(y.logits[:, :-1].flatten(0, 1), tokens_on(y.logits, tokens)),
    )


def losses(torch, make, device):
    torch.manual_seed(1)
    model, x, loss_of = make(torch)
    model, x = model.to(device).train(), x.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(2)
    seen = []
    for _ in range(STEPS):
        loss = loss_of(model(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen.append(loss.item())
    return seen


@pytest.mark.parametrize(
    "make",
    [
        u_net,
        lstm,
        embedding_language_model,
        pytest.param(resnet, marks=pytest.mark.needs_torchvision),
        pytest.param(transformer, marks=pytest.mark.needs_transformers),
    ],
)
@pytest.mark.some(2)
def test_models_lose_alike_on_mps_and_on_the_cpu(torch, latency, make):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what the libraries import
        got, wanted = losses(torch, make, "mps"), losses(torch, make, "cpu")
    assert got == pytest.approx(wanted, rel=1e-4)
    assert len(set(got)) == STEPS
