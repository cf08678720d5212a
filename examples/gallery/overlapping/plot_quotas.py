"""
Crossed quotas: a panel that everybody can trust
================================================

*A citizens' panel of 12 is drawn from 100 volunteers. It must have so many of each age, of each region, of each
sex. How many such panels are there, and how likely is each volunteer to sit on one?*

Every person counts towards three quotas, so the groups cross. :meth:`tallytree.FactorGraph.exact` counts all
panels that meet them, draws from them, each equally likely, and knows the chance of every person and of every pair.
"""

# %%
# The volunteers and the seats
# ----------------------------
# Volunteers are not like the population: the old, the north and men came in larger numbers. The seats follow the
# population. With all logits at zero every panel that meets the quotas has the same weight.

import matplotlib.pyplot as plt
import numpy as np

import tallytree as tt

rng = np.random.default_rng(8)
people, seats = 100, 12
traits = {
    "age": (rng.choice(4, people, p=[0.10, 0.20, 0.30, 0.40]), [3, 3, 3, 3]),
    "region": (rng.choice(3, people, p=[0.55, 0.30, 0.15]), [4, 4, 4]),
    "sex": (rng.choice(2, people, p=[0.6, 0.4]), [6, 6]),
}


def quotas(potential, logits=None):
    """The volunteers with one factor for every value of every trait."""
    groups = [
        tt.Group(np.flatnonzero(of == value), potential(n))
        for of, wanted in traits.values()
        for value, n in enumerate(wanted)
    ]
    return tt.FactorGraph(np.zeros(people) if logits is None else logits, groups)


panel = quotas(tt.exactly)
exact = panel.exact()
print(f"{np.exp(exact.log_partition):.3g} panels meet all quotas; width {panel.width}")
chance = exact.marginals
print(f"chance of a seat between {chance.min():.3f} and {chance.max():.3f}")
assert np.isclose(chance.sum(), seats)

# %%
# People of the same age, region and sex have the same chance, and there are at most 24 such kinds of people. A kind that
# fills a rare quota is drawn often: a lottery that is fair among panels is not fair among people.
#
# Seats one after the other
# -------------------------
# The usual way is to call people in random order and to skip those whose quota is full. It often gets stuck with
# empty seats, and what it draws does not follow a law that anybody has written down.


def in_order(rng):
    """Call people in random order; None if it ends with empty seats."""
    left = {name: list(wanted) for name, (_, wanted) in traits.items()}
    chosen = np.zeros(people, bool)
    for v in rng.permutation(people):
        if all(left[name][of[v]] > 0 for name, (of, _) in traits.items()):
            chosen[v] = True
            for name, (of, _) in traits.items():
                left[name][of[v]] -= 1
    return chosen if chosen.sum() == seats else None


tries = [in_order(rng) for _ in range(3000)]
complete = np.array([panel_ for panel_ in tries if panel_ is not None])
draws = exact.sample(len(complete), rng=1).astype(bool)
print(f"{len(complete)} of {len(tries)} tries fill all seats")
gap = np.abs(complete.mean(0) - chance).max()
noise = np.abs(draws.mean(0) - chance).max()
print(
    f"largest distance to the exact chance: {gap:.3f} in order, {noise:.3f} exact draws"
)
assert len(complete) < 0.9 * len(tries) and gap > 2 * noise
for of, wanted in traits.values():
    assert all(
        (draws[:, of == value].sum(1) == n).all() for value, n in enumerate(wanted)
    )

# %%
# What the panel says about the volunteers
# ----------------------------------------
# Suppose that an opinion goes with age. The mean of the panel estimates that of a population whose shares are the
# quotas. For the volunteers themselves everybody is weighted by one over the chance of a seat (Horvitz and
# Thompson), and this is unbiased because the chances are exact.

