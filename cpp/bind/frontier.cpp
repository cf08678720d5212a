// Python bindings of the steps of a frontier of counts.
#include <cmath>

#include "base/parallel.hpp"
#include "bind/bindings.hpp"
#include "frontier/step.hpp"

namespace tallytree {

namespace {

using index_matrix_in = array_in<int64_t, 2>;

struct CheckedStep {
  std::vector<Run> rest;
  Transitions transitions;

  // Rows of `runs` are sizes and strides before and after; rows of `places` offsets before, after and the two orders.
  CheckedStep(const index_matrix_in& runs, const index_matrix_in& places, const vector_in& weight, size_t before, size_t after) {
    require(runs.shape(1) == 3 && runs.shape(0) > 0 && places.shape(0) == 4 && places.shape(1) == weight.shape(0),
            "runs must be (r, 3), places (4, t) and weights (t,)");
    ptrdiff_t last_before = 0, last_after = 0;
    for (size_t i = 0; i < runs.shape(0); i++) {
      const int64_t* r = runs.data() + 3 * i;
      rest.push_back({r[0], r[1], r[2]});
      last_before += (r[0] - 1) * r[1];
      last_after += (r[0] - 1) * r[2];
    }
    const ptrdiff_t n = (ptrdiff_t)weight.shape(0);
    const int64_t* p = places.data();
    transitions = {p, p + n, weight.data(), p + 2 * n, p + 3 * n, n};
    bool inside = rest.back().stride_before == 1 && rest.back().stride_after == 1;
    for (ptrdiff_t i = 0; i < n; i++)
      inside = inside && p[i] >= 0 && p[i] + last_before < (ptrdiff_t)before && p[n + i] >= 0 &&
               p[n + i] + last_after < (ptrdiff_t)after && p[2 * n + i] >= 0 && p[2 * n + i] < n && p[3 * n + i] >= 0 &&
               p[3 * n + i] < n;
    require(inside, "transitions must stay inside the frontier");
  }
};

}  // namespace

void bind_frontier(nb::module_& m) {
  // The frontier after a step, its largest number and its smallest positive one.
  m.def("frontier_forward", [](vector_in before, index_matrix_in runs, index_matrix_in places, vector_in weight,
                               size_t size, int threads, const std::string& level) {
    const FrontierKernels& k = *choose(level).frontier;
    const CheckedStep step(runs, places, weight, before.shape(0), size);
    array_out after = new_array({size});
    const Extremes seen = unlocked(
        [&] { return step_forward(k, step.rest, step.transitions, before.data(), after.data(), thread_count(threads)); });
    return nb::make_tuple(after, seen.largest, seen.smallest);
  });

  // Derivatives in the frontier before a step and in the weights of its transitions, and the extremes of the first.
  m.def("frontier_backward", [](vector_in up, vector_in after, index_matrix_in runs, index_matrix_in places,
                                vector_in weight, int threads, const std::string& level) {
    const FrontierKernels& k = *choose(level).frontier;
    const CheckedStep step(runs, places, weight, up.shape(0), after.shape(0));
    array_out before = new_array({up.shape(0)}), sums = new_array({weight.shape(0)});
    const Extremes seen = unlocked([&] {
      return step_backward(k, step.rest, step.transitions, up.data(), after.data(), before.data(), sums.data(),
                           thread_count(threads));
    });
    return nb::make_tuple(before, sums, seen.largest, seen.smallest);
  });
}

}  // namespace tallytree
