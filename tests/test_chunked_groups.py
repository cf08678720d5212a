"""Two levels over chunks: a potential per group and one on the total, groups sorted or scattered."""

from __future__ import annotations

import gc
import shutil

import numpy as np
import pytest
from scipy import stats

import tallytree as tt
from tallytree.chunked.groups import Tree
from tallytree.engine import law as laws_of_counts
from tallytree.engine.law import law, log_convolve

RNG = np.random.default_rng(21)


def whole(answer):
    return answer if isinstance(answer, np.ndarray) else np.concatenate(list(answer))


def in_memory(logits, ids, own, total):
    potentials = own if isinstance(own, dict) else dict.fromkeys(np.unique(ids).tolist(), own)
    groups = [tt.Group(np.flatnonzero(ids == name), potential) for name, potential in potentials.items()]
    return tt.CountModel(logits, groups + ([] if total is None else [tt.Group(None, total)]))


@pytest.mark.parametrize("cuts", [(0, 3), (3, 3), (2, 5), (5, 5)])
def test_empty_chunks_have_no_groups(cuts):
    logits, ids = np.linspace(-1.0, 1.0, 5), np.array(list("caacb"), object)
    pieces = np.split(logits, cuts)
    model = tt.ChunkedCountModel(pieces, tt.exactly(2), groups=ids, group_potential=tt.at_most(1))
    want = in_memory(logits, ids, tt.at_most(1), tt.exactly(2))
    np.testing.assert_allclose(whole(model.marginals()), want.marginals, rtol=1e-12)


@pytest.mark.parametrize("layout", ["sorted", "scattered", "text", "falling"])
def test_small_models_agree_with_the_model_in_memory(layout):
    for trial in range(24):
        n, k = int(RNG.integers(1, 60)), int(RNG.integers(0, 30))
        logits = RNG.normal(size=n) * 2
        if trial % 3 == 0:
            logits[RNG.random(n) < 0.1] = np.inf
            logits[RNG.random(n) < 0.1] = -np.inf
        ids = RNG.integers(0, int(RNG.integers(1, 9)), n)
        ids = {"sorted": np.sort(ids), "falling": np.sort(ids)[::-1].copy(), "scattered": ids,
               "text": np.array([f"hall {i}" for i in ids])}[layout]  # fmt: skip
        own = [tt.at_most(3), tt.parity("even"), tt.gaussian(2.0, 1.0), tt.noisy_or(0.3)][trial % 4]
        k = min(k, n)
        total = [tt.exactly(k), tt.gaussian(k, 2.0), None, tt.at_least(k), tt.one_of([0, k, n])][trial % 5]
        known = {int(RNG.integers(n)): int(RNG.integers(2))} if trial % 4 == 1 else {}
        exact = in_memory(logits, ids, own, total).condition(known)
        model = tt.ChunkedCountModel(
            logits,
            total,
            groups=ids,
            group_potential=own,
            evidence=known,
            chunk_size=int(RNG.integers(3, 20)),
        )
        try:
            log_z = exact.log_partition
        except tt.InfeasibleError:
            with pytest.raises(tt.InfeasibleError):
                _ = model.log_partition
            continue
        assert model.log_partition == pytest.approx(log_z, rel=1e-10, abs=1e-10)
        found, wanted = whole(model.posterior_logits()), exact.posterior_logits
        same = found == wanted
        with np.errstate(invalid="ignore"):
            assert np.all(same | (np.abs(found - wanted) < 1e-9))
        window = model.count_log_probs()
        here = np.exp(exact.count_log_probs()[window.first : window.first + len(window.log_probs)])
        assert np.allclose(np.exp(window.log_probs), here, atol=1e-11)
        drawn = whole(model.sample(rng=trial))
        assert model.log_prob(drawn) == pytest.approx(exact.log_prob(drawn), abs=1e-9)
        assert model.error_bound < 1e-8


