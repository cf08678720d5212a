// Passes over the frontier in pieces that fit the cache.
#include "frontier/step.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/parallel.hpp"

namespace tallytree {

namespace {

constexpr ptrdiff_t kCache = 1 << 14;   // numbers of all local states of a piece
constexpr ptrdiff_t kPiece = 256;       // states of the rest in it at most
constexpr ptrdiff_t kTask = 1 << 17;    // numbers in one task
constexpr Extremes kNothing{0, std::numeric_limits<double>::infinity()};

// States of the rest, numbered, in pieces; tasks are ranges of pieces.
class Rest {
 public:
  explicit Rest(const Steps& steps) : runs_(steps.rest) {
    for (const Run& r : runs_) size_ *= r.size;
    total_ = std::accumulate(steps.states.begin(), steps.states.end(), ptrdiff_t{0});
    piece_ = std::clamp<ptrdiff_t>(kCache / total_, 8, kPiece);
    piece_ = std::max<ptrdiff_t>(1, std::min(piece_, size_));
    task_ = std::max<ptrdiff_t>(1, kTask / (total_ * piece_)) * piece_;
  }
  ptrdiff_t piece() const { return piece_; }
  ptrdiff_t tasks() const { return (size_ + task_ - 1) / task_; }
  int useful_threads(int threads) const { return size_ * total_ < 4 * kTask ? 1 : threads; }

  // Calls use(n, before, after) with the offsets of n states of the rest for every piece of a task.
  template <class Use>
  void each(ptrdiff_t task, const Use& use) const {
    std::vector<ptrdiff_t> before((size_t)piece_), after((size_t)piece_), at(runs_.size());
    const ptrdiff_t last = std::min(size_, (task + 1) * task_);
    ptrdiff_t left = task * task_, b = 0, a = 0;
    for (size_t i = runs_.size(); i-- > 0;) {
      at[i] = left % runs_[i].size;
      left /= runs_[i].size;
      b += at[i] * runs_[i].stride_before;
      a += at[i] * runs_[i].stride_after;
    }
    for (ptrdiff_t first = task * task_; first < last; first += piece_) {
      const ptrdiff_t n = std::min(piece_, last - first);
      for (ptrdiff_t x = 0; x < n; x++) {
        before[(size_t)x] = b;
        after[(size_t)x] = a;
        for (size_t i = runs_.size(); i-- > 0;) {
          b += runs_[i].stride_before;
          a += runs_[i].stride_after;
          if (++at[i] < runs_[i].size) break;
          at[i] = 0;
          b -= runs_[i].size * runs_[i].stride_before;
          a -= runs_[i].size * runs_[i].stride_after;
        }
      }
      use(n, before.data(), after.data());
    }
  }

