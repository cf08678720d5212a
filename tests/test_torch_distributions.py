"""Distributions, the layer and the losses of `tallytree.torch`."""

from __future__ import annotations

import io
import math
import subprocess
import sys

import numpy as np
import pytest

import tallytree as tt
from oracle_states import all_states

torch = pytest.importorskip("torch", reason="tallytree.torch needs PyTorch: pip install 'tallytree[torch]'")
from torch.distributions import kl_divergence  # noqa: E402

import tallytree.torch as ttt  # noqa: E402


def doubles(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def configurations(n):
    return torch.tensor(all_states((2,) * n), dtype=torch.float64)


def law(n=5, seed=0, batch=()):
    groups = [tt.Group([0, 1], tt.at_least(1)), tt.Group(None, doubles(n + 1, seed=seed + 1))]
    return ttt.CountDistribution(doubles(*batch, n, seed=seed).requires_grad_(), groups)


def test_probabilities_of_all_configurations_say_everything():
    d, states = law(), configurations(5)
    log_probs = d.log_prob(states).detach()
    probs = log_probs.exp()
    assert float(probs.sum()) == pytest.approx(1.0, abs=1e-12)
    torch.testing.assert_close(d.mean.detach(), probs @ states, rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(
        d.variance.detach(), probs @ states - (probs @ states) ** 2, rtol=1e-10, atol=1e-12
    )
    entropy = -(probs * torch.where(probs > 0, log_probs, 0.0)).sum()
    assert float(d.entropy().detach()) == pytest.approx(float(entropy), abs=1e-11)
    assert torch.equal(d.mode, states[int(probs.argmax())])
    (by_entropy,) = torch.autograd.grad(d.entropy(), d._posed.logits)
    direct = law()
    value = direct.log_prob(states)
    plain = -(value.exp() * torch.where(torch.isfinite(value), value, 0.0)).sum()
    (expected,) = torch.autograd.grad(plain, direct._posed.logits)
    torch.testing.assert_close(by_entropy, expected, rtol=1e-8, atol=1e-10)


def test_divergences_are_sums_over_configurations():
    p, q, states = (
        law(seed=0),
        ttt.CountDistribution(doubles(5, seed=9), tt.geometric(0.4)),
        configurations(5),
    )
    a, b = p.log_prob(states), q.log_prob(states)
    possible = torch.isfinite(a)
    expected = (a.exp()[possible] * (a - b)[possible]).sum()
    assert float(kl_divergence(p, q).detach()) == pytest.approx(float(expected.detach()), abs=1e-10)
    assert float(kl_divergence(p, p).detach()) == pytest.approx(0.0, abs=1e-10)
    assert math.isinf(float(kl_divergence(q, p).detach()))
    kl_divergence(p, q).backward()


def test_divergences_of_poisson_binomial_laws():
    a, b = torch.tensor([0.2, 0.9, 0.4]).double(), torch.tensor([0.5, 0.3, 0.7]).double()

    def law(p):
        found = np.zeros(4)
        for state in all_states((2,) * 3):
            found[sum(state)] += np.prod(np.where(state, p, 1 - p))
        return found

    p, q = law(a.numpy()), law(b.numpy())
    found = kl_divergence(ttt.PoissonBinomial(probs=a), ttt.PoissonBinomial(probs=b))
    assert float(found) == pytest.approx((p * np.log(p / q)).sum(), rel=1e-10)
    sure = ttt.PoissonBinomial(probs=torch.ones(3).double())
    assert float(kl_divergence(ttt.PoissonBinomial(probs=a), sure)) == math.inf
    assert float(kl_divergence(sure, ttt.PoissonBinomial(probs=b))) == pytest.approx(-np.log(q[3]), rel=1e-10)
    with pytest.raises(tt.ParameterError, match="same number of trials"):
        kl_divergence(sure, ttt.PoissonBinomial(probs=torch.ones(4)))


def test_expand_keeps_the_laws():
    d = law(batch=(3,))
    wide = d.expand((2, 3))
    assert wide.batch_shape == (2, 3)
    assert wide.event_shape == (5,)
    assert wide.sample((4,)).shape == (4, 2, 3, 5)
    torch.testing.assert_close(wide.mean[1], d.mean, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(
        wide.log_prob(configurations(5)[-1]), d.log_prob(configurations(5)[-1]).expand(2, 3)
    )
    c = ttt.ConditionalBernoulli(torch.tensor([1, 2]), doubles(2, 4)).expand((3, 2))
    assert bool((c.sample((5,)).sum(-1) == torch.tensor([1.0, 2.0])).all())
    b = ttt.PoissonBinomial(doubles(2, 4)).expand((3, 2))
    assert b.log_prob(torch.tensor(1)).shape == (3, 2)


def test_moments_of_samples():
    torch.manual_seed(3)
    d = law(batch=(2,))
    drawn = d.sample((20000,))
    assert float((drawn.mean(0) - d.mean).detach().abs().max()) < 0.02
    assert set(drawn.unique().tolist()) <= {0.0, 1.0}
    b = ttt.PoissonBinomial(doubles(7, seed=2))
    counts = b.sample((20000,))
    assert float((counts.mean() - b.mean).abs()) < 0.06
    assert float((counts.var() - b.variance).abs()) < 0.06


def test_the_poisson_binomial_law():
    x = doubles(6).requires_grad_()
    d = ttt.PoissonBinomial(x)
    states = configurations(6)
    probs = torch.where(states == 1, torch.sigmoid(x), torch.sigmoid(-x)).prod(-1)
    pmf = torch.stack([probs[states.sum(-1) == c].sum() for c in range(7)])
    torch.testing.assert_close(d.log_prob(torch.arange(7)).exp(), pmf, rtol=1e-10, atol=1e-13)
    torch.testing.assert_close(d.log_prob(torch.tensor(2)), pmf[2].log(), rtol=1e-10, atol=1e-13)
    torch.testing.assert_close(
        d.cdf(torch.tensor([-1.0, 2.5, 6.0, 9.0])),
        torch.stack([pmf[:0].sum(), pmf[:3].sum(), pmf.sum(), pmf.sum()]),
        rtol=1e-10,
        atol=1e-12,
    )
    torch.testing.assert_close(d.entropy(), -(pmf * pmf.log()).sum(), rtol=1e-10, atol=1e-12)
    assert torch.isneginf(d.log_prob(torch.tensor([-1, 7]))).all()
    assert d.enumerate_support().tolist() == list(range(7))
    with pytest.raises(tt.ParameterError, match="exactly one of `logits` and `probs`; neither"):
        ttt.PoissonBinomial()
    half = ttt.PoissonBinomial(probs=torch.full((3,), 0.5))
    torch.testing.assert_close(half.log_prob(torch.tensor(1)).exp(), torch.tensor(0.375))


def test_the_layer_draws_exactly_k_with_the_gradient_of_the_marginals():
    scores = doubles(4, 10).requires_grad_()
    layer = ttt.KSubset(3, n_samples=5)
    out = layer(scores, generator=torch.Generator().manual_seed(0))
    assert out.shape == (5, 4, 10)
    torch.testing.assert_close(out.sum(-1), torch.full((5, 4), 3.0).double())
    weights = doubles(10, seed=4)
    (by_layer,) = torch.autograd.grad((out[0] * weights).sum(), scores, retain_graph=True)
    (exact,) = torch.autograd.grad((ttt.marginals(scores, tt.exactly(3)) * weights).sum(), scores)
    torch.testing.assert_close(by_layer, exact, rtol=1e-9, atol=1e-12)
    best = layer.eval()(scores)
    assert torch.equal(best, torch.zeros_like(best).scatter(-1, scores.topk(3).indices, 1.0))
    mask = torch.ones(4, 10, dtype=torch.bool)
    mask[:, ::2] = False
    ragged = ttt.KSubset(torch.tensor([1, 2, 3, 4]))
    assert ragged(scores, mask=mask).detach().sum(-1).tolist() == [1, 2, 3, 4]
    assert float(ragged(scores, mask=mask).detach()[:, ::2].abs().max()) == 0.0
    stored = io.BytesIO()
    torch.save(ragged, stored)
    stored.seek(0)
    again = torch.load(stored, weights_only=False)
    assert torch.equal(again.k, ragged.k)


def bag_probability(p, count):
    """P(sum = count) by enumeration."""
    states = configurations(len(p))
    return torch.where(states == 1, p, 1 - p).prod(-1)[states.sum(-1) == count].sum()


def test_losses_are_log_probabilities_of_bags():
    x = doubles(9)
    bags = torch.tensor([0, 1, 0, 2, 1, 1, 0, 2, 1])
    inside = [torch.sigmoid(x[bags == b]) for b in range(3)]
    counts = torch.tensor([1, 3, 0])
    expected = torch.stack([-bag_probability(p, int(c)).log() for p, c in zip(inside, counts)])
    found = ttt.losses.bag_nll(x, bags, counts, reduction="none")
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    order = torch.argsort(bags, stable=True)
    by_offsets = ttt.losses.bag_nll(x[order], torch.tensor([0, 3, 7]), counts, offsets=True, reduction="none")
    torch.testing.assert_close(by_offsets, expected, rtol=1e-10, atol=1e-12)
    shares = counts / torch.tensor([3, 4, 2])
    torch.testing.assert_close(
        ttt.losses.proportion_nll(x, bags, shares), expected.mean(), rtol=1e-10, atol=1e-12
    )
    near = ttt.losses.proportion_nll(x, bags, shares, tolerance=0.34, reduction="none")
    first = sum(bag_probability(inside[0], c) for c in (0, 1, 2))
    torch.testing.assert_close(near[0], -first.log(), rtol=1e-10, atol=1e-12)
    none = torch.stack([(1 - p).prod() for p in inside])
    labels = torch.tensor([1, 0, 1])
    torch.testing.assert_close(
        ttt.losses.mil_nll(x, bags, labels, reduction="none"),
        -torch.where(labels == 1, 1 - none, none).log(),
        rtol=1e-10,
        atol=1e-12,
    )
    known = torch.tensor([True, False, False, True, False, False, False, False, False])
    hidden = torch.sigmoid(x[~known])
    binomial = [math.comb(7, c) * 0.3**c * 0.7 ** (7 - c) for c in range(8)]
    cross = -sum(w * bag_probability(hidden, c).log() for c, w in enumerate(binomial)) / 7
    own = -torch.sigmoid(x[known]).log().mean()
    torch.testing.assert_close(
        ttt.losses.positive_unlabelled_nll(x, known, 0.3), own + cross, rtol=1e-9, atol=1e-12
    )


def test_a_bag_of_probability_1e_300_has_a_right_gradient():
    n, theta = 60, -11.9
    x = torch.full((n,), theta, dtype=torch.float64, requires_grad=True)
    loss = ttt.losses.bag_nll(x, torch.zeros(n, dtype=torch.long), torch.tensor([58]))
    p = 1 / (1 + math.exp(-theta))
    exact = -(math.log(math.comb(n, 58)) + 58 * math.log(p) + 2 * math.log1p(-p))
    assert exact > 300 * math.log(10) - 20
    assert float(loss.detach()) == pytest.approx(exact, rel=1e-12)
    loss.backward()
    np.testing.assert_allclose(x.grad, np.full(n, p - 58 / n), rtol=1e-10)


def test_ragged_and_empty_bags():
    x = doubles(5).requires_grad_()
    loss = ttt.losses.bag_nll(x, torch.tensor([0, 0, 3, 3, 3]), torch.tensor([1, 0, 0, 2]), reduction="none")
    assert loss[1] == loss[2] == 0.0
    loss.sum().backward()
    assert bool(torch.isfinite(x.grad).all())
    with pytest.raises(tt.ParameterError, match="size of the bag"):
        ttt.losses.bag_nll(x, torch.tensor([0, 0, 3, 3, 3]), torch.tensor([1, 1, 0, 2]))
    with pytest.raises(tt.ParameterError, match="numbers from 0"):
        ttt.losses.bag_nll(x, torch.tensor([0, 0, 9, 3, 3]), torch.tensor([1, 0]))
    with pytest.raises(tt.ParameterError, match="start of every bag"):
        ttt.losses.bag_nll(x, torch.tensor([1, 2]), torch.tensor([1, 0]), offsets=True)


LOADER = """
import sys
import torch
from torch.utils.data import DataLoader, Dataset
import tallytree as tt
import tallytree.torch as ttt


class Rows(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return ttt.marginals(torch.linspace(-1.0, 1.0, 6, dtype=torch.float64) * i, tt.exactly(2))


if __name__ == "__main__":
    loader = DataLoader(Rows(), batch_size=2, num_workers=1, multiprocessing_context=sys.argv[1])
    expected = torch.stack([Rows()[i] for i in range(4)])
    torch.testing.assert_close(torch.cat(list(loader)), expected, rtol=1e-12, atol=1e-14)
    print("same")
"""


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_of_a_data_loader(context, tmp_path):
    # In a process of its own: other frameworks loaded beside this one may not survive a fork.
    script = tmp_path / "loader.py"
    script.write_text(LOADER)
    done = subprocess.run([sys.executable, str(script), context], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "same", done.stderr


@pytest.mark.filterwarnings("ignore")
def test_pyro_learns_and_samples_through_counts():
    pyro = pytest.importorskip("pyro", reason="this test needs Pyro: pip install pyro-ppl")
    from pyro.distributions import Normal
    from pyro.distributions.torch_distribution import TorchDistributionMixin
    from pyro.infer import MCMC, NUTS, SVI, Trace_ELBO
    from pyro.infer.autoguide import AutoNormal

    class Subsets(ttt.ConditionalBernoulli, TorchDistributionMixin):
        pass

    class Successes(ttt.PoissonBinomial, TorchDistributionMixin):
        pass

    data = torch.tensor([[1.0, 1.0, 0.0, 0.0]]).expand(30, 4)

    def model():
        logits = pyro.sample("logits", Normal(torch.zeros(4), 1.0).to_event(1))
        pyro.sample("count", Successes(logits), obs=torch.tensor(2.0))
        with pyro.plate("rows", 30):
            pyro.sample("chosen", Subsets(2, logits), obs=data)

    pyro.set_rng_seed(0)
    pyro.clear_param_store()
    guide = AutoNormal(model)
    svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.05}), Trace_ELBO())
    losses = [svi.step() for _ in range(60)]
    assert np.mean(losses[-10:]) < np.mean(losses[:10])
    mcmc = MCMC(NUTS(model, max_tree_depth=3), num_samples=10, warmup_steps=10, disable_progbar=True)
    mcmc.run()
    drawn = mcmc.get_samples()["logits"]
    assert bool(torch.isfinite(drawn).all())
    assert float(drawn[:, :2].mean() - drawn[:, 2:].mean()) > 1.0


def test_an_infinite_divergence_has_no_gradient():
    leaf = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    without_last = torch.tensor([0.0, 0.0, -math.inf], dtype=torch.float64)
    laws = [ttt.CountDistribution(x, tt.exactly(1)) for x in (leaf, without_last)]
    kl_divergence(*laws).backward()
    assert bool(torch.isnan(leaf.grad).all())


def product_law(p):
    """The law of a count as a product of polynomials, differentiable by PyTorch."""
    law = torch.ones(1, dtype=torch.float64)
    for one in p:
        law = torch.nn.functional.pad(law, (0, 1)) * (1 - one) + torch.nn.functional.pad(law, (1, 0)) * one
    return law


EDGES = [[0.0, 1.0, 0.5, 0.3], [0.0, 0.0, 0.4, 0.2], [1.0, 1.0, 0.7], [0.0, 1.0], [0.0, 0.0, 1.0, 1.0, 0.6]]


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.parametrize("p", EDGES)
def test_gradients_by_probabilities_of_zero_and_one(p):
    p = torch.tensor(p, dtype=torch.float64)
    possible = torch.nonzero(product_law(p) > 0).squeeze(-1).tolist()
    for c in possible:
        direct = lambda p, c=c: product_law(p)[c].log()  # noqa: E731
        for ours in (
            lambda p, c=c: ttt.PoissonBinomial(probs=p).log_prob(torch.tensor(c)),
            lambda p, c=c: ttt.PoissonBinomial(probs=p).count_log_probs()[c],
        ):
            for derivative in (torch.func.grad, torch.func.hessian):
                torch.testing.assert_close(derivative(ours)(p), derivative(direct)(p), rtol=1e-9, atol=1e-10)
    third = torch.func.jacrev(torch.func.hessian(direct))(p)
    torch.testing.assert_close(torch.func.jacrev(torch.func.hessian(ours))(p), third, rtol=1e-8, atol=1e-9)
    rows = torch.stack([p, p.flip(0)]).requires_grad_()
    law = ttt.PoissonBinomial(probs=rows)
    (by_mean,) = torch.autograd.grad(law.mean.sum(), rows)
    (by_variance,) = torch.autograd.grad(law.variance.sum(), rows)
    torch.testing.assert_close(by_mean, torch.ones_like(rows))
    torch.testing.assert_close(by_variance, 1 - 2 * rows.detach())
    (by_entropy,) = torch.autograd.grad(law.entropy().sum(), rows)
    expected = torch.where(rows == 0, math.inf, torch.where(rows == 1, -math.inf, by_entropy)).detach()
    torch.testing.assert_close(by_entropy, expected)
    assert bool(torch.isfinite(by_entropy[(rows > 0) & (rows < 1)]).all())
    (by_cdf,) = torch.autograd.grad(law.cdf(torch.tensor(1.0)).sum(), rows)
    sums = torch.stack([torch.func.grad(lambda q: product_law(q)[:2].sum())(row) for row in rows.detach()])
    torch.testing.assert_close(by_cdf, sums, rtol=1e-9, atol=1e-10)


def test_the_gradient_that_a_newcomer_computes_by_hand():
    p = torch.tensor([0.0, 1.0, 0.5, 0.3], requires_grad=True)
    ttt.PoissonBinomial(probs=p).log_prob(torch.tensor(2.0)).exp().backward()
    torch.testing.assert_close(p.grad, torch.tensor([-0.15, 0.35, 0.4, 0.0]))


def test_impossible_counts_have_probability_zero_on_every_path():
    never = ttt.PoissonBinomial(probs=torch.zeros(3))
    assert never.log_prob(torch.tensor(1.0)) == -math.inf
    assert never.log_prob(torch.tensor([0.0, 1.0])).tolist() == [0.0, -math.inf]
    by_logits = ttt.PoissonBinomial(torch.tensor([[math.inf, 0.0], [-math.inf, 0.0]]))
    assert by_logits.log_prob(torch.tensor([0.0, 2.0])).tolist() == [-math.inf, -math.inf]
    torch.testing.assert_close(by_logits.log_prob(torch.tensor([1.0, 1.0])).exp(), torch.tensor([0.5, 0.5]))
    strict = ttt.PoissonBinomial(probs=torch.full((2,), 0.5), validate_args=True)
    for wrong in (7.0, -1.0, 0.5):
        with pytest.raises(ValueError, match="whole numbers from 0 to 2"):
            strict.log_prob(torch.tensor(wrong))
    assert strict.expand((3,)).log_prob(torch.tensor(1.0)).shape == (3,)


def test_values_broadcast_against_batched_tables_and_mixtures_work():
    d = ttt.ConditionalBernoulli(torch.tensor([1, 2]), torch.zeros(2, 3))
    found = d.log_prob(torch.tensor([1.0, 0.0, 0.0]))
    torch.testing.assert_close(found, torch.tensor([-math.log(3.0), -math.inf]))
    weights = torch.tensor([0.25, 0.75])
    mixture = torch.distributions.MixtureSameFamily(torch.distributions.Categorical(weights), d)
    states = configurations(3).float()
    torch.testing.assert_close(
        mixture.log_prob(states).exp(), torch.stack([d.log_prob(s).exp() for s in states]) @ weights
    )
    torch.testing.assert_close(mixture.mean, weights @ d.mean)
    assert mixture.sample((5,)).shape == (5, 3)
    assert ttt.CountDistribution.support.event_dim == 1
    assert ttt.CountDistribution.support.is_discrete
    assert set(ttt.ConditionalBernoulli.arg_constraints) == {"total_count", "logits"}
