"""Potentials as an interface: printing, errors, conversion, parsing, documentation."""

from __future__ import annotations

import doctest
import importlib
import pickle
import pkgutil

import numpy as np
import pytest

import tallytree
import tallytree.potentials as tt
from tallytree.errors import ParameterError, TallyTreeError

NAMES = {name: getattr(tt, name) for name in tt.__all__} | {"np": np}


@pytest.mark.parametrize(
    "text",
    [
        "exactly(3)",
        "noisy_or(0.2, leak=0.01)",
        "noisy_and(0.2, t=0)",
        "exactly(3) * gaussian(2.0, 1.0)",
        "~at_least(1)",
        "~(at_least(1) * at_most(3))",
        "(~at_least(1)) ** 0.5",
        "(poisson(2.0) * uniform()) ** 2.0",
        "~(poisson(2.0) ** 0.5)",
        "gaussian(0.5, 0.1, fraction=True)",
        "one_of([0, 3])",
        "parity('odd')",
        "modulo(3, 1)",
        "spike_and_slab(2.0, slab=0.5)",
        "all_or_none(np.inf)",
        "all_or_none(2.0, truncation=3.0)",
        "quadratic(-0.5, center=1.0)",
        "exponential_mixture([1.0, -1.0], [1.0, 0.5])",
        "table([0.0, -np.inf, 1.5])",
    ],
)
def test_repr_reads_as_it_is_written(text):
    assert repr(eval(text, NAMES)) == text


def test_different_potentials_differ():
    assert tt.exactly(3) != tt.exactly(4)
    assert tt.exactly(0) != tt.at_most(0)
    assert tt.table([0.0, 1.0]) != tt.table([0.0, 2.0])
    assert tt.table([0.0, 1.0]) != tt.exactly(0)
    assert tt.table([-0.0, 1.0]) == tt.table([0, 1])
    assert len({tt.exactly(3), tt.exactly(np.int64(3)), tt.table([0]), tt.table([-0.0])}) == 2


def test_potentials_are_frozen_and_do_not_share_their_arrays():
    source = np.zeros(3)
    potential = tt.table(source)
    source[:] = 7
    potential.log_table(2)[:] = 7
    assert np.all(potential.log_table(2) == 0)
    assert not pickle.loads(pickle.dumps(potential)).log_values.flags.writeable
    with pytest.raises(AttributeError):
        tt.exactly(3).k = 4
    with pytest.raises(TypeError):
        2.0 * tt.exactly(3)
    with pytest.raises(TypeError):
        np.ones(3) * tt.exactly(3)


BAD = [
    ("exactly(-1)", "`k` of `exactly` must be an integer of at least 0; -1 arrived"),
    ("exactly(2.5)", "`k` of `exactly` must be an integer"),
    ("exactly(3.0)", "int"),
    ("exactly(True)", "True arrived"),
    ("exactly(np.True_)", "True_? arrived"),
    ("exactly('3')", "'3' arrived"),
    ("exactly(None)", "None arrived"),
    ("at_least(-2)", "`k`"),
    ("at_most(float('nan'))", "`k`"),
    ("between(3, 1)", "lo <= hi; lo = 3 and hi = 1 arrived"),
    ("between(-1, 1)", "`lo`"),
    ("one_of([])", "at least one"),
    ("one_of(3)", "exactly"),
    ("one_of([1, -2])", "`counts`"),
    ("parity('both')", "'even' or 'odd'"),
    ("parity(True)", "'even' or 'odd'"),
    ("modulo(0, 0)", "`m` of `modulo` must be an integer of at least 1"),
    ("modulo(3, 3)", "r < m"),
    ("noisy_or(1.2)", r"`rate` of `noisy_or` must be a finite real number in \[0, 1\]; 1.2 arrived"),
    ("noisy_or(-1e-9)", "rate"),
    ("noisy_or(0.5, leak=2)", "leak"),
    ("noisy_or(float('nan'))", "nan arrived"),
    ("noisy_or(0.5, t=2)", "between 0 and 1; 2 arrived"),
    ("noisy_or(0.5, t=True)", "between 0 and 1; True"),
    ("noisy_or(0.0)", "probability is 0 for every count"),
    ("noisy_or(0.5, leak=1, t=0)", "probability is 0"),
    ("noisy_and(0.0, t=0)", "probability is 0"),
    ("noisy_and(0.5, leak=1)", "probability is 0"),
    ("gaussian(1, 0)", "above 0; 0"),
    ("gaussian(1, -1)", "`sd`"),
    ("gaussian(np.inf, 1)", "finite"),
    ("gaussian(1, 1, fraction=0.5)", "`fraction` of `gaussian` must be True or False"),
    ("gaussian(True, 1)", "True arrived"),
    ("gaussian(1j, 1)", "1j arrived"),
    ("gaussian('1', 1)", "'1' arrived"),
    ("gaussian([1.0, np.nan], 1)", "Model 1: `mean` of `gaussian` must be a finite real number; nan arrived"),
    ("gaussian(np.ones(2), np.ones(3))", r"shapes \(2,\) and \(3,\) arrived"),
    ("gaussian(10**400, 1)", "`mean`"),
    ("poisson(-1)", "`mean`"),
    ("geometric(-0.5)", "`ratio`"),
    ("geometric(np.inf)", "finite"),
    ("spike_and_slab(0, 0)", "positive, finite sum"),
    ("spike_and_slab(-1)", "`spike`"),
    ("all_or_none(-1)", "`strength`"),
    ("all_or_none(1, truncation=0)", "`truncation`"),
    ("quadratic(float('nan'))", "nan arrived"),
    ("exponential_mixture([1, 2], [1])", "2 coefficients and 1 rates"),
    ("exponential_mixture([], [])", "other than 0"),
    ("exponential_mixture([0], [1])", "other than 0"),
    ("exponential_mixture(1, 2)", "list"),
    ("table([[0, 1]])", r"shape \(1, 2\)"),
    ("table([])", r"shape \(0,\)"),
    ("table([0, float('nan')])", "entry 1 is NaN"),
    ("table([0, np.inf])", "entry 1 is inf"),
    ("table([0, 1j])", "complex"),
    ("table([True, False])", "bool"),
    ("table(['a', 'b'])", "dtype"),
    ("table([0, [1, 2]])", "different lengths"),
    ("table(np.zeros(3, np.float16))", "float16"),
    ("exactly(3) ** 0", "`exponent`"),
    ("exactly(3) ** -1", "`exponent`"),
    ("exactly(3) ** np.inf", "`exponent`"),
    ("as_potential(3)", "`exactly`"),
    ("as_potential(np.float64(3))", "`exactly`"),
    ("as_potential('exactly:3')", "parse_potential"),
    ("as_potential(np.zeros((2, 3)))", r"shape \(2, 3\)"),
    ("as_potential([[1, 2], [3]])", "different lengths"),
    ("as_potential({1, 2})", "dtype object"),
]