 private:
  const std::vector<Run>& runs_;
  ptrdiff_t size_ = 1, total_, piece_, task_;
};

bool contiguous(const ptrdiff_t* offset, ptrdiff_t n) { return offset[n - 1] - offset[0] == n - 1; }

// local[s * stride + i] = factor * global[place[s] + offset[i]]
void gather(const double* global, const int64_t* place, ptrdiff_t states, const ptrdiff_t* offset, ptrdiff_t n, double factor,
            double* local, ptrdiff_t stride) {
  const bool row = contiguous(offset, n);
  for (ptrdiff_t s = 0; s < states; s++) {
    const double* from = global + place[s];
    double* __restrict to = local + s * stride;
    if (row) {
      from += offset[0];
      for (ptrdiff_t i = 0; i < n; i++) to[i] = factor * from[i];
    } else {
      for (ptrdiff_t i = 0; i < n; i++) to[i] = factor * from[offset[i]];
    }
  }
}

void scatter(const double* local, ptrdiff_t stride, const int64_t* place, ptrdiff_t states, const ptrdiff_t* offset,
             ptrdiff_t n, double* global) {
  const bool row = contiguous(offset, n);
  for (ptrdiff_t s = 0; s < states; s++) {
    const double* from = local + s * stride;
    double* to = global + place[s];
    if (row) {
      std::copy(from, from + n, to + offset[0]);
    } else {
      for (ptrdiff_t i = 0; i < n; i++) to[offset[i]] = from[i];
    }
  }
}

// Calls task(index, memory, extremes) with memory for so many numbers.
template <class Task>
Extremes over_tasks(const Rest& rest, int threads, ptrdiff_t numbers, const Task& task) {
  threads = rest.useful_threads(threads);
  std::vector<Extremes> seen((size_t)rest.tasks(), kNothing);
  std::vector<std::vector<double>> memory((size_t)threads);
  run_tasks(seen.size(), threads, [&](size_t i, int thread) {
    memory[(size_t)thread].resize((size_t)numbers);
    task((ptrdiff_t)i, memory[(size_t)thread].data(), seen[i]);
  });
  Extremes all = kNothing;
  for (const Extremes& e : seen) all = {std::max(all.largest, e.largest), std::min(all.smallest, e.smallest)};
  return all;
}

}  // namespace

Extremes steps_forward(const FrontierKernels& k, const Steps& steps, bool maxima, const double* before, int exponent,
                       double* after, int threads) {
  const Rest rest(steps);
  const ptrdiff_t m = rest.piece(), widest = *std::max_element(steps.states.begin(), steps.states.end());
  const double factor = std::ldexp(1.0, exponent);
  return over_tasks(rest, threads, 2 * widest * m, [&](ptrdiff_t task, double* now, Extremes& seen) {
    double* next = now + widest * m;
    rest.each(task, [&](ptrdiff_t n, const ptrdiff_t* at_before, const ptrdiff_t* at_after) {
      gather(before, steps.before, steps.states.front(), at_before, n, factor, now, m);
      for (const Moves& moves : steps.forward) {
        (maxima ? k.maxima : k.sums)(moves, steps.weight, now, next, m, n);
        std::swap(now, next);
      }
      for (ptrdiff_t s = 0; s < steps.states.back(); s++) k.extremes(now + s * m, n, &seen);
      scatter(now, m, steps.after, steps.states.back(), at_after, n, after);
    });
  });
}

Extremes steps_backward(const FrontierKernels& k, const Steps& steps, const double* up, int up_exponent,
                        const double* after, int down_exponent, double* before, double* sums, int threads) {
  const Rest rest(steps);
  const ptrdiff_t m = rest.piece(), widest = *std::max_element(steps.states.begin(), steps.states.end());
  const size_t number = steps.forward.size();
  std::vector<ptrdiff_t> place(number + 1, 0);  // of the frontier before each step, in the memory of a piece
  for (size_t i = 0; i < number; i++) place[i + 1] = place[i] + steps.states[i] * m;
  std::vector<double> parts((size_t)(rest.tasks() * steps.kinds), 0.0);
  const double up_factor = std::ldexp(1.0, up_exponent), down_factor = std::ldexp(1.0, down_exponent);
  const ptrdiff_t numbers = place[number] + 2 * widest * m;
  const Extremes all = over_tasks(rest, threads, numbers, [&](ptrdiff_t task, double* ups, Extremes& seen) {
    double *down = ups + place[number], *next = down + widest * m;
    double* own = parts.data() + task * steps.kinds;
    rest.each(task, [&](ptrdiff_t n, const ptrdiff_t* at_before, const ptrdiff_t* at_after) {
      gather(up, steps.before, steps.states.front(), at_before, n, up_factor, ups, m);
      for (size_t i = 0; i + 1 < number; i++) k.sums(steps.forward[i], steps.weight, ups + place[i], ups + place[i + 1], m, n);
      gather(after, steps.after, steps.states.back(), at_after, n, down_factor, down, m);
      for (size_t i = number; i-- > 0;) {
        k.products(steps.forward[i], ups + place[i], down, m, n, own);
        k.sums(steps.backward[i], steps.weight, down, next, m, n);
        std::swap(down, next);
      }
      for (ptrdiff_t s = 0; s < steps.states.front(); s++) k.extremes(down + s * m, n, &seen);
      scatter(down, m, steps.before, steps.states.front(), at_before, n, before);
    });
  });
  std::fill(sums, sums + steps.kinds, 0.0);
  for (ptrdiff_t task = 0; task < rest.tasks(); task++)
    for (ptrdiff_t i = 0; i < steps.kinds; i++) sums[i] += parts[(size_t)(task * steps.kinds + i)];
  return all;
}

}  // namespace tallytree
