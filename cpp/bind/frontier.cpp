// Python bindings of the steps of a frontier of counts.
#include "base/parallel.hpp"
#include "bind/bindings.hpp"
#include "frontier/step.hpp"

namespace tallytree {

namespace {

using index_matrix_in = array_in<int64_t, 2>;

// Steps as engine/frontier/plan.py lays them out, with every index checked once.
struct CheckedSteps : Steps {
  // Rows of `runs` are sizes and strides before and after; `numbers` are the local states and the moves of each step; rows
  // of `moves` are beginnings, ends and kinds in the order of ends, then in the order of beginnings.
  CheckedSteps(const index_matrix_in& runs, const vector_of<int64_t>& places, const index_matrix_in& numbers,
               const index_matrix_in& moves, const vector_in& given, size_t size_before, size_t size_after) {
    const size_t steps = numbers.shape(1) - 1, total = moves.shape(1);
    require(runs.shape(1) == 3 && runs.shape(0) > 0 && numbers.shape(0) == 2 && numbers.shape(1) > 1 && moves.shape(0) == 6,
            "runs must be (r, 3), numbers (2, s + 1) and moves (6, t)");
    ptrdiff_t last_before = 0, last_after = 0;
    for (size_t i = 0; i < runs.shape(0); i++) {
      const int64_t* r = runs.data() + 3 * i;
      require(r[0] > 0 && r[1] >= 0 && r[2] >= 0, "runs must be positive");
      rest.push_back({r[0], r[1], r[2]});
      last_before += (r[0] - 1) * r[1];
      last_after += (r[0] - 1) * r[2];
    }
    weight = given.data();
    kinds = (ptrdiff_t)given.shape(0);
    const int64_t *state = numbers.data(), *count = state + steps + 1, *m = moves.data();
    states.assign(state, state + steps + 1);
    bool inside = true;
    for (ptrdiff_t s : states) inside = inside && s > 0;
    require(inside && places.shape(0) == (size_t)(states.front() + states.back()), "places must be those of local states");
    before = places.data();
    after = before + states.front();
    for (ptrdiff_t s = 0; s < states.front(); s++) inside = inside && before[s] >= 0 && before[s] + last_before < (ptrdiff_t)size_before;
    for (ptrdiff_t s = 0; s < states.back(); s++) inside = inside && after[s] >= 0 && after[s] + last_after < (ptrdiff_t)size_after;
    size_t first = 0;
    for (size_t i = 0; i < steps; i++) {
      require(count[i] > 0 && first + (size_t)count[i] <= total, "moves must be those of the steps");
      for (size_t t = first; t < first + (size_t)count[i]; t++)
        for (size_t way = 0; way < 2; way++) {
          const int64_t *row = m + 3 * way * total + t, begin = row[0], end = row[total], kind = row[2 * total];
          inside = inside && begin >= 0 && begin < states[i + way] && end >= 0 && end < states[i + 1 - way] && kind >= 0 && kind < kinds;
        }
      forward.push_back({m + first, m + total + first, m + 2 * total + first, (ptrdiff_t)count[i]});
      backward.push_back({m + 3 * total + first, m + 4 * total + first, m + 5 * total + first, (ptrdiff_t)count[i]});
      first += (size_t)count[i];
    }
    require(inside, "moves must stay inside the frontier");
  }
};

}  // namespace

void bind_frontier(nb::module_& m) {
  // The frontier after some steps, its largest number and its smallest positive one.
  m.def("frontier_forward", [](vector_in before, int exponent, bool maxima, size_t size, index_matrix_in runs, vector_of<int64_t> places,
                               index_matrix_in numbers, index_matrix_in moves, vector_in weight, int threads,
                               const std::string& level) {
    const FrontierKernels& k = *choose(level).frontier;
    const CheckedSteps steps(runs, places, numbers, moves, weight, before.shape(0), size);
    array_out after = new_array({size});
    const Extremes seen = unlocked([&] {
      return steps_forward(k, steps, maxima, before.data(), exponent, after.data(), thread_count(threads));
    });
    return nb::make_tuple(after, seen.largest, seen.smallest);
  });

  // Derivatives in the frontier before some steps and in the weights of their moves, and the extremes of the first.
  m.def("frontier_backward", [](vector_in up, int up_exponent, vector_in after, int down_exponent, index_matrix_in runs,
                                vector_of<int64_t> places, index_matrix_in numbers, index_matrix_in moves, vector_in weight, int threads,
                                const std::string& level) {
    const FrontierKernels& k = *choose(level).frontier;
    const CheckedSteps steps(runs, places, numbers, moves, weight, up.shape(0), after.shape(0));
    array_out before = new_array({up.shape(0)}), sums = new_array({weight.shape(0)});
    const Extremes seen = unlocked([&] {
      return steps_backward(k, steps, up.data(), up_exponent, after.data(), down_exponent, before.data(), sums.data(),
                            thread_count(threads));
    });
    return nb::make_tuple(before, sums, seen.largest, seen.smallest);
  });
}

}  // namespace tallytree