@pytest.mark.parametrize(("text", "message"), BAD)
def test_bad_arguments_are_refused_at_construction(text, message):
    with pytest.raises(ParameterError, match=message) as caught:
        eval(text, NAMES)
    assert isinstance(caught.value, TallyTreeError)
    assert isinstance(caught.value, ValueError)


IMPOSSIBLE = [
    ("exactly(5)", 3, r"`exactly\(5\)` needs a group of at least 5 variables; this group has n = 3"),
    ("at_least(4)", 3, "at least 4 variables"),
    ("between(4, 9)", 3, "at least 4 variables"),
    ("one_of([4, 5])", 3, "at least 4 variables"),
    ("parity('odd')", 0, "at least 1 variables"),
    ("modulo(9, 8)", 3, "at least 8 variables"),
    ("noisy_or(0.5)", 0, "`leak`"),
    ("noisy_and(0.5, t=0)", 0, "`leak`"),
    ("table([0, 1, 2])", 3, r"n \+ 1 = 4 values.*has 3"),
    ("exactly(5) * uniform()", 3, "at least 5"),
    ("~exactly(5)", 3, "at least 5"),
    ("exactly(5) ** 2", 3, "at least 5"),
    ("uniform()", -1, "`n` must be an integer"),
    ("uniform()", 2.0, "`n` must be an integer"),
    ("uniform()", True, "True arrived"),
    ("gaussian(0, 1e-200)", 3, "overflows"),
    ("quadratic(1e308)", 9, "overflows"),
    ("poisson(2) ** 1e308", 9, "overflows"),
    ("table([-1e308, 1e308]) * table([-1e308, 1e308])", 1, "overflows"),
]


@pytest.mark.parametrize(("text", "n", "message"), IMPOSSIBLE)
def test_a_potential_that_cannot_hold_says_why(text, n, message):
    with pytest.raises(ParameterError, match=message):
        eval(text, NAMES).log_table(n)


def test_as_potential_accepts_what_users_pass():
    potential = tt.exactly(3)
    assert tt.as_potential(potential) is potential
    assert tt.as_potential(None) == tt.uniform()
    assert tt.as_potential([0, -1, -np.inf]) == tt.table([0.0, -1.0, -np.inf])
    assert tt.as_potential(np.zeros(4, np.float32)) == tt.table([0.0] * 4)
    function = tt.as_potential(math_free)
    assert function == tt.as_potential(math_free)
    assert pickle.loads(pickle.dumps(function)) == function
    assert repr(function) == "as_potential(math_free)"
    assert function.log_table(3).tolist() == [0.0, -2.0, -4.0, -6.0]
    assert function.log_table(0).dtype == np.float64
    assert function.support(3) == (0, 3)
    assert tt.as_potential(np.vectorize(lambda c: 0.0 if c < 2 else -np.inf)).support(5) == (0, 1)


