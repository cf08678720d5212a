"""
Only totals are known
=====================

*Votes are secret: a district publishes how many voted yes, and a register says who was asked. How does the vote
depend on the person?*

Averages per district are what is regressed in practice, and they answer another question (the ecological fallacy): the
logistic curve bends, so that the average of probabilities is not the probability at the average. The likelihood of the
totals themselves is a Poisson-binomial law per district. It is exact, differentiable, and NumPyro samples its posterior
with NUTS. Given the total of a district, who voted yes is a random subset of known size, exactly again.
"""

# %%
# A poll
# ------
# 60 districts of 12 to 48 people, padded to rectangles. Age and income differ far more within districts than between.

import time

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
from numpyro import distributions as dist
from numpyro.infer import MCMC, NUTS

from tallytree.jax.numpyro import ConditionalBernoulli, PoissonBinomial

rng = np.random.default_rng(5)
districts, largest = 60, 48
size = rng.integers(12, largest + 1, districts)
mask = np.arange(largest) < size[:, None]  # True: a person, False: padding
centre = rng.normal(scale=0.7, size=(districts, 1, 2))
person = np.concatenate(
    [
        np.ones((districts, largest, 1)),
        centre + rng.normal(scale=1.5, size=(districts, largest, 2)),
    ],
    -1,
)
truth = np.array([-0.5, 1.6, -2.2])  # intercept, age, income
voted = (rng.random(mask.shape) < 1 / (1 + np.exp(-person @ truth))) & mask
total = voted.sum(-1)  # all that is published
print(f"{mask.sum()} people, {districts} numbers")

# %%
# The model, in five lines
# ------------------------


def exact(person, mask, total=None):
    beta = numpyro.sample("beta", dist.Normal(0.0, 3.0).expand([3]).to_event(1))
    with numpyro.plate("districts", len(person)):
        numpyro.sample("total", PoissonBinomial(person @ beta, mask=mask), obs=total)


def averages(person, mask, total=None):
    """What is done today: every person is the average person of the district."""
    beta = numpyro.sample("beta", dist.Normal(0.0, 3.0).expand([3]).to_event(1))
    mean = (person * mask[..., None]).sum(1) / mask.sum(1)[:, None]
    with numpyro.plate("districts", len(person)):
        law = dist.Binomial(total_count=mask.sum(1), logits=mean @ beta)
        numpyro.sample("total", law, obs=total)


def posterior(model):
    start = time.perf_counter()
    chain = MCMC(NUTS(model), num_warmup=300, num_samples=500, progress_bar=False)
    chain.run(jax.random.key(0), person, mask, total)
    beta = np.asarray(chain.get_samples()["beta"])
    print(
        f"{model.__name__:9s} {beta.mean(0).round(2)} +- {beta.std(0).round(2)}  ({time.perf_counter() - start:.0f} s)"
    )
    return beta


beta = {model.__name__: posterior(model) for model in (exact, averages)}
print(f"{'truth':9s} {truth}")

# %%
# Who voted yes?
# --------------
# Given the total and the coefficients, the votes of a district are a subset of known size. Its marginals, averaged over
# the posterior, are the probabilities of the individuals; they add up to the published totals.

chance = np.asarray(
    jnp.mean(
        jax.lax.map(
            lambda b: ConditionalBernoulli(total, person @ b, mask=mask).mean,
            jnp.asarray(beta["exact"][::5]),
        ),
        0,
    )
)
print(f"largest gap to a total: {np.abs(chance.sum(-1) - total).max():.1e}")
edges = np.quantile(chance[mask], np.linspace(0, 1, 9))
place = np.clip(np.searchsorted(edges, chance[mask]) - 1, 0, 7)
said = np.array([chance[mask][place == i].mean() for i in range(8)])
happened = np.array([voted[mask][place == i].mean() for i in range(8)])
people = np.bincount(place, minlength=8)

left, right = (plt.figure(figsize=(6, 3.8)).add_subplot() for _ in range(2))
for name, draws in beta.items():
    left.plot(
        draws[:, 1], draws[:, 2], ".", ms=3, alpha=0.4, label=f"posterior: {name}"
    )
left.plot(*truth[1:], "k+", ms=16, mew=2, label="truth")
left.set(xlabel="effect of age", ylabel="effect of income")
left.legend()
noise = 2 * np.sqrt(said * (1 - said) / people)
right.errorbar(said, happened, noise, fmt="o")
right.plot([0, 1], [0, 1], color="0.6", lw=0.8)
right.set(xlabel="P(a person voted yes | the totals)", ylabel="share that did")
plt.show()

low, high = np.quantile(beta["exact"], [0.005, 0.995], axis=0)
assert ((low < truth) & (truth < high)).all()
gap = np.abs(beta["averages"].mean(0) - truth) / beta["averages"].std(0)
assert gap[1:].min() > 3.0  # and it is sure of itself
assert np.abs(chance.sum(-1) - total).max() < 1e-3
assert (np.abs(said - happened) < 2 * noise + 0.01).all()

# %%
# **Claim, computed above:** from totals alone the exact likelihood recovers the effects on individuals, with intervals
# that hold the truth, where a regression on averages is off by more than three of its own standard deviations; the
# votes of individuals are predicted with probabilities that come true, and add up to the totals.
