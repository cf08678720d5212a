#include "cluster/pass.hpp"

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/parallel.hpp"
#include "base/workspace.hpp"
#include "cluster/program_pass.hpp"

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

ClusterItem ClusterInput::item(size_t b, Cluster* clusters) const {
  const size_t K = (size_t)states;
  ClusterItem item = {};
  item.program = &program;
  item.states = states;
  item.log_leaf = log_leaf + b * (size_t)program.variables * K;
  item.edges = edge_tables + (shared_edges ? 0 : b * edges * K * K);
  item.tables = tables + (shared_tables ? 0 : b * entries);
  item.offset = offset;
  item.score = score;
  item.clusters = clusters;
  return item;
}

std::vector<double> identity_of(int states, bool logarithms) {
  std::vector<double> identity((size_t)(states * states), logarithms ? -kInfinity : 0.0);
  for (int k = 0; k < states; k++) identity[(size_t)(k * states + k)] = logarithms ? 0.0 : 1.0;
  return identity;
}

void cluster_pass(const Kernels& kernels, const ClusterInput& models, const SumInput& in, const ClusterOutput& out, int threads) {
  const ClusterView& program = models.program;
  threads = program.nodes < kParallel ? 1 : thread_count(threads);
  const size_t K = (size_t)models.states, D = (size_t)program.variables;
  std::vector<Thread> memory((size_t)threads);
  std::vector<Cluster> clusters((size_t)program.nodes);
  const bool wide = in.arithmetic == kWide;
  const std::vector<double> identity = identity_of(models.states, wide);
  const auto worker_of = [&](int t) { return ClusterWorker{{&memory[(size_t)t].arena, nullptr, 0}, {&memory[(size_t)t].scratch, nullptr, 0}}; };
  const std::shared_ptr<PlanCache> plans = new_plan_cache();

  for (size_t b = 0; b < models.batch; b++) {
    for (Thread& t : memory) t.arena.reset();
    ClusterItem item = models.item(b, clusters.data());
    item.edge_top = in.edge_top + (models.shared_edges ? 0 : b * models.edges);
    item.table_top = in.table_top + (models.shared_tables ? 0 : b * models.sets);
    item.identity = identity.data();
    item.messages = out.messages + b * D * K;
    item.log_edges = out.log_edges + b * models.edges * K * K;
    item.log_counts = out.log_counts + b * models.entries;
    item.keep = in.keep;
    item.plans = plans.get();
    item.use_fft = in.arithmetic == kFourier;
    item.powers = in.powers + (wide ? b * models.sets : 0);
    item.top_set = in.top_set;
    if (in.leaf_move) {
      item.leaf_move = in.leaf_move + b * D * K;
      item.table_move = in.table_move + b * models.entries;
      for (size_t i = 0; i < D * K; i++) item.reach_of_move += std::fabs(item.leaf_move[i]);
      for (size_t i = 0; i < models.entries; i++) item.reach_of_move += std::fabs(item.table_move[i]);
    }
    std::vector<Interval> windows;
    if (wide) windows = possible_counts(models, item.tables);
    item.windows = windows.data();
    const double nothing = in.leaf_move ? 0.0 : -kInfinity;
    if (!in.samples) {
      std::fill_n(item.log_edges, models.edges * K * K, nothing);
      std::fill_n(item.log_counts, models.entries, nothing);
    }
    const auto each_chunk = [&](int level, auto pass) {
      const ptrdiff_t start = models.level_start[level], stop = models.level_start[level + 1];
      const ptrdiff_t chunk = std::clamp<ptrdiff_t>((stop - start) / (4 * threads), 1, kChunk);
      const size_t tasks = (size_t)((stop - start + chunk - 1) / chunk);
      run_tasks(tasks, threads, [&](size_t task, int thread) {
        const ptrdiff_t first = start + (ptrdiff_t)task * chunk, count = std::min(chunk, stop - first);
        ClusterWorker worker = worker_of(thread);
        pass(item, worker, models.order + first, count);
      });
    };
    const ClusterKernels& k = *kernels.cluster;
    for (int level = 0; level < models.levels; level++) each_chunk(level, in.leaf_move ? k.tangent_cluster_up : wide ? k.wide_cluster_up : k.cluster_up);
    if (in.samples) {
      run_tasks(in.samples, threads, [&](size_t i, int thread) {
        const size_t nodes = (size_t)program.nodes;
        std::vector<int> state(nodes, 0), count(nodes, 0);
        ClusterWorker worker = worker_of(thread);
        k.wide_cluster_draw(item, worker, models.order, in.uniform + (b * in.samples + i) * nodes, state.data(), count.data(),
                             out.drawn + (i * models.batch + b) * D);
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
    std::vector<double> ones(2 * models.n_roots + 1, 0.0);  // the adjoint of a root, and its derivative
    for (size_t i = 0; i < models.n_roots; i++) {
      Cluster& c = clusters[(size_t)models.roots[i]];
      ones[2 * i] = 1;
      c.adjoint = c.reach = &ones[2 * i];
      ClusterWorker worker = worker_of(0);
      if (wide) log_z.add(k.wide_cluster_root(item, worker, models.roots[i]));
    }
    for (int level = models.levels; level-- > 0;) each_chunk(level, in.leaf_move ? k.tangent_cluster_down : wide ? k.wide_cluster_down : k.cluster_down);
    // Adjoints take the errors of those above with them.
    std::vector<double> above((size_t)program.nodes, 0.0);
    double longest = 0;
    for (size_t i = (size_t)program.nodes; i-- > 0;) {
      const int32_t node = models.order[i];
      const double own = above[(size_t)node] + clusters[(size_t)node].transform;
      longest = std::max(longest, own);
      for (const int32_t part : {program.a[node], program.b[node]})
        if (part >= 0) above[(size_t)part] = own;
    }
    for (const Cluster& c : clusters) {
      squares += c.harm * c.harm;
      noise += c.noise * c.noise;
      vanished += c.vanished;
      path = std::max(path, c.path_error);
      if (std::isnan(c.path_error)) path = kInfinity;
    }
    out.log_z[b] = log_z.total;
    // Errors of different clusters are independent: four standard deviations of their sum.
    out.error[b] = 4 * std::sqrt(squares) + path;
    out.vanished[b] = vanished;
    out.noise[b] = wide ? power : 4 * std::sqrt(noise) + longest;
  }
}

}  // namespace tallytree
