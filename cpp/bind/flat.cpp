// Python bindings of the flat solver: solved rows, then its verbs one by one.
#include <algorithm>
#include <memory>
#include <utility>

#include "bind/bindings.hpp"
#include "flat/batches.hpp"

namespace tallytree {

namespace {

using matrix_shared = nb::ndarray<nb::numpy, const double, nb::ndim<2>>;

// Solved rows, which hold on to their logits (B, n) and tables, if they have any.
struct SolvedRows {
  matrix_in nu, log_f;
  FlatRows rows;

  SolvedRows(const matrix_in& logits, const matrix_in& tables, int threads, const std::string& level)
      : nu(logits), log_f(tables),
        rows{&choose(level), threads_for(threads, nu), (ptrdiff_t)nu.shape(0), (ptrdiff_t)nu.shape(1), nu.data(),
             log_f.data(), log_f.is_valid() ? stride_of(log_f) : 0} {}
  SolvedRows(SolvedRows&&) = default;
};

// A view of memory that the solution goes on using.
matrix_shared shared_matrix(std::shared_ptr<const double> data, size_t rows, size_t columns) {
  const double* first = data.get();
  auto* held = new std::shared_ptr<const double>(std::move(data));
  nb::capsule owner(held, [](void* p) noexcept { delete (std::shared_ptr<const double>*)p; });
  return matrix_shared(first, {rows, columns}, owner);
}

}  // namespace

void bind_flat(nb::module_& m) {
  // Solved flat models: one potential over all variables, row by row. `totals` (3, B): log E f(z), -inf for an impossible
  // model; the sum of log(1 + exp(nu)) over the finite nu; a certified bound on the error of the first (beyond 4 ulp of both)
  // and of every message, inf where there is none.
  nb::class_<SolvedRows>(m, "FlatSolution")
      .def("totals", [](const SolvedRows& solved) {
        const size_t batch = solved.rows.row.size();
        array_out out = new_array({3, batch});
        double *log_mean = out.data(), *softplus = log_mean + batch, *bound = softplus + batch;
        for (const FlatSolution& s : solved.rows.row) {
          *log_mean++ = s.log_mean;
          *softplus++ = s.softplus;
          *bound++ = s.bound;
        }
        return out;
      })
      // P(y_i = 1) under the posterior, (B, n), read-only.
      .def("marginals", [](const SolvedRows& solved) {
        const matrix_in& nu = solved.nu;
        if (auto known = marginals_at_hand(solved.rows))
          return shared_matrix(std::move(known), nu.shape(0), nu.shape(1));
        array_out out = new_array({nu.shape(0), nu.shape(1)});
        unlocked([&] { row_answers(solved.rows, Wanted::marginals, out.data()); });
        return matrix_shared(out);
      })
      // Leaf messages r_i = log(d_i(1) / d_i(0)), (B, n): posterior logit = nu_i + r_i.
      .def("messages", [](const SolvedRows& solved) {
        array_out out = new_array({solved.nu.shape(0), solved.nu.shape(1)});
        unlocked([&] { row_answers(solved.rows, Wanted::messages, out.data()); });
        return out;
      })
      // P(z = k), (B, n + 1), and the bound of their errors (B,), infinite where there is no answer; None if that is so for
      // all of them. Of models with tables.
      .def("counts", [](const SolvedRows& solved) -> nb::object {
        const matrix_in& nu = solved.nu;
        array_out counts = new_array({nu.shape(0), nu.shape(1) + 1}), bound = new_array({nu.shape(0)});
        if (!unlocked([&] { return row_counts(solved.rows, counts.data(), bound.data()); })) return nb::none();
        return nb::make_tuple(counts, bound);
      });

  // Solves z = sum of Bernoulli(sigmoid(nu_i)) reweighted by f(z) = exp(log_f), for nu (B, n). Without `cavities` the messages
  // to variables with infinite nu are as infinite as these.
  m.def("flat_solve", [](matrix_in nu, matrix_in log_f, bool cavities, int threads, const std::string& level) {
    check_tables(nu, log_f);
    SolvedRows solved(nu, log_f, threads, level);
    solved.rows.cavities = cavities;
    unlocked([&] { solve_rows(&solved.rows); });
    return solved;
  }, "nu"_a, "log_f"_a, "cavities"_a = true, "threads"_a = 0, "level"_a = "");

  // The same for f(z) = sum_j coefficients[j] rates[j]^z, rates of at least -1: a closed form. The bound is inf where its
  // terms may cancel, and there are no other answers then.
  m.def("flat_solve_powers", [](matrix_in nu, vector_in coefficients, vector_in rates, int threads,
                                const std::string& level) {
    check_powers(coefficients, rates);
    SolvedRows solved(nu, {}, threads, level);
    unlocked([&] { solve_power_rows(coefficients.data(), rates.data(), (int)rates.size(), &solved.rows); });
    return solved;
  }, "nu"_a, "coefficients"_a, "rates"_a, "threads"_a = 0, "level"_a = "");

  // The logits (B, 2) between which variables are not decided: those below are off, those above on.
  m.def("flat_open_logits", [](matrix_in nu, matrix_in log_f, int threads, const std::string& level) {
    check_tables(nu, log_f);
    const Kernels& k = choose(level);
    const ptrdiff_t n = (ptrdiff_t)nu.shape(1), stride = stride_of(log_f);
    array_out out = new_array({nu.shape(0), 2});
    unlocked([&] {
      for (ptrdiff_t b = 0; b < (ptrdiff_t)nu.shape(0); b++) {
        const Split split = split_infinite(nu.data() + b * n, n);
        const Logits logits = {k.flat, k.lanes, threads, split.finite.data(), (ptrdiff_t)split.finite.size()};
        const ArrayTable table(k.flat, 1, log_f.data() + b * stride + split.forced);
        OpenLogits open;
        if (logits.n > 0) open = open_logits(logits, logits.sums(0, 8).totals, table);
        out.data()[2 * b] = open.low;
        out.data()[2 * b + 1] = open.high;
      }
    });
    return out;
  }, "nu"_a, "log_f"_a, "threads"_a = 0, "level"_a = "");

  // Models along the chain of partial sums: messages (B, n), and (2, B), log E f and a bound of the error, inf where plain
  // numbers run out of range.
  m.def("chain", [](matrix_in nu, matrix_in log_f, int threads, const std::string& level) {
    check_tables(nu, log_f);
    const FlatKernels& k = *choose(level).flat;
    const ptrdiff_t batch = (ptrdiff_t)nu.shape(0), n = (ptrdiff_t)nu.shape(1);
    array_out messages = new_array({nu.shape(0), nu.shape(1)}), totals = new_array({2, nu.shape(0)});
    unlocked([&] {
      chain_rows(k, threads_for(threads, nu), nu.data(), log_f.data(), stride_of(log_f), batch, n, totals.data(),
                 messages.data(), totals.data() + batch);
    });
    return nb::make_tuple(messages, totals);
  }, "nu"_a, "log_f"_a, "threads"_a = 0, "level"_a = "");

  // log P(z = k) for k = 0 .. n, relatively accurate in both tails.
  m.def("flat_log_pmf", [](matrix_in nu, int threads, const std::string& level) {
    const Kernels& k = choose(level);
    array_out out = new_array({nu.shape(0), nu.shape(1) + 1});
    unlocked([&] {
      log_pmf_rows(k, threads_for(threads, nu), nu.data(), (ptrdiff_t)nu.shape(0), (ptrdiff_t)nu.shape(1), out.data());
    });
    return out;
  }, "nu"_a, "threads"_a = 0, "level"_a = "");
}

// Python bindings of the verbs of the flat solver: reduce a chunk, solve from sums, map a chunk.

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
