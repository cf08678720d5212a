#include "cluster/pass.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "base/parallel.hpp"
#include "base/workspace.hpp"

namespace tallytree {

void arena_forget(Arena* arena) { arena->reset(); }

namespace {

constexpr ptrdiff_t kChunk = 64;   // clusters per task, at most
constexpr int32_t kParallel = 4000;  // programs smaller than this are not worth a second thread

struct Thread {
  Arena arena, scratch;
};

// The counts that every cluster can have: at most its largest scores, and such that the tables above allow the total.
std::vector<Interval> possible_counts(const ClusterInput& in, const double* tables) {
  const ClusterView& view = in.program;
  std::vector<Interval> found((size_t)view.nodes, Interval{0, 0});
  for (int32_t i = 0; i < view.nodes; i++) {
    const int32_t node = in.order[i], a = view.a[node], b = view.b[node];
    int most = view.op[node] == kLeaf ? leaf_width(view, in.score, view.ref[node], in.states) - 1 : 0;
    for (const int32_t part : {a, b}) most += part >= 0 ? found[(size_t)part].hi : 0;
    found[(size_t)node].hi = view.op[node] == kTable && view.top[view.ref[node]] ? 0 : most;
  }
  for (int32_t i = view.nodes; i-- > 0;) {
    const int32_t node = in.order[i], a = view.a[node], b = view.b[node];
    Interval w = found[(size_t)node];
    if (a < 0) continue;
    const int most_a = found[(size_t)a].hi, most_b = b < 0 ? 0 : found[(size_t)b].hi;
    if (view.op[node] == kTable) {
      const int64_t start = in.offset[view.ref[node]];
      if (view.top[view.ref[node]]) w = {0, most_a};
      const auto excluded = [&](int c) { return !(tables[start + c] > -HUGE_VAL); };
      while (w.lo < w.hi && excluded(w.lo)) w.lo++;
      while (w.hi > w.lo && excluded(w.hi)) w.hi--;
    }
    const auto within = [&](int most, int other) {
      const int lo = std::clamp(w.lo - other, 0, most);
      return Interval{lo, std::clamp(w.hi, lo, most)};
    };
    found[(size_t)a] = within(most_a, most_b);
    if (b >= 0) found[(size_t)b] = within(most_b, most_a);
  }
  return found;
}

}  // namespace

void cluster_pass(const Kernels& kernels, const ClusterInput& in, const ClusterOutput& out, int threads) {
  threads = in.program.nodes < kParallel ? 1 : thread_count(threads);
  const size_t K = (size_t)in.states, D = (size_t)in.program.variables;
  const double infinity = std::numeric_limits<double>::infinity();
  std::vector<Thread> memory((size_t)threads);
  std::vector<Cluster> clusters((size_t)in.program.nodes);
  std::vector<double> identity(K * K, 0.0);
  const bool wide = in.arithmetic == kWide;
  if (wide) std::fill(identity.begin(), identity.end(), -infinity);
  for (size_t k = 0; k < K; k++) identity[k * K + k] = wide ? 0.0 : 1.0;
  const auto worker_of = [&](int t) { return ClusterWorker{{&memory[(size_t)t].arena, nullptr, 0}, {&memory[(size_t)t].scratch, nullptr, 0}}; };
  const std::shared_ptr<PlanCache> plans = new_plan_cache();

  for (size_t b = 0; b < in.batch; b++) {
    for (Thread& t : memory) t.arena.reset();
    const size_t edge_row = in.shared_edges ? 0 : b, table_row = in.shared_tables ? 0 : b;
    ClusterItem item = {
        &in.program, in.states, in.log_leaf + b * D * K, in.edge_tables + edge_row * in.edges * K * K,
        in.edge_top + edge_row * in.edges, identity.data(), in.tables + table_row * in.entries,
        in.table_top + table_row * in.sets, in.offset, in.score, clusters.data(), out.messages + b * D * K,
        out.log_edges + b * in.edges * K * K, out.log_counts + b * in.entries, in.keep, plans.get(), in.arithmetic == kFourier, nullptr,
        in.powers + (wide ? b * in.sets : 0), in.top_set};
    std::vector<Interval> windows;
    if (wide) windows = possible_counts(in, item.tables);
    item.windows = windows.data();
    if (!in.samples) {
      std::fill_n(item.log_edges, in.edges * K * K, -infinity);
      std::fill_n(item.log_counts, in.entries, -infinity);
    }
    const auto each_chunk = [&](int level, auto pass) {
      const ptrdiff_t start = in.level_start[level], stop = in.level_start[level + 1];
      const ptrdiff_t chunk = std::clamp<ptrdiff_t>((stop - start) / (4 * threads), 1, kChunk);
      const size_t tasks = (size_t)((stop - start + chunk - 1) / chunk);
      run_tasks(tasks, threads, [&](size_t task, int thread) {
        const ptrdiff_t first = start + (ptrdiff_t)task * chunk, count = std::min(chunk, stop - first);
        ClusterWorker worker = worker_of(thread);
        pass(item, worker, in.order + first, count);
      });
    };
    const ClusterKernels& k = *kernels.cluster;
    for (int level = 0; level < in.levels; level++) each_chunk(level, wide ? k.wide_cluster_up : k.cluster_up);
    if (in.samples) {
      run_tasks(in.samples, threads, [&](size_t i, int thread) {
        const size_t nodes = (size_t)in.program.nodes;
        std::vector<int> state(nodes, 0), count(nodes, 0);
        ClusterWorker worker = worker_of(thread);
        k.wide_cluster_draw(item, worker, in.order, in.uniform + (b * in.samples + i) * nodes, state.data(), count.data(),
                             out.drawn + (i * in.batch + b) * D);
      });
      continue;
    }
    double squares = 0, noise = 0, path = 0, vanished = 0;
    LogSum log_z;
    double power = 0;  // of two: an integer, whatever cancels in it
    for (const Cluster& c : clusters) {
      log_z.add(c.log_scale);
      power += c.exponent;
    }
    std::vector<double> ones(in.n_roots + 1, 1.0);
    for (size_t i = 0; i < in.n_roots; i++) {
      Cluster& c = clusters[(size_t)in.roots[i]];
      c.adjoint = c.reach = &ones[i];
      ClusterWorker worker = worker_of(0);
      if (wide) log_z.add(k.wide_cluster_root(item, worker, in.roots[i]));
    }
    for (int level = in.levels; level-- > 0;) each_chunk(level, wide ? k.wide_cluster_down : k.cluster_down);
    // Adjoints take the errors of those above with them.
    std::vector<double> above((size_t)in.program.nodes, 0.0);
    double longest = 0;
    for (size_t i = (size_t)in.program.nodes; i-- > 0;) {
      const int32_t node = in.order[i];
      const double own = above[(size_t)node] + clusters[(size_t)node].transform;
      longest = std::max(longest, own);
      for (const int32_t part : {in.program.a[node], in.program.b[node]})
        if (part >= 0) above[(size_t)part] = own;
    }
    for (const Cluster& c : clusters) {
      squares += c.harm * c.harm;
      noise += c.noise * c.noise;
      vanished += c.vanished;
      path = std::max(path, c.path_error);
      if (std::isnan(c.path_error)) path = infinity;
    }
    out.log_z[b] = log_z.total;
    // Errors of different clusters are independent: four standard deviations of their sum.
    out.error[b] = 4 * std::sqrt(squares) + path;
    out.vanished[b] = vanished;
    out.noise[b] = wide ? power : 4 * std::sqrt(noise) + longest;
  }
}

}  // namespace tallytree