def math_free(c):
    return -2 * c


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda c: 0.0, r"shape \(4,\); an array of shape \(\)"),
        (lambda c: c[:2], r"an array of shape \(2,\)"),
        (lambda c: c * 1j, "complex"),
        (lambda c: np.where(c == 2, np.nan, 0.0), "entry 2 is NaN"),
        (lambda c: np.where(c == 2, np.inf, 0.0), "entry 2 is inf"),
        (lambda c: 0.0 if c < 2 else 1.0, "np.vectorize"),
        (lambda: 0.0, "np.vectorize"),
        (lambda c: None, "dtype object"),
    ],
)
def test_functions_are_checked_when_they_are_used(function, message):
    with pytest.raises(ParameterError, match=message):
        tt.as_potential(function).log_table(3)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("exactly:12", "exactly(12)"),
        ("at_least:1", "at_least(1)"),
        ("at_most:2", "at_most(2)"),
        ("between:1:3", "between(1, 3)"),
        (" between : 1 : hi=3 ", "between(1, 3)"),
        ("one_of:3,0", "one_of([0, 3])"),
        ("parity", "parity('even')"),
        ("parity:odd", "parity('odd')"),
        ("modulo:3", "modulo(3, 0)"),
        ("modulo:3:1", "modulo(3, 1)"),
        ("noisy_or:0.2:0.01", "noisy_or(0.2, leak=0.01)"),
        ("noisy_or:0.2:t=0", "noisy_or(0.2, t=0)"),
        ("noisy_and:0.2", "noisy_and(0.2)"),
        ("gaussian:3:1.5", "gaussian(3.0, 1.5)"),
        ("gaussian:0.5:0.1:fraction=true", "gaussian(0.5, 0.1, fraction=True)"),
        ("poisson:2", "poisson(2.0)"),
        ("geometric:1e-3", "geometric(0.001)"),
        ("uniform", "uniform()"),
        ("spike_and_slab:2:0.5", "spike_and_slab(2.0, slab=0.5)"),
        ("all_or_none:2:3", "all_or_none(2.0, truncation=3.0)"),
        ("all_or_none:inf", "all_or_none(np.inf)"),
        ("quadratic:-1", "quadratic(-1.0)"),
        ("exponential_mixture:1,-1:1,0.5", "exponential_mixture([1.0, -1.0], [1.0, 0.5])"),
        ("table:0,-1.5,-inf", "table([0.0, -1.5, -np.inf])"),
    ],
)
def test_parse_potential_reads_every_kind(text, written):
    assert repr(tt.parse_potential(text)) == written


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "exact:3",
            r"(?s)'exact:3' arrived.*exactly:k.*noisy_or:rate\[:leak\]\[:t\].*table:log_values,\.\.\.",
        ),
        ("", "Known are"),
        ("exactly", "Add `k`"),
        ("exactly:1:2", "must be written exactly:k"),
        ("exactly:k=1:k=2", "must be written exactly:k"),
        ("exactly:j=1", "must be written exactly:k"),
        ("exactly:2.5", "`k` of `exactly` must be an integer; '2.5' arrived"),
        ("exactly:-1", "at least 0"),
        ("poisson:many", "a number"),
        ("one_of:1,b", "integers separated by commas"),
        ("gaussian:1:1:fraction=maybe", "true or false"),
        ("gaussian:nan:1", "nan arrived"),
        (3, "must be text"),
    ],
)
def test_parse_potential_explains_what_it_wants(text, message):
    with pytest.raises(ParameterError, match=message):
        tt.parse_potential(text)


def test_every_factory_can_be_parsed():
    with pytest.raises(ParameterError) as caught:
        tt.parse_potential("?")
    for name in set(tt.__all__) - {"Potential", "as_potential", "parse_potential"}:
        assert f"\n  {name}" in str(caught.value)


def test_examples_in_the_documentation_run():
    attempted = 0
    for module in pkgutil.iter_modules(tt.__path__, tt.__name__ + "."):
        result = doctest.testmod(importlib.import_module(module.name), extraglobs={"tt": tallytree, "np": np})
        assert result.failed == 0, module.name
        attempted += result.attempted
    assert attempted >= 35


def test_every_factory_documents_its_cost_accuracy_and_an_example():
    for name in tt.__all__:
        doc = NAMES[name].__doc__
        assert ">>> " in doc, name
        if name != "Potential":
            assert "Cost:" in doc, name
            assert "Accuracy:" in doc, name


def test_long_tables_print_short():
    assert repr(tt.table(np.zeros(1000001))) == "table(<1000001 log values>)"
