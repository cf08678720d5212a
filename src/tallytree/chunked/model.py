"""`ChunkedCountModel`: a count model over more variables than fit into memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from hashlib import blake2b
from typing import Any

import numpy as np

from .. import checks, display
from .._progress import Report
from ..engine.count.chunks import CountWindow
from ..errors import ParameterError
from ..memo import Caching, answer, once
from ..potentials import as_potential, uniform
from . import mode as modes
from .chunk import more_evidence, weigh
from .flat import CountPotential, Flat
from .passes import Answers, Job, Passes, answer_in_layout, lazily
from .scattered import Grouped
from .sink import as_sink
from .source import Source, as_source

_LONGEST = 1 << 27  # entries of a table of counts


class ChunkedCountModel(Caching):
    """Distribution over binary vectors with a potential on their count, read chunk by chunk.

    ``p(y) = exp(sum_d logits_d y_d) f(sum_d y_d) / Z`` with as many variables as a disk or a cluster holds. Answers
    are those of :class:`~tallytree.CountModel`, with the same certificate. With groups, ``error_bound`` includes an
    allowance for the distributions of their counts; this part is supported by tests, not by a derivation.

    Parameters
    ----------
    source : array, path, dask collection, zarr array, list or function
        The log-odds, float32 or float64: a NumPy array or memmap, a path to ``.npy``, ``.parquet`` or ``.zarr`` or to a
        folder of Parquet files, a Zarr or Dask array, a Dask series or data frame, a list of chunks, or a function that
        returns an iterator of chunks. It is read two or three times and must not change meanwhile; a chunk that does is
        named in the error.
        ``-inf`` excludes a variable, ``inf`` forces it on.
    potential : potential, optional
        Potential on the count of all variables, as in :class:`~tallytree.CountModel`; default none. A named potential,
        such as ``exactly(10)``, is evaluated only at counts that can matter: its whole table is never stored.
    groups : as `source`, or str, optional
        Id of the group of every variable, integers or text. Members of a group may be scattered over the chunks. A
        string names a column of the Parquet file or Dask data frame that is the source.
    group_potential : potential or mapping
        Potential on the count of every group, required with `groups`: one for all, or ``{id: potential}``, where groups
        that are not named have none.
    evidence : mapping, optional
        Variables whose values are known, ``{index: 0 or 1}``; see :meth:`condition`.
    column : str, optional
        Column with the log-odds in a Parquet file or data frame; default the only column, or the one named "logit".
    scale : {"logit", "prob"}
        Whether the numbers are log-odds or probabilities; the latter are turned into log-odds chunk by chunk.
    chunk_size : int, optional
        Variables per chunk, default 2^20; Dask arrays and Parquet files keep the chunks that they have.
    scheduler : {"threads", "dask"} or distributed.Client, optional
        What runs the tasks; default Dask for a Dask collection, threads of this process for any other source.
    workers : int, optional
        Number of threads; default the number of cores.
    progress : bool or callable
        True shows a bar for every pass (with the remaining time where tqdm is installed). A function is called after
        every chunk.
    scratch : path, optional
        Folder for temporary files, which scattered groups need; every worker must be able to reach it. Naming it also
        makes work resumable: the next model of the same files goes on after the last chunk that an interrupted pass
        finished (with Dask only if the members of each group are next to one another).

    Raises
    ------
    ParameterError
        If an argument has the wrong type or value; the message says what was required.
    SourceError
        If a chunk holds NaN or changed between two passes; the message names it.
    InfeasibleError
        When an answer is asked of a model that allows no configuration.

    See Also
    --------
    tallytree.CountModel
    tallytree.ChunkedPoissonBinomial

    Notes
    -----
    Cost: one pass over the source, two when the posterior lies far from the prior, and one more for every vector that
    is asked for. Memory: a few chunks per worker, whatever the number of variables.

    Accuracy: that of :class:`~tallytree.CountModel`. The same chunks give the same bits, whichever scheduler runs them.

    Examples
    --------
    >>> model = tt.ChunkedCountModel([np.zeros(3), np.zeros(5)], tt.exactly(2))
    >>> model
    ChunkedCountModel(n_variables=8, n_chunks=2, potential=exactly(2))
    >>> round(float(np.exp(model.log_partition)))
    28
    >>> [chunk.round(3).tolist() for chunk in model.marginals()]
    [[0.25, 0.25, 0.25], [0.25, 0.25, 0.25, 0.25, 0.25]]
    """

    def __init__(
        self,
        source: Any,
        potential: Any = None,
        *,
        groups: Any = None,
        group_potential: Any = None,
        evidence: Mapping[int, int] | None = None,
        column: str | None = None,
        scale: str = "logit",
        chunk_size: int | None = None,
        scheduler: Any = None,
        workers: int | None = None,
        progress: bool | Report = False,
        scratch: Any = None,
    ) -> None:
        checks.one_of("scale", scale, ("logit", "prob"))
        self._source: Source = as_source(source, column=column, chunk_size=chunk_size)
        self._given = uniform() if potential is None else as_potential(potential)
        self._evidence = {} if evidence is None else more_evidence({}, evidence, self._source.length)
        self._passes = Passes(self._source, self._evidence, progress, scale, scheduler, workers, scratch)
        self._groups = None
        if groups is not None:
            self._groups = Grouped(self._source, groups, group_potential, chunk_size, scratch)
        elif group_potential is not None:
            raise ParameterError(
                "`group_potential` arrived without `groups`, the column that says who is where."
            )
        if self._source.counted:
            _ = self._potential  # refused now where it can be
        self._options = {
            "scheduler": self._passes.executor, "progress": progress, "scratch": scratch,
            "scale": scale, "groups": groups, "group_potential": group_potential, "chunk_size": chunk_size,
        }  # fmt: skip

    def __repr__(self) -> str:
        known = f", {len(self._evidence):,} known" if self._evidence else ""
        known += f", groups={self._groups}" if self._groups is not None else ""
        n = self.n_variables if self._source.counted else "not counted"
        return f"ChunkedCountModel(n_variables={n}, n_chunks={self.n_chunks}, potential={self._given}{known})"

    def _repr_html_(self) -> str:
        """Nothing is read for it; what a pass has found already is said."""
        known = f": log_partition={self.log_partition:.6g}" if "_solver" in self.__dict__ else ""
        return display.chunks_page(f"{self!r}{known}", self._source.sizes if self._source.counted else ())

    @property
    def n_variables(self) -> int:
        """Number of variables; rows of a Dask data frame are counted when it is asked for."""
        return self._source.length

    @property
    def n_chunks(self) -> int:
        """Number of chunks."""
        return len(self._source.chunks if self._source.blocks is None else self._source.blocks)

    @property
    def potential(self) -> Any:
        """The potential on the count."""
        return self._given

    @answer
    def _potential(self) -> CountPotential:
        return CountPotential(self._given, self._source.length)

    # -- numbers -----------------------------------------------------------------------------------------------

    @answer
    def _solver(self) -> Any:
        if self._groups is None:
            return Flat(self._passes, self._potential)
        return self._groups.solver(self._passes, self._potential)

    @answer
    def _solver_by_chunks(self) -> Any:
        """The same where answers come chunk by chunk of the source."""
        if self._groups is None:
            return self._solver
        return self._groups.solver(self._passes, self._potential, by_chunks=True)

    @property
    def log_partition(self) -> np.float64:
        """Log Z, the logarithm of the normalising constant.

        Raises
        ------
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        log_prob

        Examples
        --------
        >>> model = tt.ChunkedCountModel([0.0, np.log(3.0)], tt.exactly(1))
        >>> np.exp(model.log_partition).round(6)
        np.float64(4.0)
        """
        return np.float64(self._solver.log_partition)

    @property
    def error_bound(self) -> np.float64:
        """Certified bound on the absolute error of every posterior log-odds.

        Raises
        ------
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        posterior_logits

        Examples
        --------
        >>> model = tt.ChunkedCountModel([0.0, np.log(3.0)], tt.exactly(1))
        >>> bool(model.error_bound < 1e-10)
        True
        """
        return np.float64(once(self, "error bound", lambda: self._solver.error_bound + 0.0))

    def count_log_probs(self, window: bool = True) -> Any:
        """Log-probabilities of the count of all variables.

        Parameters
        ----------
        window : bool
            True returns only the range of counts that can matter, False all n + 1 numbers.

        Returns
        -------
        CountWindow or ndarray
            A window has two fields: ``log_probs[i]`` belongs to the count ``first + i``. All counts outside have less
            than 1e-15 of the probability together. With ``window=False`` an array (n + 1,).

        Raises
        ------
        ParameterError
            If the answer would be longer than memory should hold.
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        count_windows, marginals

        Examples
        --------
        >>> tt.ChunkedCountModel(np.zeros(3), tt.exactly(1)).count_log_probs(window=False)
        array([-inf,   0., -inf, -inf])
        """
        checks.flag("window", window)
        windows = self.count_windows()
        first = windows[0].first if window else 0
        stop = windows[-1].first + len(windows[-1].log_probs) if window else self.n_variables + 1
        if stop - first > _LONGEST:
            raise ParameterError(
                f"`count_log_probs` would have {stop - first:,} entries, most of them -inf. "
                "Use `count_windows`, which leaves the gaps out."
            )
        out = np.full(stop - first, -np.inf)
        for one in windows:
            out[one.first - first : one.first - first + len(one.log_probs)] = one.log_probs
        return CountWindow(first, out) if window else out

    def count_windows(self) -> tuple[CountWindow, ...]:
        """Windows ``(first, log_probs)`` of the distribution of the count, in rising order; one for every mode.

        Counts outside all of them have less than 1e-15 of the probability together.

        Returns
        -------
        tuple of CountWindow
            In rising order of ``first``.

        Raises
        ------
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        count_log_probs

        Examples
        --------
        >>> [window.first for window in tt.ChunkedCountModel(np.zeros(3), tt.exactly(1)).count_windows()]
        [0]
        """
        found: tuple[CountWindow, ...] = once(self, "counts", self._solver.count_windows)
        return found

    def log_prob(self, y: Any, *, column: str | None = None) -> np.float64:
        """Log-probability of a configuration.

        Parameters
        ----------
        y : array, path or iterable of chunks
            Zeros and ones of any dtype, as many as there are variables; whatever `source` may be.
        column : str, optional
            Column that holds `y` in a Parquet file.

        Returns
        -------
        numpy.float64
            In nats.

        Raises
        ------
        ParameterError
            If ``y`` has another length, or holds anything but 0 and 1.
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        log_partition, mode

        Examples
        --------
        >>> tt.ChunkedCountModel(np.zeros(4), tt.exactly(1)).log_prob([0, 0, 1, 0]).round(4)
        np.float64(-1.3863)
        """
        given = as_source(y, label="y", column=column).cut_like(self._source)
        parts = list(self._passes.each("log_prob", Job(weigh, [given])))
        log_weight = math.fsum(weight for _, weight in parts) + self._potential.at(sum(on for on, _ in parts))
        if self._groups is not None:
            log_weight += self._groups.log_weight(self._passes, given)
        return np.float64(log_weight - self.log_partition)

    # -- vectors -----------------------------------------------------------------------------------------------

    def marginals(self, out: Any = None, *, overwrite: bool = False) -> Any:
        """P(y_d = 1) of every variable.

        Parameters
        ----------
        out : array or path, optional
            Where to write them: an array, or a path ending in ``.npy``, ``.zarr`` or ``.parquet``. A file appears under
            its name when it is complete; a run that was killed goes on after the last finished chunk.
        overwrite : bool
            Replace a file that exists, and what an unfinished run of another model has left beside it.

        Returns
        -------
        ndarray, dask.array, iterable of chunks, or path
            Without `out`: an array for an array, a lazy Dask array for a Dask array, a lazy series with the same index
            for a Dask series or data frame, otherwise chunks that are computed when they are iterated over, as often as
            wanted. With `out`: `out`, as a path if it is one. Lazy answers are Dask graphs: nothing is computed before
            Dask is asked to.

        Raises
        ------
        InfeasibleError
            If every configuration has probability zero.
        OutputError
            If ``out`` exists already, or cannot be written.

        See Also
        --------
        posterior_logits, count_log_probs, CountModel.marginals

        Examples
        --------
        >>> tt.ChunkedCountModel(np.zeros(4), tt.exactly(1)).marginals()
        array([0.25, 0.25, 0.25, 0.25])
        """
        return self._vector("marginals", out, overwrite)

    def posterior_logits(self, out: Any = None, *, overwrite: bool = False) -> Any:
        """Log-odds of the marginals, accurate where these round to 0 or 1; arguments as :meth:`marginals`.

        Parameters
        ----------
        out : array or path, optional
            Where to write, as in :meth:`marginals`.
        overwrite : bool
            Replace a file that exists.

        Returns
        -------
        ndarray, dask.array, iterable of chunks, or path
            As :meth:`marginals`.

        Raises
        ------
        InfeasibleError
            If every configuration has probability zero.
        OutputError
            If ``out`` exists already, or cannot be written.

        See Also
        --------
        marginals

        Examples
        --------
        >>> tt.ChunkedCountModel(np.zeros(2), tt.exactly(1)).posterior_logits().round(6) + 0.0
        array([0., 0.])
        """
        return self._vector("posterior_logits", out, overwrite)

    def sample(self, size: None = None, rng: Any = None, out: Any = None, *, overwrite: bool = False) -> Any:
        """One exact joint draw of all variables.

        The total count is drawn first, then split over the chunks, and inside each chunk the states are drawn given its
        count. Every chunk has a random stream of its own, so the draw does not depend on the number of workers.

        Parameters
        ----------
        size : None
            Must be None, because every call makes one draw; other models have the number of draws in this place.
        rng : int, numpy.random.Generator, RandomState, SeedSequence, BitGenerator or None
            Generator or seed.
        out : array or path, optional
            Where to write, as in :meth:`marginals`; states are uint8.
        overwrite : bool
            Replace a file that exists.

        Returns
        -------
        ndarray, dask.array, iterable of chunks, or path
            As :meth:`marginals`.

        Raises
        ------
        ParameterError
            If ``rng`` cannot be used, or ``size`` is not None.
        InfeasibleError
            If every configuration has probability zero.
        OutputError
            If ``out`` exists already, or cannot be written.

        See Also
        --------
        mode, CountModel.sample

        Examples
        --------
        >>> int(tt.ChunkedCountModel(np.zeros(100), tt.exactly(7)).sample(rng=0).sum())
        7
        """
        if size is not None:
            raise ParameterError(
                f"`size` must be None, since one configuration of all variables is drawn; {checks.describe(size)} "
                "arrived. A seed or generator goes in `rng=`; for several draws call `sample` once for each."
            )
        generator = checks.generator(rng)
        key = tuple(generator.integers(0, 2**32, 4, dtype=np.uint32).tolist())
        return self._written(
            "sample", lambda solver: solver.draw(key), out, np.dtype(np.uint8), overwrite, key
        )

    def mode(self, out: Any = None, *, overwrite: bool = False) -> Any:
        """The most probable configuration.

        Of several that are equally probable, one with the fewest variables on is returned, and of these the one whose
        variables come first.

        Parameters
        ----------
        out : array or path, optional
            Where to write, as in :meth:`marginals`; states are uint8.
        overwrite : bool
            Replace a file that exists.

        Returns
        -------
        ndarray, dask.array, iterable of chunks, or path
            As :meth:`marginals`.

        Raises
        ------
        InfeasibleError
            If every configuration has probability zero.
        OutputError
            If ``out`` exists already, or cannot be written.

        See Also
        --------
        sample, marginals

        Examples
        --------
        >>> tt.ChunkedCountModel([0.5, -1.0, 2.0], tt.exactly(2)).mode()
        array([1, 0, 1], dtype=uint8)
        """
        if self._groups is not None:
            raise ParameterError(
                "`mode` is for models with one potential over all variables; this one has groups. "
                "Find the mode of groups that fit into memory with CountModel."
            )

        def job(_: Any) -> Job:
            return once(self, "mode", lambda: modes.decide(self._passes, self._best))

        return self._written("mode", job, out, np.dtype(np.uint8), overwrite)

    @property
    def max_log_weight(self) -> np.float64:
        """Log-weight of :meth:`mode`, on the scale of ``log_partition``.

        Raises
        ------
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        mode

        Examples
        --------
        >>> model = tt.ChunkedCountModel([0.0, np.log(3.0)], tt.exactly(1))
        >>> np.exp(model.max_log_weight).round(6)
        np.float64(3.0)
        """
        return np.float64(self._best.log_weight)

    @answer
    def _best(self) -> modes.Best:
        return modes.find(self._passes, self._potential)

    def _vector(self, what: str, out: Any, overwrite: bool) -> Any:
        dtype = self._passes.dtype
        return self._written(what, lambda solver: solver.map(what, dtype), out, dtype, overwrite)

    def _written(
        self,
        what: str,
        job: Callable[[Any], Job],
        out: Any,
        dtype: np.dtype[Any],
        overwrite: bool,
        *more: Any,
    ) -> Any:
        """The answer that a job makes, which is made by a solver; the mode has none."""
        checks.flag("overwrite", overwrite)

        def planned(by_chunks: bool = True) -> tuple[Passes, Job]:
            if what == "mode":
                return self._passes, job(None)
            solver = self._solver_by_chunks if by_chunks else self._solver
            return solver.passes, job(solver)

        sink = None if out is None else as_sink(out, what, self.n_variables, dtype, overwrite)
        if sink is None and self._source.blocks is not None:
            return lazily(self._source, planned, dtype, what)
        passes, todo = planned(by_chunks=False)
        if sink is None:
            return answer_in_layout(Answers(passes, what, todo, dtype))
        kept = nullcontext() if self._groups is None else self._solver.writing()
        with kept:
            return passes.write(what, todo, sink, self._header(what, dtype, *more))

    def _header(self, what: str, dtype: np.dtype[Any], *more: Any) -> dict[str, Any]:
        """What an unfinished output must say to be taken up again."""
        parts = [
            what, str(dtype), self._passes.scale, self._source.sizes, str(self._potential), str(self._groups),
            sorted(self._evidence.items()), *more,
        ]  # fmt: skip
        if what != "mode":
            parts.append(self._solver.key)
        return {"what": what, "key": blake2b(repr(parts).encode(), digest_size=16).hexdigest()}

    # -- evidence ----------------------------------------------------------------------------------------------

    def condition(self, evidence: Mapping[int, int]) -> ChunkedCountModel:
        """The model given the values of some variables.

        ``log_partition`` of the result is that of the joint event, so a difference of two is a log-probability.

        Parameters
        ----------
        evidence : mapping
            Values ``{index: 0 or 1}``.

        Returns
        -------
        ChunkedCountModel
            The model with these values required.

        Raises
        ------
        ParameterError
            If ``evidence`` is not a mapping of variables to 0 or 1, or contradicts what is known.

        See Also
        --------
        log_prob, marginals

        Examples
        --------
        >>> model = tt.ChunkedCountModel(np.zeros(3), tt.exactly(1)).condition({0: 0})
        >>> model.marginals()
        array([0. , 0.5, 0.5])
        """
        known = more_evidence(self._evidence, evidence, self.n_variables)
        return ChunkedCountModel(self._source, self.potential, evidence=known, **self._options)
