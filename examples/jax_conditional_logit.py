"""Conditional logit with random effects by NUTS: matched sets from centres that differ in one effect.

Each matched set has a known number of cases, so its likelihood is that of a random subset of that size and the
intercepts of the sets drop out. The effect of the second covariate varies between centres:

    y_set | cases ~ ConditionalBernoulli(cases, x_set @ (beta + [0, effect of the centre]))

Run with ``python examples/jax_conditional_logit.py``; it needs ``pip install tallytree[numpyro]``.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import distributions as dist

import tallytree as tt
from tallytree.jax.numpyro import ConditionalBernoulli

SETS, SIZE, CENTRES = 240, 5, 8
TRUTH, SPREAD = np.array([0.8, -0.5]), 0.6


def simulate(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Covariates (sets, size, 2), centres, numbers of cases and who the cases are."""
    x = rng.normal(size=(SETS, SIZE, 2))
    centre = rng.integers(0, CENTRES, SETS)
    slopes = TRUTH + np.stack([np.zeros(CENTRES), SPREAD * rng.normal(size=CENTRES)], 1)
    cases = rng.integers(1, 3, SETS)
    logits = np.einsum("sip,sp->si", x, slopes[centre])
    one_hot = np.where(np.arange(SIZE + 1) == cases[:, None], 0.0, -np.inf)
    y = tt.CountModel(logits, one_hot).sample(rng=rng)
    return x, centre, cases, np.asarray(y).reshape(SETS, SIZE)


def model(x: jax.Array, centre: jax.Array, cases: jax.Array, y: jax.Array | None = None) -> None:
    """Common coefficients, and one deviation per centre."""
    beta = numpyro.sample("beta", dist.Normal(0.0, 3.0).expand([2]).to_event(1))
    spread = numpyro.sample("spread", dist.HalfNormal(1.0))
    with numpyro.plate("centres", CENTRES):
        deviation = numpyro.sample("deviation", dist.Normal(0.0, 1.0))
    slope = beta[1] + spread * deviation[centre]
    logits = beta[0] * x[..., 0] + slope[:, None] * x[..., 1]
    with numpyro.plate("sets", len(x)):
        numpyro.sample("y", ConditionalBernoulli(cases, logits), obs=y)


def main() -> None:
    x, centre, cases, y = simulate(np.random.default_rng(0))
    kernel = numpyro.infer.NUTS(model)
    run = numpyro.infer.MCMC(kernel, num_warmup=200, num_samples=300, progress_bar=False)
    data = (jnp.asarray(x, jnp.float32), jnp.asarray(centre), jnp.asarray(cases), jnp.asarray(y, jnp.float32))
    run.run(jax.random.key(0), *data)
    draws = run.get_samples()
    for name, truth in (("beta", TRUTH), ("spread", SPREAD)):
        values = np.asarray(draws[name])
        print(
            f"{name:7s} truth {truth}  posterior mean {values.mean(0).round(2)}  sd {values.std(0).round(2)}"
        )


if __name__ == "__main__":
    main()
