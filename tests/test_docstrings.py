"""Every public object is documented in full, and every example in a docstring prints what it says."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import re

import numpy as np
import pytest

import tallytree
from public_names import methods, objects


def modules():
    inside = (m.name for m in pkgutil.walk_packages(tallytree.__path__, "tallytree."))
    return ["tallytree", *(name for name in inside if not name.endswith(("_native", "__main__")))]


def of_frameworks(names, text=lambda name: name):
    """Names as parameters; those that say torch or jax need it."""
    return [
        pytest.param(name, marks=pytest.mark.frameworks)
        if re.search(r"\b(torch|jax)\b", text(name))
        else name
        for name in names
    ]


@pytest.mark.parametrize("name", of_frameworks(modules()))
def test_examples_print_what_they_say(name):
    try:
        module = importlib.import_module(name)
    except ImportError as missing:
        pytest.skip(f"{name} needs an extra that is not installed: {missing}")
    names = {"tt": tallytree, "np": np}
    for short, adapter in (("ttj", "tallytree.jax"), ("ttt", "tallytree.torch")):
        if name.startswith(adapter):
            names[short] = importlib.import_module(adapter)
    result = doctest.testmod(module, extraglobs=names, optionflags=doctest.ELLIPSIS)
    assert result.failed == 0


PUBLIC = dict(objects())
NOT_FOR_USERS = {"kept", "tree_flatten", "tree_unflatten"}  # protocols of the package and of JAX
ORDER = ("Summary", "Parameters", "Attributes", "Returns", "Yields", "Raises", "Warns", "See Also", "Notes")
ORDER += ("References", "Examples")
# Properties that say what the object was made of; one line is enough for them.
PLAIN = {
    "batch_shape",
    "components",
    "edges",
    "family",
    "iterations",
    "converged",
    "largest",
    "lengths",
    "log_tables",
}
PLAIN |= {
    "logits",
    "method",
    "models",
    "n",
    "n_cases",
    "n_cells",
    "n_chunks",
    "n_edges",
    "n_groups",
    "n_labels",
}
PLAIN |= {
    "n_positions",
    "n_strata",
    "sizes",
    "n_variables",
    "pair_tables",
    "pairs",
    "potential",
    "probs",
    "program",
    "scores",
}
PLAIN |= {"shape", "support", "total_count", "tree", "values", "weights"}


def every_docstring():
    """Every public object and method once: name, the class it belongs to, function, whether it is a property."""
    seen = set()
    for name, target in PUBLIC.items():
        yield name, target if inspect.isclass(target) else None, target, False
        for method, function, is_property in methods(target) if inspect.isclass(target) else ():
            if function not in seen and method not in NOT_FOR_USERS:
                seen.add(function)
                yield f"{name}.{method}", target, function, is_property


EVERY = {name: rest for name, *rest in every_docstring()}


def arguments(target):
    try:
        names = inspect.signature(target).parameters
    except ValueError:
        return []
    return [name for name in names if name not in ("self", "cls") and not name.startswith("_")]


def sections(target):
    """Text under every heading of a numpydoc docstring."""
    parts = re.split(r"^([A-Z][A-Za-z ]+)\n-{3,}\n", inspect.getdoc(target) or "", flags=re.MULTILINE)
    return {"Summary": parts[0].strip(), **dict(zip(parts[1::2], parts[2::2]))}


def documented(found):
    """Names before the colon of the entries of Parameters and Attributes."""
    listed = found.get("Parameters", "") + "\n" + found.get("Attributes", "")
    entries = re.findall(r"^(\S.*?)(?: :.*)?$", listed, re.MULTILINE)
    return {name.strip().lstrip("*") for entry in entries for name in entry.split(",")}


@pytest.mark.parametrize("name", of_frameworks(PUBLIC))
def test_a_public_object_is_documented_in_full(name):
    target = PUBLIC[name]
    found = sections(target)
    wanted = {"Summary", "Examples", "See Also"}
    error = inspect.isclass(target) and issubclass(target, Exception)
    if not error:
        assert set(arguments(target)) <= documented(found), set(arguments(target)) - documented(found)
    if inspect.isfunction(target):
        result = str(inspect.signature(target).return_annotation)
        wanted |= set() if result == "None" else {"Yields" if result.startswith("Iterator") else "Returns"}
    if "Parameters" in found:
        wanted |= {"Raises"}
    assert wanted <= {heading for heading, text in found.items() if text.strip()}


@pytest.mark.parametrize("name", of_frameworks(name for name in EVERY if name not in PUBLIC))
def test_every_public_method_is_documented_in_full(name):
    _, target, is_property = EVERY[name]
    found = sections(target)
    wanted = {"Summary"}
    if not is_property:
        assert set(arguments(target)) <= documented(found)
        result = str(inspect.signature(target).return_annotation)
        wanted |= {"See Also", "Examples", "Yields" if result.startswith("Iterator") else "Returns"}
        wanted |= (
            {"Raises"}
            if re.search(r"\braise |\bchecks\.", inspect.getsource(inspect.unwrap(target)))
            else set()
        )
    elif name.rpartition(".")[2] not in PLAIN:
        wanted |= {"See Also", "Examples"}
    assert wanted <= {heading for heading, text in found.items() if text.strip()}


@pytest.mark.parametrize("name", of_frameworks(EVERY))
def test_sections_stand_in_the_usual_order(name):
    headings = list(sections(EVERY[name][1]))
    assert headings == [heading for heading in ORDER if heading in headings]


def see_also(name):
    return sections(EVERY[name][1]).get("See Also", "")


@pytest.mark.parametrize("name", of_frameworks(EVERY, lambda name: name + see_also(name)))
def test_what_see_also_names_exists(name):
    home, target, _ = EVERY[name]
    for line in see_also(name).splitlines():
        if line.strip() and not line.startswith(" "):
            for reference in line.partition(" : ")[0].split(","):
                assert exists(reference.strip(), home, target), reference


def exists(reference, home, target):
    """Whether a name can be looked up as the site does: in the class, in its module, in the package."""
    starts = [home, importlib.import_module(target.__module__), importlib.import_module("tallytree")]
    starts += [importlib.import_module(f"tallytree.{part}") for part in ("learn", "loopy", "potentials")]
    paths = [(start, reference.split(".")) for start in starts if start is not None]
    module, _, rest = reference.removeprefix("tallytree.").partition(".")
    homes = ("assignment", "data", "estimators", "jax", "learn", "loopy", "plot", "potentials", "torch")
    if rest and module in homes:
        home = pytest.importorskip(f"tallytree.{module}", exc_type=ImportError)
        paths.append((home, rest.split(".")))
    paths.append((tallytree, reference.removeprefix("tallytree.").split(".")))
    return any(leads_somewhere(start, names) for start, names in paths)


def leads_somewhere(start, names):
    for name in names:
        if not hasattr(start, name):
            return name in getattr(start, "__annotations__", {})  # a field of a result
        start = getattr(start, name)
    return True


IMPOSSIBLE = (
    tallytree.CountModel([0.0, -np.inf], tallytree.exactly(2)),
    tallytree.ChainModel([[0.0, -np.inf], [0.0, 0.0]], np.zeros((2, 2)), tallytree.exactly(2)),
    tallytree.LinearModel([0.0, -np.inf], [1.0, 2.0], lambda s: np.where(s >= 3, 0.0, -np.inf), step=1.0),
    tallytree.ThinnedModel([-np.inf, -np.inf], [0.5, 0.5], tallytree.at_least(1)),
    tallytree.RaggedBatch([[0.0, -np.inf]], tallytree.exactly(2)),
    tallytree.ChunkedCountModel(np.array([0.0, -np.inf]), tallytree.exactly(2)),
)


@pytest.mark.parametrize("model", IMPOSSIBLE, ids=lambda model: type(model).__name__)
def test_answers_of_an_impossible_model_say_that_they_raise(model):
    raised = 0
    for name, target, is_property in methods(type(model)):
        given = inspect.signature(target).parameters.values()
        if is_property or all(p.default is not p.empty or p.kind is p.VAR_KEYWORD for p in list(given)[1:]):
            try:
                answer = getattr(model, name)
                answer if is_property else answer()
            except tallytree.InfeasibleError:
                raised += 1
                assert "InfeasibleError" in sections(target).get("Raises", ""), name
            except tallytree.ParameterError:
                pass  # answers about edges, or of the method without arguments
    assert raised > 3
