#include "cluster/pass.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "base/parallel.hpp"
#include "base/workspace.hpp"
#include "cluster/terms.hpp"

namespace tallytree {

void arena_forget(Arena* arena) { arena->reset(); }

namespace {

constexpr ptrdiff_t kChunk = 64;   // clusters per task, at most
constexpr int32_t kParallel = 4000;  // programs smaller than this are not worth a second thread

struct Thread {
  Arena arena, scratch;
};

}  // namespace

void cluster_pass(const Kernels& kernels, const ClusterInput& in, const ClusterOutput& out, int threads) {
  threads = in.program.nodes < kParallel ? 1 : thread_count(threads);
  const size_t K = (size_t)in.states, D = (size_t)in.program.variables;
  const double infinity = std::numeric_limits<double>::infinity();
  std::vector<Thread> memory((size_t)threads);
  std::vector<Cluster> clusters((size_t)in.program.nodes);
  std::vector<double> identity(K * K, 0.0);
  for (size_t k = 0; k < K; k++) identity[k * K + k] = 1.0;
  const std::shared_ptr<PlanCache> plans = new_plan_cache();

  for (size_t b = 0; b < in.batch; b++) {
    for (Thread& t : memory) t.arena.reset();
    const size_t edge_row = in.shared_edges ? 0 : b, table_row = in.shared_tables ? 0 : b;
    ClusterItem item = {
        &in.program, in.states, in.log_leaf + b * D * K, in.edge_tables + edge_row * in.edges * K * K,
        in.edge_top + edge_row * in.edges, identity.data(), in.tables + table_row * in.entries,
        in.table_top + table_row * in.sets, in.offset, in.score, clusters.data(), out.messages + b * D * K,
        out.log_edges + b * in.edges * K * K, out.log_counts + b * in.entries, in.keep, plans.get(), in.use_fft};
    std::fill_n(item.log_edges, in.edges * K * K, -infinity);
    std::fill_n(item.log_counts, in.entries, -infinity);
    const auto each_chunk = [&](int level, auto pass) {
      const ptrdiff_t start = in.level_start[level], stop = in.level_start[level + 1];
      const ptrdiff_t chunk = std::clamp<ptrdiff_t>((stop - start) / (4 * threads), 1, kChunk);
      const size_t tasks = (size_t)((stop - start + chunk - 1) / chunk);
      run_tasks(tasks, threads, [&](size_t task, int thread) {
        const ptrdiff_t first = start + (ptrdiff_t)task * chunk, count = std::min(chunk, stop - first);
        ClusterWorker worker = {&memory[(size_t)thread].arena, &memory[(size_t)thread].scratch};
        pass(item, worker, in.order + first, count);
      });
    };
    for (int level = 0; level < in.levels; level++) each_chunk(level, kernels.cluster->cluster_up);
    double squares = 0, noise = 0, path = 0, vanished = 0;
    LogSum log_z;
    for (const Cluster& c : clusters) log_z.add(c.log_scale);
    std::vector<double> ones(in.n_roots + 1, 1.0);
    for (size_t i = 0; i < in.n_roots; i++) {
      Cluster& c = clusters[(size_t)in.roots[i]];
      c.adjoint = c.reach = &ones[i];
    }
    for (int level = in.levels; level-- > 0;) each_chunk(level, kernels.cluster->cluster_down);
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
    out.noise[b] = 4 * std::sqrt(noise) + longest;
  }
}

}  // namespace tallytree
