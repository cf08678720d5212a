// Python bindings of the verbs of the flat solver: reduce a chunk, solve from sums, map a chunk.
#include <algorithm>
#include <utility>

#include "base/parallel.hpp"
#include "bind/bindings.hpp"
#include "flat/flat.hpp"

namespace tallytree {

namespace {

using PlainRequest = std::pair<std::string, std::vector<double>>;
// sum, carry, least, most, listed, complete
using PlainReduced = std::tuple<vector_in, vector_in, vector_in, vector_in, vector_in, bool>;
using Known = std::vector<std::pair<PlainRequest, PlainReduced>>;

Request read(const PlainRequest& plain) {
  const auto& [kind, x] = plain;
  const auto has = [&](const char* name, size_t count) { return kind == name && x.size() == count; };
  if (has("deviations", 2)) return {.kind = Asked::deviations, .tilt = x[0], .count = sums_at_least((int)x[1])};
  if (has("small deviations", 1)) return {.kind = Asked::small_deviations, .tilt = x[0]};
  if (has("histogram", 2)) return {.kind = Asked::histogram, .low = x[0], .high = x[1]};
  if (kind != "powers" || x.empty() || x.size() > (size_t)kMaxPowers) throw nb::value_error("no such request");
  Request request = {.kind = Asked::powers, .count = (int)x.size()};
  std::copy(x.begin(), x.end(), request.rate);
  return request;
}

PlainRequest write(const Request& r) {
  if (r.kind == Asked::deviations) return {"deviations", {r.tilt, (double)r.count}};
  if (r.kind == Asked::small_deviations) return {"small deviations", {r.tilt}};
  if (r.kind == Asked::histogram) return {"histogram", {r.low, r.high}};
  return {"powers", {r.rate, r.rate + r.count}};
}

array_out array_of(const std::vector<double>& values) {
  array_out out = new_array({values.size()});
  std::copy(values.begin(), values.end(), out.data());
  return out;
}

std::vector<double> list_of(const vector_in& values) { return {values.data(), values.data() + values.size()}; }

nb::tuple plain(const Reduced& r) {
  return nb::make_tuple(array_of(r.sum), array_of(r.carry), array_of(r.least), array_of(r.most), array_of(r.listed),
                        r.complete);
}

KnownSums known_sums(const Kernels& kernels, ptrdiff_t n, const Known& known) {
  KnownSums sums(kernels.flat, kernels.lanes, n);
  for (const auto& [request, reduced] : known) {
    const auto& [sum, carry, least, most, listed, complete] = reduced;
    sums.add(read(request), {list_of(sum), list_of(carry), list_of(least), list_of(most), list_of(listed), complete});
  }
  return sums;
}

// A potential that Python evaluates: an object with `at`, `window`, `largest` and `support_within`.
class PythonTable final : public CountTable {
 public:
  explicit PythonTable(nb::object table) : table_(std::move(table)) {}
  double at(ptrdiff_t k) const override { return nb::cast<double>(table_.attr("at")(k)); }
  const double* window(ptrdiff_t first, ptrdiff_t length, std::vector<double>* room) const override {
    const vector_in values = nb::cast<vector_in>(table_.attr("window")(first, first + length - 1));
    if ((ptrdiff_t)values.size() != length) throw nb::value_error("a window must have as many values as counts");
    *room = list_of(values);
    return room->data();
  }
  double largest(Range range, double slope, double origin) const override {
    if (range.empty()) return -__builtin_inf();
    const double found = nb::cast<double>(table_.attr("largest")(range.first, range.last, slope));
    return found - slope * ((double)range.first - origin);
  }
  Range possible(Range range) const override {
    if (range.empty()) return range;
    const auto [first, last] = nb::cast<std::pair<ptrdiff_t, ptrdiff_t>>(
        table_.attr("support_within")(range.first, range.last));
    return {first, last};
  }

