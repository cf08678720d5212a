// Passes over the frontier in pieces that fit the cache.
#include "frontier/step.hpp"

#include <algorithm>
#include <limits>

#include "base/parallel.hpp"

namespace tallytree {

namespace {

constexpr ptrdiff_t kPiece = 256;          // numbers of the last run that are done together
constexpr ptrdiff_t kTask = 1 << 15;       // states of the rest in one task
constexpr ptrdiff_t kWorthThreads = 1 << 17;

struct Place {
  ptrdiff_t before, after, count;
};

// The rest as rows of its last run; calls use(place) for the rows and pieces of rows of one task.
class Rest {
 public:
  explicit Rest(const std::vector<Run>& runs) : runs_(runs), row_(runs.back().size) {
    for (const Run& r : runs) size_ *= r.size;
    rows_ = row_ > 0 ? size_ / row_ : 0;
    rows_per_task_ = std::max<ptrdiff_t>(1, kTask / std::max<ptrdiff_t>(1, row_));
    pieces_ = row_ > kTask ? (row_ + kTask - 1) / kTask : 1;
  }
  ptrdiff_t size() const { return size_; }
  ptrdiff_t tasks() const { return pieces_ > 1 ? rows_ * pieces_ : (rows_ + rows_per_task_ - 1) / rows_per_task_; }

  template <class Use>
  void each(ptrdiff_t task, const Use& use) const {
    const ptrdiff_t first = pieces_ > 1 ? task / pieces_ : task * rows_per_task_;
    const ptrdiff_t last = pieces_ > 1 ? first + 1 : std::min(rows_, first + rows_per_task_);
    const ptrdiff_t from = pieces_ > 1 ? task % pieces_ * kTask : 0;
    const ptrdiff_t to = std::min(row_, pieces_ > 1 ? from + kTask : row_);
    for (ptrdiff_t row = first; row < last; row++) {
      ptrdiff_t left = row, before = 0, after = 0;
      for (size_t i = runs_.size() - 1; i-- > 0;) {
        const ptrdiff_t at = left % runs_[i].size;
        left /= runs_[i].size;
        before += at * runs_[i].stride_before;
        after += at * runs_[i].stride_after;
      }
      for (ptrdiff_t x = from; x < to; x += kPiece) use(Place{before + x, after + x, std::min(kPiece, to - x)});
    }
  }

 private:
  const std::vector<Run>& runs_;
  ptrdiff_t size_ = 1, row_, rows_, rows_per_task_, pieces_;
};

template <class Task>
Extremes over_tasks(const Rest& rest, int threads, const Task& task) {
  std::vector<Extremes> seen((size_t)rest.tasks(), Extremes{0, std::numeric_limits<double>::infinity()});
  parallel_for(rest.tasks(), rest.size() < kWorthThreads ? 1 : threads,
               [&](ptrdiff_t i) { task(i, seen[(size_t)i]); });
  Extremes all{0, std::numeric_limits<double>::infinity()};
  for (const Extremes& e : seen) all = {std::max(all.largest, e.largest), std::min(all.smallest, e.smallest)};
  return all;
}

}  // namespace

Extremes step_forward(const FrontierKernels& k, const std::vector<Run>& runs, const Transitions& t, const double* before,
                      double* after, int threads) {
  const Rest rest(runs);
  return over_tasks(rest, threads, [&](ptrdiff_t task, Extremes& seen) {
    rest.each(task, [&](const Place& p) {
      k.sums(t.by_after, t.after, t.before, t.weight, t.count, before + p.before, after + p.after, p.count, &seen);
    });
  });
}

Extremes step_backward(const FrontierKernels& k, const std::vector<Run>& runs, const Transitions& t, const double* up,
                       const double* after, double* before, double* sums, int threads) {
  const Rest rest(runs);
  std::vector<double> parts((size_t)(rest.tasks() * t.count), 0.0);
  const Extremes all = over_tasks(rest, threads, [&](ptrdiff_t task, Extremes& seen) {
    double* own = parts.data() + task * t.count;
    rest.each(task, [&](const Place& p) {
      k.sums(t.by_before, t.before, t.after, t.weight, t.count, after + p.after, before + p.before, p.count, &seen);
      k.products(t.before, t.after, t.count, up + p.before, after + p.after, p.count, own);
    });
  });
  std::fill(sums, sums + t.count, 0.0);
  for (ptrdiff_t task = 0; task < rest.tasks(); task++)
    for (ptrdiff_t i = 0; i < t.count; i++) sums[i] += parts[(size_t)(task * t.count + i)];
  return all;
}

}  // namespace tallytree
