"""One potential over variables that nobody holds at once: reduce a chunk, solve from sums, map a chunk.

``reduce`` turns a chunk of log-odds into sums; ``merge`` adds the sums of chunks; ``solve`` is a conversation that asks
for sums until its certificate holds and ends with a solution; ``map_logits`` turns the solution and a chunk into
posterior log-odds or marginals. Draws are in ``counts``. Who runs reduce and map does not matter: the
same chunks give the same bits.

    conversation = solve(table)                          # anything with the methods of `CountTable`
    asked = next(conversation)
    while True:                                          # usually two rounds
        sums = merge(reduce(chunk, asked) for chunk in chunks)
        try:
            asked = conversation.send(sums)
        except StopIteration as end:
            solution = end.value
            break
    answers = [map_logits(chunk, solution.mapping, "marginals") for chunk in chunks]
"""

from .counts import (
    CountWindow,
    Total,
    count_windows,
    draw_gathered,
    draw_given_count,
    draw_total,
    law_of,
    law_sums,
)  # fmt: skip
from .solve import CountTable, Mapping, Solution, map_logits, solve, solve_chunks
from .sums import Request, Sums, merge, reduce

__all__ = [
    "CountTable", "CountWindow", "Mapping", "Request", "Solution", "Sums", "Total",
    "count_windows", "draw_gathered", "draw_given_count", "draw_total", "law_of", "law_sums", "map_logits", "merge",
    "reduce", "solve", "solve_chunks",
]  # fmt: skip