 private:
  nb::object table_;
};

void collect(const Missing& missing, std::vector<PlainRequest>* out) {
  for (const Request& request : missing.requests) {
    PlainRequest one = write(request);
    if (std::find(out->begin(), out->end(), one) == out->end()) out->push_back(std::move(one));
  }
}

// What `solve` finds; None, and what it misses to the list, where there are not enough sums.
template <class Solve>
nb::object solved(const Solve& solve, std::vector<PlainRequest>* missing) {
  try {
    return nb::cast(solve());
  } catch (const Missing& m) {
    collect(m, missing);
    return nb::none();
  }
}
template <class Solve>
nb::tuple solved_or_missing(const Solve& solve) {
  std::vector<PlainRequest> missing;
  const nb::object found = solved(solve, &missing);
  return nb::make_tuple(missing, found);
}

// The solution as plain numbers, or what is missing. Where the first rung is short of sums the next one is asked at
// the same time what it will need: passes over the variables are dear, sums are cheap.
nb::tuple solve_sums(ptrdiff_t n, const Known& known, nb::object python_table, const std::string& level) {
  const KnownSums sums = known_sums(choose(level), n, known);
  const PythonTable table(std::move(python_table));
  std::vector<PlainRequest> missing;
  std::optional<Sums> untilted;
  const nb::object found = solved([&] {
    untilted = sums.sums(0, 8);
    FlatSolution solution = solve_series(sums, table, *untilted);
    return array_of(packed(solution));
  }, &missing);
  if (untilted && found.is_none())
    solved([&] {
      FlatSolution further;
      solve_by_segments(sums, *untilted, table, &further);
      return nb::none();
    }, &missing);
  return nb::make_tuple(missing, found);
}

nb::tuple solve_power_sums(ptrdiff_t n, const Known& known, vector_in coefficients, vector_in rates,
                           const std::string& level) {
  check_powers(coefficients, rates);
  const KnownSums sums = known_sums(choose(level), n, known);
  return solved_or_missing([&] {
    const PowerSums powers = sums.powers(rates.data(), (int)rates.size());
    FlatSolution solution;
    solve_powers(n, powers, coefficients.data(), rates.data(), (int)rates.size(), &solution);
    return array_of(packed(solution));
  });
}

// The law of the count under a tilt on its window: first count, probabilities, their absolute error, the slope of their
// relative error, mean and variance, and `likely_on` and `rest` of K(s) - K(0) - s k = s (likely_on - k) + rest, which
// needs the sums of tilt 0 (`normed`).
nb::tuple count_law(ptrdiff_t n, const Known& known, double tilt, bool normed, const std::string& level) {
  const Kernels& kernels = choose(level);
  const KnownSums sums = known_sums(kernels, n, known);
  return solved_or_missing([&] {
    const FlatTotals untilted = normed ? sums.sums(0, 8).totals : FlatTotals{};
    const Spectrum s = spectrum(sums, untilted, tilt, nullptr);
    array_out pmf = new_array({(size_t)(s.high - s.low + 1)});
    spectrum_pmf(*kernels.flat, s, s.low, s.high - s.low + 1, pmf.data());
    return nb::make_tuple(s.low, pmf, pmf_noise(s), spectrum_error(s).slope, s.mean, s.variance, s.tilt_norm.likely_on,
                          s.tilt_norm.rest);
  });
}

template <class T>
nb::tuple reduce_chunk(vector_of<T> nu, const std::vector<PlainRequest>& plain_requests, int threads,
                       const std::string& level) {
  const Kernels& kernels = choose(level);
  std::vector<Request> requests;
  for (const PlainRequest& r : plain_requests) requests.push_back(read(r));
  LeftOut left_out;
  const std::vector<Reduced> found = unlocked([&] {
    return reduce(*kernels.flat, thread_count(threads), nu.data(), (ptrdiff_t)nu.size(), requests, false, &left_out);
  });
  nb::list answers;
  for (const Reduced& r : found) answers.append(plain(r));
  return nb::make_tuple(left_out.excluded, left_out.forced, left_out.invalid, answers);
}

template <class T>
void map_one(vector_in solution, vector_of<T> nu, array_to_fill<T, 1> out, bool marginals, int threads,
             const std::string& level) {
  require(nu.size() == out.size(), "out must have the length of nu");
  const Kernels& kernels = choose(level);
  GilReleased release;
  const FlatSolution s = unpacked(solution.data());
  map_chunk(FlatMap(kernels.flat, s), thread_count(threads), nu.data(), (ptrdiff_t)nu.size(),
            marginals ? Wanted::marginals : Wanted::log_odds, out.data());
}

template <class T>
void bind_chunks(nb::module_& m) {
  // Sums over one chunk of logits for a list of requests (kind, numbers): how many logits are -inf, +inf and NaN, and for every
  // request (sum, carry, least, most, listed, complete).
  m.def("flat_reduce", &reduce_chunk<T>, "nu"_a.noconvert(), "requests"_a, "threads"_a = 0, "level"_a = "");
  // Posterior log-odds or marginals of one chunk of logits, into `out`.
  m.def("flat_map", &map_one<T>, "solution"_a, "nu"_a.noconvert(), "out"_a.noconvert(), "marginals"_a, "threads"_a = 0,
        "level"_a = "");
}

}  // namespace

void bind_verbs(nb::module_& m) {
  bind_chunks<double>(m);
  bind_chunks<float>(m);
  // Solve for n finite logits of which `known` sums have been taken: (missing requests, solution or None); the second for the
  // potential sum_j coefficients[j] rates[j]^c.
  m.def("flat_solve_sums", &solve_sums);
  m.def("flat_solve_power_sums", &solve_power_sums);
  // The law of the count of n finite logits under a tilt, on its window: (missing requests, law or None).
  m.def("flat_count_law", &count_law);
}

}  // namespace tallytree