@pytest.mark.parametrize("scattered", [False, True])
def test_a_total_far_from_the_prior_is_found_by_a_tilt(scattered, monkeypatch, tmp_path):
    monkeypatch.setattr("tallytree.engine.law.SHORT", 64)  # windows are cut as in a long model
    n = 40_000
    logits = RNG.normal(size=n)
    ids = np.repeat(np.arange(n // 40), 40)
    if scattered:
        ids = RNG.permutation(ids)
    np.save(tmp_path / "x.npy", logits)
    np.save(tmp_path / "ids.npy", ids)
    exact = in_memory(logits, ids, tt.at_most(15), tt.exactly(6_000))
    model = tt.ChunkedCountModel(
        tmp_path / "x.npy", tt.exactly(6_000), groups=tmp_path / "ids.npy", group_potential=tt.at_most(15),
        chunk_size=3_000, scratch=tmp_path,
    )  # fmt: skip
    assert model.log_partition == pytest.approx(exact.log_partition, rel=1e-10)
    model.posterior_logits(out=tmp_path / "out.npy")
    assert np.abs(np.load(tmp_path / "out.npy") - exact.posterior_logits).max() < 1e-9
    drawn = whole(model.sample(rng=0))
    assert drawn.sum() == 6_000
    assert np.bincount(ids, drawn).max() <= 15
    assert model.error_bound < 1e-8


def test_every_group_may_have_its_own_potential_or_none():
    logits, ids = RNG.normal(size=200), RNG.integers(0, 10, 200)
    own = {3: tt.exactly(2), 7: tt.at_least(5)}
    exact = in_memory(logits, ids, own, tt.at_most(90))
    model = tt.ChunkedCountModel(logits, tt.at_most(90), groups=ids, group_potential=own, chunk_size=17)
    assert np.allclose(whole(model.marginals()), exact.marginals, atol=1e-11)
    with pytest.raises(tt.ParameterError, match="names the group 11"):
        _ = tt.ChunkedCountModel(logits, groups=ids, group_potential={11: tt.exactly(1)}).log_partition


def test_ids_come_from_a_column_of_the_same_file(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    logits, ids = RNG.normal(size=300), np.sort(RNG.integers(0, 20, 300))
    columns = {"logit": logits, "hall": [f"h{i:02d}" for i in ids]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "x.parquet", row_group_size=70)
    model = tt.ChunkedCountModel(
        tmp_path / "x.parquet", tt.exactly(40), groups="hall", group_potential=tt.at_most(4)
    )
    model.marginals(out=tmp_path / "out.parquet")
    found = parquet.read_table(tmp_path / "out.parquet").column(0).to_numpy()
    assert np.allclose(found, in_memory(logits, ids, tt.at_most(4), tt.exactly(40)).marginals, atol=1e-11)


@pytest.mark.parametrize("scattered", [False, True])
def test_a_draw_follows_the_law(scattered):
    logits = np.array([0.5, -1.0, 1.0, 0.0, -0.5, 0.7])
    ids = np.array([0, 1, 0, 2, 1, 2]) if scattered else np.array([0, 0, 1, 1, 2, 2])
    exact = in_memory(logits, ids, tt.at_most(1), tt.exactly(2))
    states = np.array([[i >> b & 1 for b in range(6)] for i in range(64)])
    p = np.exp(exact.log_prob(states))
    model = tt.ChunkedCountModel(
        logits, tt.exactly(2), groups=ids, group_potential=tt.at_most(1), chunk_size=2, workers=1
    )
    codes = [int(whole(model.sample(rng=i)) @ (1 << np.arange(6))) for i in range(300)]
    seen = np.bincount(codes, minlength=64)
    assert seen[p == 0].sum() == 0
    assert stats.chisquare(seen[p > 0], 300 * p[p > 0]).pvalue > 1e-4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groups": np.zeros(5, int)}, "`group_potential` must say"),
        ({"groups": np.zeros(5), "group_potential": tt.exactly(1)}, "integers or text"),
        (
            {"groups": np.zeros(4, int), "group_potential": tt.exactly(1)},
            "as many entries as `source`, 5; 4 arrived",
        ),
    ],
)
def test_groups_are_checked(options, message):
    with pytest.raises(tt.ParameterError, match=message):
        _ = tt.ChunkedCountModel(np.zeros(5), **options).log_partition


def _frame(values, dtype=None):
    return pytest.importorskip("pandas").Series(values, dtype=dtype)


def _categorical(values):
    return pytest.importorskip("pandas").Categorical(values)


def _dask(values):
    return pytest.importorskip("dask.array").from_array(np.array(values, object), chunks=2)


def _parquet(values, folder):
    pytest.importorskip("pyarrow.parquet").write_table(
        pytest.importorskip("pyarrow").table({"g": values}), folder / "g.parquet", row_group_size=2
    )
    return folder / "g.parquet"


ABSENT = {
    "list of text": lambda folder: ["a", None, "a", "nan"],
    "list with nan": lambda folder: ["a", np.nan, "a", "nan"],
    "numbers in a list": lambda folder: [1, None, 1, 2],
    "objects": lambda folder: np.array([1, 1, float("nan"), 2], object),
    "floats": lambda folder: np.array([1.0, np.nan, 1.0, 2.0]),
    "text of pandas": lambda folder: _frame([None, "a", "a", "nan"]),
    "nullable text": lambda folder: _frame(["a", None, "a", "nan"], "string"),
    "nullable integers": lambda folder: _frame([1, None, 1, 2], "Int64"),
    "categories": lambda folder: _categorical(["a", None, "a", "nan"]),
    "numbers as categories": lambda folder: _categorical([1, None, 1, 2]),
    "time": lambda folder: np.array(["2020-01-01", "NaT", "2020-01-01", "2021-01-01"], "M8[D]").astype(
        object
    ),
    "chunks": lambda folder: [np.array(["a", "a"], object), np.array(["b", None], object)],
    "lists as chunks": lambda folder: [["a", "a"], ["b", None]],
    "dask": lambda folder: _dask(["a", "a", None, "nan"]),
    "parquet": lambda folder: _parquet(["a", None, "a", "nan"], folder),
    "masked": lambda folder: np.ma.masked_array([1, 1, 2, 2], mask=[0, 1, 0, 0]),
}


@pytest.mark.parametrize("make", ABSENT.values(), ids=ABSENT.keys())
def test_missing_ids_are_refused_wherever_they_come_from(make, tmp_path):
    with pytest.raises((tt.ParameterError, tt.SourceError), match=r"missing|empty cells|masked"):
        _ = tt.ChunkedCountModel(
            [np.zeros(2), np.zeros(2)], groups=make(tmp_path), group_potential=tt.exactly(1)
        ).log_partition


@pytest.mark.parametrize(
    "ids",
    [
        [1, "1", 1, "1"],
        np.array([1, "1", 1, "1"], object),
        np.array([b"a", "a", b"a", "a"], object),
        [True, 1, True, 1],
        [["a", "a"], [b"a", b"a"]],
        [[1, 1], ["1", "1"]],
        [np.array(["1", "1"], object), np.array([1, 1], object)],
    ],
    ids=repr,
)
def test_ids_of_different_kinds_are_not_merged(ids):
    with pytest.raises(tt.ParameterError, match="of one kind"):
        _ = tt.ChunkedCountModel(
            [np.zeros(2), np.zeros(2)], groups=ids, group_potential=tt.exactly(1)
        ).log_partition


SAME = {
    "list": lambda folder: [7, 8, 7, 8],
    "text": lambda folder: ["7", "8", "7", "8"],
    "bytes": lambda folder: [b"7", b"8", b"7", b"8"],
    "chunks of text": lambda folder: [np.array(["7", "80"]), ["7", "80"]],
    "integers of pandas": lambda folder: _frame([7, 8, 7, 8], "Int64"),
    "text of pandas": lambda folder: _frame(["7", "8", "7", "8"], "string"),
    "categories": lambda folder: _categorical(["7", "8", "7", "8"]),
    "large": lambda folder: [2**53, 2**53 + 1, 2**53, 2**53 + 1],
    "parquet": lambda folder: _parquet(["7", "8", "7", "8"], folder),
    "dictionary in parquet": lambda folder: _parquet(
        pytest.importorskip("pyarrow").array(["7", "8", "7", "8"]).dictionary_encode(), folder
    ),
}  # fmt: skip


@pytest.mark.parametrize("make", SAME.values(), ids=SAME.keys())
def test_ids_of_every_kind_form_the_same_groups(make, tmp_path):
    model = tt.ChunkedCountModel(
        [np.zeros(2), np.zeros(2)], groups=make(tmp_path), group_potential=tt.exactly(1)
    )
    assert model.log_partition == pytest.approx(np.log(4.0), abs=1e-12)


def test_answers_of_scattered_groups_outlive_their_model():
    ids, logits = np.tile([0, 1, 2], 5), RNG.normal(size=15)
    exact = in_memory(logits, ids, tt.exactly(2), None).marginals
    chunks, labels = np.array_split(logits, 4), np.array_split(ids, 4)

    def model():
        return tt.ChunkedCountModel(chunks, groups=labels, group_potential=tt.exactly(2))

    assert np.allclose(np.concatenate(list(model().marginals())), exact, atol=1e-12)
    assert np.concatenate(list(model().sample(rng=0))).sum() == 6
    array = pytest.importorskip("dask.array")
    lazily = tt.ChunkedCountModel(
        array.from_array(logits, chunks=4),
        groups=array.from_array(ids, chunks=4),
        group_potential=tt.exactly(2),
    ).marginals()
    assert np.allclose(lazily.compute(), exact, atol=1e-12)


def test_scratch_folders_are_removed_with_the_last_answer(tmp_path):
    chunks, labels = [np.zeros(3), np.zeros(3)], [np.arange(3), np.arange(3)]
    options = {"groups": labels, "group_potential": tt.exactly(1), "scratch": tmp_path}
    answers = tt.ChunkedCountModel(chunks, **options).marginals()
    assert len(list(tmp_path.iterdir())) == 1
    del answers
    gc.collect()
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_being_removed_is_not_taken(tmp_path, monkeypatch):
    """Python may remove the first model in a thread of another library, while the second is made."""
    chunks, labels = [np.zeros(3), np.zeros(3)], [np.arange(3), np.arange(3)]
    options = {"groups": labels, "group_potential": tt.exactly(1), "scratch": tmp_path}
    remove, answers = shutil.rmtree, []

    def slowly(path, **settings):
        if not answers:
            answers.append(tt.ChunkedCountModel(chunks, **options).marginals())
        remove(path, **settings)

    first = tt.ChunkedCountModel(chunks, **options).marginals()
    monkeypatch.setattr(shutil, "rmtree", slowly)
    del first
    gc.collect()
    np.testing.assert_allclose(whole(answers[0]), np.full(6, 0.5), rtol=1e-12)


def test_the_mode_of_groups_is_refused():
    model = tt.ChunkedCountModel(np.zeros(4), groups=np.array([0, 0, 1, 1]), group_potential=tt.exactly(1))
    with pytest.raises(tt.ParameterError, match="this one has groups"):
        model.mode()


# -- laws ----------------------------------------------------------------------------------------------------------


def test_long_convolutions_are_as_accurate_as_sums_of_logarithms(monkeypatch):
    monkeypatch.setattr(laws_of_counts, "LONG", 0)

    def bell(n, mean, sd):
        return -0.5 * ((np.arange(n) - mean) / sd) ** 2

    holes = np.where(RNG.random(300) < 0.4, -np.inf, RNG.normal(size=300) * 30)
    for a, b in ((bell(900, 400, 30), bell(700, 650, 40)), (bell(300, 10, 20), holes), (holes, np.zeros(1))):
        found, wanted = laws_of_counts.log_convolution(a, b), log_convolve(a, b, 0, len(a) + len(b) - 2)
        assert np.array_equal(np.isinf(found), np.isinf(wanted))
        finite = np.isfinite(wanted)
        assert np.allclose(found[finite], wanted[finite], rtol=1e-11, atol=1e-10)


def test_a_tree_of_laws_splits_a_total_as_the_laws_say():
    laws = [law(0, np.log(RNG.random(4)), 0.0) for _ in range(5)]
    tree = Tree(laws)
    rng = np.random.default_rng(0)
    drawn = np.array([tree.split(7, rng) for _ in range(4_000)])
    assert np.all(drawn.sum(1) == 7)
    weights = {}
    for cell in np.ndindex(4, 4, 4, 4, 4):
        if sum(cell) == 7:
            weights[cell] = np.exp(sum(one.log_weights[c] for one, c in zip(laws, cell)))
    third = np.zeros(4)
    for cell, weight in weights.items():
        third[cell[2]] += weight
    expected = third / third.sum() * len(drawn)
    assert stats.chisquare(np.bincount(drawn[:, 2], minlength=4), expected).pvalue > 1e-4


@pytest.mark.parametrize("seed", range(6))
def test_groups_in_stretches_may_cross_the_chunks_of_an_iterable(seed):
    rng = np.random.default_rng(seed)
    ids, x = np.sort(rng.integers(0, 4, 20)), rng.normal(size=20)
    cuts = np.sort(rng.integers(0, 21, 3))
    chunks, names = np.split(x, cuts), np.split(ids, cuts)
    for source, groups in ((chunks, names), (lambda: iter(chunks), lambda: iter(names))):
        model = tt.ChunkedCountModel(source, tt.exactly(6), groups=groups, group_potential=tt.at_most(4))
        inner = [tt.Group(np.flatnonzero(ids == g), tt.at_most(4)) for g in np.unique(ids)]
        exact = tt.CountModel(x, [*inner, tt.Group(None, tt.exactly(6))])
        found = np.concatenate(list(model.posterior_logits()))
        np.testing.assert_allclose(found, exact.posterior_logits, rtol=1e-10, atol=1e-9)
        assert sum(int(part.sum()) for part in model.sample(rng=seed)) == 6


@pytest.mark.parametrize("layout", ["sorted", "scattered", "text"])
def test_groups_without_a_total_are_models_by_themselves(layout, tmp_path):
    rng = np.random.default_rng(5)
    logits, ids = rng.normal(size=3000), rng.integers(-3, 40, 3000)
    ids = {"sorted": np.sort(ids), "scattered": ids, "text": np.char.add("hall ", ids.astype(str))}[layout]
    names = np.unique(ids)
    own = {name: tt.exactly(i % 9) for i, name in enumerate(names.tolist()) if i % 5}
    np.save(tmp_path / "x.npy", logits)
    np.save(tmp_path / "ids.npy", ids)
    model = tt.ChunkedCountModel(
        tmp_path / "x.npy",
        groups=tmp_path / "ids.npy",
        group_potential=own,
        chunk_size=700,
        workers=2,
        scratch=tmp_path,
    )
    single = [tt.CountModel(logits[ids == name], own.get(name)) for name in names.tolist()]
    assert model.log_partition == pytest.approx(sum(one.log_partition for one in single), rel=1e-12)
    model.posterior_logits(out=tmp_path / "out.npy")
    found = np.load(tmp_path / "out.npy")
    drawn = whole(model.sample(rng=3))
    for name, one in zip(names.tolist(), single):
        np.testing.assert_allclose(found[ids == name], one.posterior_logits, rtol=1e-12)
        assert one.log_prob(drawn[ids == name]) > -np.inf
    assert model.error_bound == max(one.error_bound for one in single)
    want = tt.CountModel(
        logits, [tt.Group(np.flatnonzero(ids == name), potential) for name, potential in own.items()]
    ).count_log_probs()
    window = model.count_log_probs()
    here = np.exp(want[window.first : window.first + len(window.log_probs)])
    np.testing.assert_allclose(np.exp(window.log_probs), here, atol=1e-11)


@pytest.mark.parametrize("scattered", [False, True])
def test_a_group_that_cannot_be_is_named(scattered):
    ids = np.array(list("aabbcc") * 3 if scattered else sorted("aabbcc" * 3))
    logits = np.where(ids == "b", -np.inf, 0.0)
    impossible = tt.ChunkedCountModel(logits, groups=ids, group_potential={"b": tt.exactly(2)}, chunk_size=4)
    with pytest.raises(tt.InfeasibleError, match="group 'b'"):
        impossible.marginals()
    short = tt.ChunkedCountModel(logits, groups=ids, group_potential={"c": tt.exactly(7)}, chunk_size=4)
    with pytest.raises(tt.ParameterError, match="`group_potential` of the group 'c'"):
        short.marginals()
    known = tt.ChunkedCountModel(
        logits, groups=ids, group_potential=tt.at_most(3), evidence={2: 1, 8: 1, 9: 1}
    )
    with pytest.raises(tt.InfeasibleError):
        known.marginals()


def test_chunks_of_no_variables_have_no_ids_of_any_kind():
    pieces = [np.array([0.3, -1.0]), np.empty(0), np.array([0.5])]
    found = [
        tt.ChunkedCountModel(
            lambda: iter(pieces), tt.at_least(1), groups=ids, group_potential=tt.at_least(1)
        ).log_partition
        for ids in (np.array([3, 1, 3]), np.array([3, 1, 3], object))
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize("total", [None, tt.between(500, 900)])
@pytest.mark.parametrize("stop", [2, 5, 9, 11])
def test_interrupted_work_on_scattered_groups_goes_on(total, stop, tmp_path):
    """Every chunk of every pass is made once, but for the one that was interrupted."""
    rng = np.random.default_rng(6)
    logits, ids = rng.normal(size=4000), rng.integers(0, 30, 4000)
    np.save(tmp_path / "x.npy", logits)
    np.save(tmp_path / "ids.npy", ids)
    (tmp_path / "scratch").mkdir()
    out, own = tmp_path / "out.npy", {3: tt.exactly(9), 7: tt.at_most(4)}

    def run(progress):
        model = tt.ChunkedCountModel(
            tmp_path / "x.npy", total, groups=tmp_path / "ids.npy", group_potential=own,
            chunk_size=1000, workers=1, scratch=tmp_path / "scratch", progress=progress,
        )  # fmt: skip
        model.marginals(out=out)
        return model

    told = []

    def interrupt(stage):
        told.append(stage)
        if len(told) == stop:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(interrupt)
    gc.collect()
    seen = []
    model = run(seen.append)
    groups = [
        tt.Group(np.flatnonzero(ids == 3), tt.exactly(9)),
        tt.Group(np.flatnonzero(ids == 7), tt.at_most(4)),
    ]
    exact = tt.CountModel(logits, groups + ([] if total is None else [tt.Group(None, total)]))
    np.testing.assert_allclose(np.load(out), exact.marginals, atol=1e-10)
    whole_run = []
    out.unlink()
    del model
    gc.collect()
    assert list((tmp_path / "scratch").iterdir()) == []
    run(whole_run.append)
    assert len(seen) <= len(whole_run) - stop + 1


def test_a_source_that_changed_since_an_interrupt_is_sorted_again(tmp_path):
    rng = np.random.default_rng(7)
    logits, ids = rng.normal(size=4000), rng.integers(0, 30, 4000)
    np.save(tmp_path / "ids.npy", ids)

    def model(values, progress=False):
        np.save(tmp_path / "x.npy", values)
        return tt.ChunkedCountModel(
            tmp_path / "x.npy", groups=tmp_path / "ids.npy", group_potential={3: tt.exactly(9)},
            chunk_size=1000, workers=1, scratch=tmp_path, progress=progress,
        )  # fmt: skip

    def interrupt(stage):
        if stage.work == "sorting" and stage.done == 3000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _ = model(logits, interrupt).log_partition
    gc.collect()
    changed = logits + 1.0
    one, two = model(changed), model(changed)  # of the same data, at the same time
    exact = tt.CountModel(changed, [tt.Group(np.flatnonzero(ids == 3), tt.exactly(9))]).log_partition
    assert one.log_partition == pytest.approx(exact, rel=1e-12)
    assert two.log_partition == pytest.approx(exact, rel=1e-12)
    del one
    gc.collect()
    np.testing.assert_array_equal(whole(two.marginals()), whole(model(changed).marginals()))
