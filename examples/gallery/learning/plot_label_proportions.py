"""
Learning from label proportions, with the right loss
====================================================

*Only the number of positives in each bag is known. What should the loss be, and what does a common mistake
do?*

The likelihood of a bag is the Poisson-binomial probability of its count. Two other losses are in use:
matching the mean proportion, and, by mistake in a published implementation, P(at most k) in place of
P(exactly k). :func:`tallytree.torch.losses.bag_nll` is the right one, for bags of any size.
"""

# %%
# Bags
# ----
# The Wisconsin breast cancer data (569 patients, 30 measurements; ships with scikit-learn). Patients are put
# into bags whose proportions vary; only counts are shown to the learner.

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import tallytree.torch as ttt

torch.manual_seed(0)
torch.set_num_threads(1)
source = load_breast_cancer()
x_all = StandardScaler().fit_transform(source.data)
y_all = 1 - source.target  # 1: malignant


def bags_of(size, rng):
    """Training rows in bags with different proportions, and the test rows."""
    order = rng.permutation(len(y_all))
    test, train = order[:169], order[169:]
    noisy = y_all[train] + rng.normal(0, 1.0, len(train))
    lean = train[np.argsort(noisy)]  # neighbours resemble each other, a little
    n_bags = len(lean) // size
    kept = lean[: n_bags * size]
    return kept, np.repeat(np.arange(n_bags), size), test


def at_most_loss(logits, bags, counts):
    """The mistake: P(X <= k) where P(X = k) was meant."""
    rows = logits.reshape(len(counts), -1)
    cumulated = torch.logcumsumexp(ttt.count_log_probs(rows), -1)
    return -cumulated.gather(-1, counts[:, None]).mean()


def mean_loss(logits, bags, counts):
    """Cross-entropy between the given and the mean predicted proportion."""
    share = (
        torch.sigmoid(logits.reshape(len(counts), -1)).mean(-1).clamp(1e-6, 1 - 1e-6)
    )
    wanted = counts / (len(logits) / len(counts))
    return -(wanted * share.log() + (1 - wanted) * (1 - share).log()).mean()


LOSSES = {
    "exact count": ttt.losses.bag_nll,
    "mean proportion": mean_loss,
    "P(at most k), the mistake": at_most_loss,
}


def train(loss, kept, bags):
    """A linear model by L-BFGS with a small penalty."""
    x, bag = torch.tensor(x_all[kept]), torch.tensor(bags)
    counts = torch.tensor(np.bincount(bags, y_all[kept]).astype(int))
    w = torch.zeros(x.shape[1] + 1, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([w], max_iter=80, line_search_fn="strong_wolfe")

    def closure():
        optimiser.zero_grad()
        value = loss(x @ w[:-1] + w[-1], bag, counts) + 0.01 * (w[:-1] ** 2).sum()
        value.backward()
        return value

    optimiser.step(closure)
    return w.detach().numpy()


# %%
# Accuracy on single patients
# ---------------------------

sizes, repeats = (4, 10, 25, 50), 4
scores = {name: np.zeros((len(sizes), repeats)) for name in LOSSES}
positives = {name: np.zeros((len(sizes), repeats)) for name in LOSSES}
ceiling = []
for i, size in enumerate(sizes):
    for repeat in range(repeats):
        kept, bags, test = bags_of(size, np.random.default_rng(100 * size + repeat))
        for name, loss in LOSSES.items():
            w = train(loss, kept, bags)
            said = x_all[test] @ w[:-1] + w[-1] > 0
            scores[name][i, repeat] = np.mean(said == y_all[test])
            positives[name][i, repeat] = said.mean() / y_all[test].mean()
        ceiling.append(
            LogisticRegression(C=1.0)
            .fit(x_all[kept], y_all[kept])
            .score(x_all[test], y_all[test])
        )

for name in LOSSES:
    print(
        f"{name:<26}",
        "  ".join(f"bags of {s}: {v:.3f}" for s, v in zip(sizes, scores[name].mean(1))),
    )
print(f"with all labels            {np.mean(ceiling):.3f}")
called = {name: values.mean() for name, values in positives.items()}
print(
    "positives found per true positive:",
    {name: round(float(value), 2) for name, value in called.items()},
)

# %%
# The number itself
# -----------------
# Six of eight: the probability and the mistake, for eight fair coins and for eight coins that mostly come up
# heads.

left, right = (plt.figure(figsize=(6, 3.8)).add_subplot() for _ in range(2))
for (name, values), style in zip(scores.items(), ("o-", "s--", "^:")):
    left.errorbar(
        sizes, values.mean(1), values.std(1), fmt=style, capsize=3, label=name
    )
left.axhline(np.mean(ceiling), color="0.5", lw=1, label="all labels known")
left.set(
    xscale="log", xlabel="bag size", ylabel="accuracy on patients", ylim=(0.4, 1.03)
)
left.set_xticks(sizes, [str(s) for s in sizes])
left.minorticks_off()
left.legend(loc="lower left")
logits = torch.linspace(-3, 3, 121, dtype=torch.float64)
law = ttt.count_log_probs(logits[:, None].expand(-1, 8))
right.plot(logits, -law[:, 6], label="right: -log P(X = 6)")
right.plot(
    logits,
    -torch.logcumsumexp(law, -1)[:, 6],
    ":",
    color="#4f9d5d",
    lw=2,
    label="mistake: -log P(X <= 6)",
)
right.set(xlabel="common log-odds of 8 items", ylabel="loss of a bag with 6 positives")
right.legend()
plt.show()
best = float(logits[law[:, 6].argmax()])
print(
    f"the right loss is smallest at log-odds {best:.2f} (6 of 8: {np.log(6 / 2):.2f}); the mistake falls for ever towards 'all negative'"
)
assert scores["exact count"].mean() > scores["P(at most k), the mistake"].mean() + 0.05
assert scores["exact count"].mean() > np.mean(ceiling) - 0.02
assert called["P(at most k), the mistake"] < 0.2 < 0.8 < called["exact count"]

# %%
# **Claim, computed above:** the exact loss stays within 0.02 of full supervision; the mistake teaches
# "negative" (it finds less than a fifth of the positives), because P(at most k) is largest when nothing is on. The estimator
# :class:`tallytree.estimators.LabelProportions` has the right loss for linear models, without torch.
