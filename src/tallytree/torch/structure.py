"""What does not change between calls: which groups there are, and the potentials that hold no tensor.

Operators of PyTorch take tensors and numbers only, so a structure goes to them as its key.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec
from weakref import WeakValueDictionary

import numpy as np
import torch

from .. import checks
from ..errors import ParameterError
from ..memo import cached, lru, once
from ..models.count import CountModel
from ..models.parameters import pack
from ..potentials import Potential, as_potential
from ..structure.nested.count_tree import CountTree
from ..structure.nested.schedule import Schedule, full_schedule
from .tensors import common_shape

P = ParamSpec("P")
_keys = itertools.count()
_alive: WeakValueDictionary[int, Structure] = WeakValueDictionary()
_pinned: dict[int, Structure] = {}


class Structure:
    """A tree of groups, and the potentials of all groups where none of them holds a tensor.

    Attributes
    ----------
    tree : CountTree
    potentials : tuple of Potential or None, one per group; None if the tables arrive as a tensor with every call
    key : int
        What operators are given instead of this object.
    """

    def __init__(self, tree: CountTree, potentials: tuple[Potential | None, ...] | None) -> None:
        self.tree = tree
        self.potentials = potentials
        self.key = next(_keys)
        _alive[self.key] = self

    @property
    def n_variables(self) -> int:
        return self.tree.n_variables

    @property
    def n_cells(self) -> int:
        """Length of the log-tables of all groups, one after the other."""
        return int(self.tree.family.group_offset[-1])

    def cells(self, group: int) -> tuple[int, int]:
        """Where the table of a group starts and ends in the packed tables."""
        offset = self.tree.family.group_offset
        return int(offset[group]), int(offset[group + 1])

    @property
    def packed(self) -> torch.Tensor:
        """Log-tables of the fixed potentials, packed, (T,), or (..., T) if a potential has a number per model.

        A new tensor every time: one that was made inside a transformation is of no use outside.
        """
        return torch.from_numpy(self._packed)

    @cached
    def _packed(self) -> Any:
        return self._pack()

    def _pack(self) -> Any:
        assert self.potentials is not None
        sizes = [self.tree.group_size(g) for g in range(len(self.potentials))]
        return pack(
            [np.zeros(n + 1) if p is None else p.log_table(n) for p, n in zip(self.potentials, sizes)]
        )

    @cached
    def batch_shape(self) -> tuple[int, ...]:
        """That of the fixed potentials, which may have a number per model."""
        shapes = [p.batch_shape for p in self.potentials or () if p is not None]
        return tuple(common_shape("The potentials of `groups`", *shapes))

    @cached
    def _alone(self) -> Potential | None:
        """The fixed potential of a single group of all variables, if that is what there is."""
        whole = self.potentials is not None and self.tree == CountTree.flat(self.n_variables)
        return self.potentials[0] if whole and self.potentials else None

    def packed_on(self, device: torch.device) -> torch.Tensor:
        """The same on a device, copied there once; for operators, which no transformation sees."""
        return once(self, device, lambda: self.packed.to(device))

    @cached
    def opened(self) -> Structure:
        """The same groups with tables that arrive with every call."""
        return self if self.potentials is None else of_tree(self.tree)

    @cached
    def schedule(self) -> Schedule:
        """The order in which array code passes messages; no count is left out."""
        return full_schedule(self.tree.program)

    def on(self, tree: CountTree, potentials: tuple[Potential | None, ...] | None) -> Structure:
        """The same edges, if there are any, with other groups."""
        return Structure(tree, potentials)

    def model(self, logits: Any, tables: Any) -> CountModel:
        """The model of NumPy arrays."""
        if tables is None and self._alone is not None:
            return CountModel(logits, self._alone)  # the usual call, which is read at once
        if tables is None or not self.tree.family.n_groups:
            return CountModel.from_tree(self.tree, logits, self.potentials or ())
        return CountModel.from_tree(self.tree, logits, tables)

    def pin(self) -> Structure:
        """Keep this structure for as long as the process lives: compiled graphs hold nothing but its key."""
        _pinned[self.key] = self
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Structure, (self.tree, self.potentials)

    def __deepcopy__(self, memo: dict[int, Any]) -> Structure:
        return self


class AnySize(NamedTuple):
    """A structure for any number of variables, which compiled graphs keep open: sequences are padded to many lengths.

    Its key means the same in every process, so that it travels in programs of `torch.export`.
    """

    key: int


FREE = AnySize(-1)  # no groups
WHOLE = AnySize(-2)  # one group of all variables, whose table arrives with every call


def structure_of(key: int, n: int) -> Structure:
    """The structure with this key, for n variables."""
    return _alive[key] if key >= 0 else _of_known_members((None,) * (key == WHOLE.key), n)


def cells_of(key: int, n: int, group: int | None = None) -> tuple[int, int]:
    """Where the table of a group, or of all groups, starts and ends in the packed tables; n may be a symbol."""
    if key < 0:
        return 0, n + 1 if key == WHOLE.key else 0
    return (0, _alive[key].n_cells) if group is None else _alive[key].cells(group)


# -- what a compiler asks for once, and keeps ----------------------------------------------------------------------


def constant(make: Callable[P, torch.Tensor]) -> Callable[P, torch.Tensor]:
    """A function that makes tensors which do not change between calls.

    A compiled graph may ask a function for a constant tensor only once, so that it is given a number instead, and an
    operator that reads the tensor with this number when the graph runs.
    """

    @torch.compiler.assume_constant_result
    def number(*arguments: P.args, **named: P.kwargs) -> int:
        new = next(_keys)
        _constants[new] = make(*arguments, **named)
        return new

    def found(*arguments: P.args, **named: P.kwargs) -> torch.Tensor:
        compiling = torch.compiler.is_compiling()
        return _read(number(*arguments, **named)) if compiling else make(*arguments, **named)

    return found


_constants: dict[int, torch.Tensor] = {}  # of compiled graphs, for as long as the process lives


@torch.library.custom_op("tallytree::constant", mutates_args=())
def _read(number: int) -> torch.Tensor:
    """A copy of the tensor with this number."""
    return _constants[number].clone()


@_read.register_fake
def _(number: int) -> torch.Tensor:
    tensor = _constants[number]
    return torch.empty(tensor.shape, dtype=tensor.dtype)


@torch.compiler.assume_constant_result
def number_of(potential: Any) -> int:
    """A number that stands in compiled graphs for a fixed potential, or for the weights of a sum."""
    try:
        repr(potential)
    except AttributeError:  # the shell of one that the compiler was making
        raise ParameterError(
            f"A potential of {type(potential).__name__} must be made before the function that is compiled. Make it "
            "outside, or take the one of tallytree.torch, whose numbers are tensors."
        ) from None
    number = next(_keys)
    kept[number] = potential
    return number


kept: dict[int, Any] = {}  # of compiled graphs, as the constants


@torch.library.custom_op("tallytree::table", mutates_args=())
def table_of(number: int, n: int) -> torch.Tensor:
    """The log-table of the potential with this number for n variables, (..., n + 1)."""
    return torch.from_numpy(np.array(kept[number].log_table(n)))


@table_of.register_fake
def _(number: int, n: int) -> torch.Tensor:
    return torch.empty((*kept[number].batch_shape, n + 1), dtype=torch.float64)


def made(make: Callable[P, Structure]) -> Callable[P, Structure]:
    """A function that makes structures, which compiled graphs keep for as long as the process lives."""

    @torch.compiler.assume_constant_result
    def pinned(*arguments: P.args, **named: P.kwargs) -> Structure:
        return make(*arguments, **named).pin()

    def found(*arguments: P.args, **named: P.kwargs) -> Structure:
        return (pinned if torch.compiler.is_compiling() else make)(*arguments, **named)

    return found


def _kept(make: Callable[P, Structure]) -> Callable[P, Structure]:
    """The same for structures that are asked for again and again."""
    return made(lru(1024)(make))


@made
def with_all(key: int) -> Structure:
    """The same groups, and one more of all variables, without a potential."""
    structure = _alive[key]
    potentials = None if structure.potentials is None else (*structure.potentials, None)
    return structure.on(structure.tree.with_groups([None]), potentials)


@_kept
def flat(n: int, potential: Potential) -> Structure:
    """One fixed potential over all variables."""
    potential.support(n)  # refused here if no count is possible
    return Structure(CountTree.flat(n), (potential,))


@_kept
def of_tree(tree: CountTree) -> Structure:
    """A tree with tables that arrive with every call."""
    return Structure(tree, None if tree.family.n_groups else ())


@made
def of_members(members: tuple[Any, ...], n: int) -> Structure:
    """Groups of these members (None: all variables) with tables that arrive with every call."""
    known = tuple(map(_recognised, members))
    return _of_members(members, n) if ... in known else _of_known_members(known, n)


def _recognised(members: Any) -> Any:
    """Members by which a tree can be found again; an ellipsis for those that are not plain integers."""
    if members is None or isinstance(members, range):
        return members
    if isinstance(members, (list, tuple)) and all(type(member) is int for member in members):
        return tuple(members)
    return ...


def _of_members(members: tuple[Any, ...], n: int) -> Structure:
    return Structure(CountTree.from_groups(list(members), n), None if members else ())


_of_known_members = lru(256)(_of_members)


@constant
def fixed_table(potential: Any, n: int) -> torch.Tensor:
    """The log-table of a potential, an array, a function or None."""
    if isinstance(potential, (list, tuple, np.ndarray)):
        return torch.from_numpy(np.array(checks.log_table(potential, n, name="`groups`")))
    return torch.from_numpy(np.array(as_potential(potential).log_table(n)))


@constant
def packed(key: int) -> torch.Tensor:
    """Log-tables of the fixed potentials, packed."""
    return _alive[key].packed


@constant
def group_members(key: int, group: int) -> torch.Tensor:
    """The variables of a group."""
    return torch.as_tensor(np.array(_alive[key].tree.groups[group]))


def group_sizes(key: int, n: int) -> tuple[int, ...]:
    """How many variables each group has."""
    if key < 0:
        return (n,) if key == WHOLE.key else ()
    return _group_sizes(key)


@torch.compiler.assume_constant_result
def _group_sizes(key: int) -> tuple[int, ...]:
    tree = _alive[key].tree
    return tuple(tree.group_size(g) for g in range(tree.family.n_groups))


@made
def opened(key: int, n: int) -> Structure:
    """The same groups with tables that arrive with every call."""
    return structure_of(key, n).opened