opinion = 0.2 + 0.2 * traits["age"][0] + 0.1 * rng.normal(size=people)
plain = (draws * opinion).sum(1) / seats
weighted = (draws * (opinion / chance)).sum(1) / people
print(
    f"volunteers {opinion.mean():.3f}, panels {plain.mean():.3f}, weighted {weighted.mean():.3f}"
)
error = weighted.std() / np.sqrt(len(draws))
assert abs(weighted.mean() - opinion.mean()) < 4 * error
assert abs(plain.mean() - opinion.mean()) > 10 * error

# %%
# Fairer chances
# --------------
# Logits give some people an advantage. Among all laws on panels that meet the quotas, those with the largest
# entropy for given chances have this form, and a few steps make the chances more alike: those with a large chance
# are handicapped. As long as the quotas are exact they leave almost no room; a range of one seat more or less does.


def fairer(potential, steps=20):
    """Chances of seats after steps towards equal ones, and the law that has them."""
    logits = np.zeros(people)
    for _ in range(steps):
        law = quotas(potential, logits).exact()
        p = np.clip(law.marginals, 1e-9, 1 - 1e-9)
        logits -= 0.5 * (np.log(p / (1 - p)) - np.log(seats / (people - seats)))
    return quotas(potential, logits).exact()


fair = fairer(tt.exactly)
loose = fairer(lambda n: tt.between(n - 1, n + 1))
for name, law in (
    ("equal panels", exact),
    ("fairer", fair),
    ("one seat more or less", loose),
):
    print(f"{name:<22} chances differ by {law.marginals.std():.4f}")
assert exact.marginals.std() > fair.marginals.std() > loose.marginals.std()

# %%
# Do two people sit on the panel together?
# ----------------------------------------
# Quotas make people of the same kind rivals and others allies. ``pairwise`` is exact, too.

first = int(np.argmax(chance))
together = exact.pairwise(first) / (chance[first] * chance)
together[first] = np.nan
print(
    f"with person {first}: {np.nanmin(together):.2f} to {np.nanmax(together):.2f} times as often as by chance"
)
assert np.nanmin(together) < 1 < np.nanmax(together)

axes = [plt.figure(figsize=(6, 3.8)).add_subplot() for _ in range(3)]
order = np.argsort(chance)
axes[0].plot(
    complete.mean(0)[order], ".", color="#c66b3d", ms=4, label="in random order"
)
axes[0].plot(chance[order], color="#1f3b63", label="exact, all panels alike")
axes[0].plot(np.sort(fair.marginals), color="#3b6fb6", ls="--", label="fairer logits")
axes[0].plot(
    np.sort(loose.marginals), color="#7aa974", ls=":", label="and ranges of seats"
)
axes[0].axhline(seats / people, color="0.6", lw=0.8)
axes[0].set(
    xlabel="volunteers, sorted", ylabel="chance of a seat", title="Who gets a seat"
)
axes[0].legend(frameon=False, fontsize=8)
bins = np.linspace(0.35, 0.85, 60)
axes[1].hist(plain, bins, color="#c66b3d", alpha=0.7, label="mean of the panel")
axes[1].hist(weighted, bins, color="#3b6fb6", alpha=0.7, label="weighted by 1 / chance")
axes[1].axvline(opinion.mean(), color="black", lw=1, label="all volunteers")
axes[1].set(xlabel="estimate", ylabel="panels", title="Estimates from a panel")
axes[1].legend(frameon=False, fontsize=8)
sex, age = traits["sex"][0], traits["age"][0]
dots = axes[2].scatter(
    age + 0.25 * (sex - 0.5) + 0.05 * rng.normal(size=people),
    together,
    c=sex,
    cmap="coolwarm",
    s=14,
)
axes[2].axhline(1, color="0.6", lw=0.8)
axes[2].set(
    xlabel="age class (colour: sex)",
    ylabel="times chance",
    title=f"On the panel with person {first} (age {age[first]})",
    xticks=range(4),
)
plt.show()
