"""Masks and numbers per call in `tallytree.torch`: padded rows are rows without the padding, compiled or not."""

from __future__ import annotations

import io
import itertools

import pytest

import tallytree as tt

torch = pytest.importorskip("torch", reason="tallytree.torch needs PyTorch: pip install 'tallytree[torch]'")
import tallytree.torch as ttt  # noqa: E402

MASK = torch.tensor([[1, 1, 1, 0, 1, 0], [1, 1, 1, 1, 1, 1], [0, 0, 1, 1, 0, 0]], dtype=torch.bool)
K = torch.tensor([2, 4, 1])


def scores(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def by_enumeration(row, mask, k):
    """All subsets of k unmasked entries (subsets, n), and their log-probabilities."""
    places = torch.nonzero(mask).squeeze(-1).tolist()
    subsets = torch.zeros(0, len(row), dtype=torch.float64)
    for chosen in itertools.combinations(places, k):
        subsets = torch.cat(
            [subsets, torch.zeros(1, len(row)).double().index_fill(1, torch.tensor(chosen), 1.0)]
        )
    return subsets, torch.log_softmax(subsets @ row.masked_fill(~mask, 0.0), 0)


def test_masked_rows_are_rows_of_what_is_left():
    x = scores(3, 6).requires_grad_()
    law = ttt.CountDistribution(x, ttt.exactly(K), mask=MASK)
    answers = {
        "marginals": (ttt.marginals(x, ttt.exactly(K), mask=MASK), lambda s, p: p.exp() @ s),
        "the law's": (law.marginals, lambda s, p: p.exp() @ s),
        "of Bernoullis": (ttt.ConditionalBernoulli(K, x, mask=MASK).mean, lambda s, p: p.exp() @ s),
        "of the layer": (ttt.KSubset().marginals(x, K, MASK), lambda s, p: p.exp() @ s),
        "entropy": (law.entropy(), lambda s, p: -(p.exp() * p).sum()),
        "entropy of the layer": (ttt.KSubset(K).entropy(x, mask=MASK), lambda s, p: -(p.exp() * p).sum()),
        "counts": (
            ttt.count_log_probs(x, ttt.exactly(K), mask=MASK).exp(),
            lambda s, p: torch.bincount(s.sum(-1).long(), minlength=7)[:7].clamp(max=1).double(),
        ),
    }
    for name, (found, wanted) in answers.items():
        weights = scores(*found.shape, seed=3)
        (slope,) = torch.autograd.grad((found * weights).sum(), x, retain_graph=True)
        y = x.detach().clone().requires_grad_()
        exact = torch.stack([wanted(*by_enumeration(*given)) for given in zip(y, MASK, K.tolist())])
        torch.testing.assert_close(found, exact, rtol=1e-10, atol=1e-12, msg=name)
        if name != "counts":  # which are sure
            (expected,) = torch.autograd.grad((exact * weights).sum(), y)
            torch.testing.assert_close(slope, expected, rtol=1e-9, atol=1e-11, msg=name)
    sums = torch.stack(
        [
            torch.logsumexp(by_enumeration(r, m, k)[0] @ r.masked_fill(~m, 0), 0)
            for r, m, k in zip(x, MASK, K.tolist())
        ]
    )
    torch.testing.assert_close(ttt.log_partition(x, ttt.exactly(K), mask=MASK), sums, rtol=1e-11, atol=0)


def test_masked_trials_are_left_out_of_counts():
    x = scores(3, 6)
    for law in (ttt.PoissonBinomial(x, mask=MASK), ttt.PoissonBinomial(probs=x.sigmoid(), mask=MASK)):
        for row in range(3):
            left = ttt.PoissonBinomial(x[row][MASK[row]]).count_log_probs()
            torch.testing.assert_close(law.count_log_probs()[row, : len(left)], left, rtol=1e-10, atol=1e-12)


def test_draws_of_masked_rows_have_the_right_frequencies():
    x, draws = scores(3, 6), 4000
    found = ttt.sample(x, ttt.exactly(K), (draws,), torch.Generator().manual_seed(1), mask=MASK)
    assert torch.equal(found.sum(-1), K.double().expand(draws, 3))
    assert float(found[:, ~MASK].max()) == 0.0
    exact = ttt.marginals(x, ttt.exactly(K), mask=MASK)
    assert float((found.mean(0) - exact).abs().max()) < 5.0 * 0.5 / draws**0.5


def test_the_layer_takes_k_with_every_call_and_shares_of_the_unmasked():
    x = scores(3, 6)
    layer = ttt.KSubset(1)
    assert layer(x).sum(-1).tolist() == [1, 1, 1]
    assert layer(x, 3).sum(-1).tolist() == [3, 3, 3]
    assert layer(x, K, MASK).sum(-1).tolist() == K.tolist()
    half = ttt.KSubset(fraction=0.5)
    for now in (half, half.eval()):
        out = now(x, mask=MASK)
        assert out.sum(-1).tolist() == [2, 3, 1]
        assert float(out[~MASK].abs().max()) == 0.0
    assert half(x, 1, MASK).sum(-1).tolist() == [1, 1, 1]
    assert (
        ttt.KSubset(fraction=0.07)(torch.zeros(100)).sum() == 7
    )  # 0.07 * 100 is more than 7 in floating point
    assert ttt.KSubset(fraction=0.0)(x).sum() == 0
    called = ttt.KSubset(3)
    torch.testing.assert_close(called.marginals(x, mask=MASK, fraction=0.5), half.marginals(x, mask=MASK))
    torch.testing.assert_close(called.entropy(x, mask=MASK, fraction=0.5), half.entropy(x, mask=MASK))
    assert called.eval()(x, mask=MASK, fraction=0.5).equal(half.eval()(x, mask=MASK))
    with pytest.raises(tt.ParameterError, match="both arrived"):
        called(x, 2, fraction=0.5)
    nothing = torch.zeros(2, 6, dtype=torch.bool)
    assert half(x[:2], mask=nothing).sum() == 0  # half of nothing
    assert half(torch.zeros(0, 6)).shape == (0, 6)
    for wrong in (lambda: ttt.KSubset(0.15), lambda: ttt.KSubset()(x, 0.15)):
        with pytest.raises(tt.ParameterError, match=r"fraction=0\.15"):
            wrong()
    assert repr(half) == "KSubset(fraction=0.5, n_samples=None, temperature=1.0)"


def test_an_inverted_mask_is_named_by_row_number_and_k():
    mask = torch.ones(3, 20, dtype=torch.bool)
    mask[2, 4:] = False
    x = torch.zeros(3, 20)
    message = "row 2 has 4 unmasked entries, k = 15"
    calls = [
        lambda: ttt.KSubset(15)(x, mask=mask),
        lambda: ttt.KSubset(15).eval()(x, mask=mask),
        lambda: ttt.KSubset().entropy(x, 15, mask),
        lambda: ttt.marginals(x, tt.exactly(15), mask=mask),
        lambda: ttt.sample(x, ttt.exactly(torch.tensor([1, 2, 15])), mask=mask),
        lambda: ttt.log_partition(x, tt.at_least(15), mask=mask),
        lambda: ttt.CountDistribution(x, tt.between(15, 17), mask=mask),
        lambda: ttt.ConditionalBernoulli(15, x, mask=mask),
        lambda: ttt.count_log_probs(x, tt.exactly(15), mask=mask),
    ]
    for call in calls:
        with pytest.raises(tt.ParameterError, match=message):
            call()
    with pytest.raises(tt.ParameterError, match="1 entries on its last axis"):
        ttt.marginals(torch.zeros(1), tt.exactly(1), mask=mask)


def test_rsample_says_what_to_use_instead():
    for law in (
        ttt.CountDistribution(torch.zeros(3), tt.exactly(1)),
        ttt.ConditionalBernoulli(1, torch.zeros(3)),
    ):
        with pytest.raises(NotImplementedError, match="KSubset"):
            law.rsample()
    with pytest.raises(NotImplementedError, match="log_prob"):
        ttt.PoissonBinomial(torch.zeros(3)).rsample((2,))


class Selector(torch.nn.Module):
    """Chooses 15 % of the tokens, with an entropy that keeps the choice open."""

    def __init__(self):
        super().__init__()
        self.score = torch.nn.Linear(4, 1).double()
        self.choose = ttt.KSubset(fraction=0.15)

    def forward(self, tokens, mask):
        scores = self.score(tokens).squeeze(-1)
        chosen = self.choose(scores, mask=mask)
        return (tokens * chosen.unsqueeze(-1)).sum(-2), self.choose.entropy(scores, mask=mask)


def padded(length, rows=3):
    sizes = torch.arange(rows) + length - rows + 1
    return scores(rows, length, 4, seed=length), torch.arange(length) < sizes[:, None]


@pytest.mark.filterwarnings("ignore")  # what compilers say about the machine
def test_sequences_of_many_lengths_are_compiled_twice():
    """Once, and once more with the length left open."""
    torch._dynamo.reset()
    graphs = 0

    def backend(graph, example_inputs):
        nonlocal graphs
        graphs += 1
        return torch._dynamo.lookup_backend("aot_eager")(graph, example_inputs)

    net = Selector()
    compiled = torch.compile(net, fullgraph=True, backend=backend)
    for length in (9, 14, 21, 30, 8, 40):
        given, slopes = padded(length), []
        for function in (net, compiled):
            net.zero_grad()
            torch.manual_seed(0)
            out, entropy = function(*given)
            (out.square().sum() - 0.1 * entropy.sum()).backward()
            slopes.append((out.detach(), entropy.detach(), net.score.weight.grad.clone()))
        for plain, other in zip(*slopes):
            torch.testing.assert_close(plain, other, rtol=1e-10, atol=1e-12)
    assert graphs == 2


NORMAL, ROWS = tt.gaussian(2.0, 1.0), tt.poisson([1.0, 2.0, 3.0])
OPEN = {
    "counts": lambda x: ttt.count_log_probs(x)[..., 1:3].sum(-1),
    "counts under a constraint": lambda x: ttt.count_log_probs(x, tt.at_least(2))[..., 2:4].sum(-1),
    "configurations": lambda x: ttt.CountDistribution(x, tt.at_most(4)).log_prob((x > 1.0).to(x)),
    "independent configurations": lambda x: ttt.CountDistribution(x).log_prob((x > 1.0).to(x)),
    "entropy of independent variables": lambda x: ttt.CountDistribution(x).entropy(),
    "a count": lambda x: ttt.PoissonBinomial(x).log_prob(torch.tensor(2.0)),
    "a smooth potential": lambda x: ttt.marginals(x, NORMAL).square().sum(-1),
    "one potential per row": lambda x: ttt.log_partition(x, ROWS),
    "a mode": lambda x: ttt.CountDistribution(x, tt.exactly(2)).mode.sum(-1) + x.sum(-1),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OPEN)
def test_answers_of_many_lengths_are_compiled_twice(name):
    torch._dynamo.reset()
    graphs = []

    def backend(graph, example_inputs):
        graphs.append(graph)
        return torch._dynamo.lookup_backend("aot_eager")(graph, example_inputs)

    compiled = torch.compile(OPEN[name], fullgraph=True, backend=backend)
    for length in (5, 7, 9, 6):
        found = []
        for function in (OPEN[name], compiled):
            x = scores(3, length, seed=length).requires_grad_()
            value = function(x)
            value.sum().backward()
            found.append((value.detach(), x.grad))
        for plain, other in zip(*found):
            torch.testing.assert_close(plain, other, rtol=1e-9, atol=1e-11)
    assert len(graphs) == 2


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("training", [True, False])
def test_an_exported_layer_answers_as_it_did(training):
    net = Selector().train(training)
    length = torch.export.Dim("length", min=2, max=100)
    program = torch.export.export(
        net, padded(9), dynamic_shapes={"tokens": {1: length}, "mask": {1: length}}, strict=False
    )
    stored = io.BytesIO()
    torch.export.save(program, stored)
    stored.seek(0)
    again = torch.export.load(stored).module()
    for n in (9, 23):
        torch.manual_seed(0)
        wanted = net(*padded(n))
        torch.manual_seed(0)
        torch.testing.assert_close(again(*padded(n)), wanted)


def test_what_lives_in_this_process_alone_is_not_exported():
    class Nested(torch.nn.Module):
        def forward(self, x):
            return ttt.marginals(x, [tt.Group([0, 1], tt.at_most(1)), tt.Group(None, tt.exactly(2))])

    with pytest.raises(tt.ParameterError, match=r"torch\.export"):
        torch.export.export(Nested(), (torch.zeros(4),), strict=False)


def test_a_layer_goes_to_onnx_in_evaluation_only(monkeypatch):
    """As far as PyTorch's own tracing goes: the graph of a layer that sorts has operators that ONNX has."""
    monkeypatch.setattr(torch.onnx, "is_in_onnx_export", lambda: True)
    graph = torch.export.export(ttt.KSubset(2).eval(), (torch.zeros(3, 5),), strict=False).graph
    used = {str(node.target) for node in graph.nodes}
    assert "aten.sort.default" in used
    assert not [name for name in used if "tallytree" in name or "stable" in name]
    for strict in (False, True):
        with pytest.raises(Exception, match="evaluation mode"):
            torch.export.export(ttt.KSubset(2), (torch.zeros(3, 5),), strict=strict)


@pytest.mark.filterwarnings("ignore")
def test_a_layer_in_onnx_chooses_what_it_chooses_here(tmp_path):
    for package in ("onnxscript", "onnx"):
        pytest.importorskip(package)
    from onnx.reference import ReferenceEvaluator

    layer, scores = ttt.KSubset(2).eval(), torch.tensor([[1.0, 1.0, 1.0, 0.0], [0.0, 2.0, 2.0, 2.0]])
    path = tmp_path / "layer.onnx"
    torch.onnx.export(layer, (scores,), path, dynamo=True, dynamic_shapes=({0: "rows", 1: "items"},))
    graph = ReferenceEvaluator(str(path))
    for x in (scores, torch.randint(0, 3, (4, 30)).float()):  # ties, and other lengths
        (found,) = graph.run(None, {graph.input_names[0]: x.numpy()})
        assert (torch.as_tensor(found) == layer(x)).all()


@pytest.mark.filterwarnings("ignore")
def test_a_potential_made_while_compiling_is_refused_with_a_remedy():
    torch._dynamo.reset()
    x = torch.zeros(4, dtype=torch.float64)
    with pytest.raises(Exception, match=r"must be made before the function"):
        torch.compile(lambda x: ttt.marginals(x, tt.gaussian(2.0, 1.0)), fullgraph=True, backend="eager")(x)
    inside = torch.compile(
        lambda x: ttt.marginals(x, ttt.gaussian(2.0, 1.0)), fullgraph=True, backend="eager"
    )
    torch.testing.assert_close(inside(x), ttt.marginals(x, tt.gaussian(2.0, 1.0)))
