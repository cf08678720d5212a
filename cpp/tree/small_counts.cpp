// The count distribution at a root of many small models: the way up, and the logarithm of the root's message.
//
// The root's own table joins after the logarithm, so its range does not matter. An entry is right to 2^-40 where it is
// 2^40 times what underflow may have taken. A zero is the truth outside the counts that forced and excluded variables
// and the ends of tables leave, and where the root's own table has one; any other may be an underflow.
#include "tree/small_tree.hpp"

namespace tallytree::TT_LEVEL {

namespace {

constexpr double kSure = 40;

// The smallest and largest count that every node of a lane can have.
struct SmallSupport {
  int32_t *low, *high;

  void leaves(const TreeView& f, const double* nu) const {
    for (int32_t d = 0; d < f.leaves; d++) {
      low[d] = nu[d] == __builtin_inf();
      high[d] = nu[d] != -__builtin_inf();
    }
  }
  void merge(const TreeView& f, int32_t i, const double* tables, bool weigh) const {
    const int32_t v = f.leaves + i, a = f.left[i], b = f.right[i];
    low[v] = low[a] + low[b];
    high[v] = high[a] + high[b];
    if (!weigh || f.table_offset[i] < 0) return;
    const double* log_f = tables + f.table_offset[i];
    while (low[v] < high[v] && log_f[low[v]] == -__builtin_inf()) low[v]++;
    while (low[v] < high[v] && log_f[high[v]] == -__builtin_inf()) high[v]--;
  }
};

// Marks the nodes of the tree under `root`.
void mark_below(const TreeView& f, int32_t root, int32_t* marked) {
  for (int32_t i = root - f.leaves; i >= 0; i--) {
    const int32_t v = f.leaves + i, parent = f.parent[v];
    marked[i] = v == root || (parent >= 0 && parent <= root && marked[parent - f.leaves]);
  }
}

}  // namespace

void small_counts(const TreeView& f, const SmallModels& in, int32_t node, double* scratch, double* const* out,
                  bool* certain) {
  SmallTree<vec*> up(f, in, scratch);
  const int32_t root = node - f.leaves;
  int32_t* marked = up.room.take_other<int32_t>(f.inner);
  mark_below(f, node, marked);
  for (int32_t i = 0; i <= root; i++)
    if (marked[i]) up.merge(i, i != root);
  const ptrdiff_t n = f.size[node] + 1;
  vec* c = up.up[node];
  // A lane that lost everything has no certain entry, whatever is enough.
  const vec enough = pow2(min(max(up.lost_up[node] + kSure, splat(-1000.0)), splat(1000.0)));
  vec doubtful = vec{};  // how many entries of each lane
  SmallSupport support = {up.room.take_other<int32_t>((ptrdiff_t)f.leaves + f.inner),
                         up.room.take_other<int32_t>((ptrdiff_t)f.leaves + f.inner)};
  for (ptrdiff_t k = 0; k < n; k++) doubtful += c[k] > enough ? vec{} : splat(1.0);
  for (int l = 0; l < in.count; l++) {
    const double* log_f = in.tables[l] + f.table_offset[root];
    certain[l] = up.lost_up[node][l] < -kSure;
    if (!certain[l] || doubtful[l] == 0) continue;
    support.leaves(f, in.nu[l]);
    for (int32_t i = 0; i <= root; i++)
      if (marked[i]) support.merge(f, i, in.tables[l], i != root);
    for (ptrdiff_t k = support.low[node]; k <= support.high[node]; k++)
      certain[l] &= c[k][l] > enough[l] || (f.table_offset[root] >= 0 && log_f[k] == -__builtin_inf());
  }
  // log P = log c + log f, up to a constant that makes it a distribution.
  const double low = -__builtin_inf();
  vec top = splat(low);
  if (f.table_offset[root] >= 0) {
    const double* rows[8];
    for (int l = 0; l < 8; l++) rows[l] = in.tables[in.shared_tables ? 0 : l] + f.table_offset[root];
    by_entry(rows, kLanes, n, [&](ptrdiff_t k, vec x) { c[k] = c[k] > 0.0 ? log(c[k]) + x : splat(low); });
  } else {
    for (ptrdiff_t k = 0; k < n; k++) c[k] = c[k] > 0.0 ? log(c[k]) : splat(low);
  }
  for (ptrdiff_t k = 0; k < n; k++) top = max(top, c[k]);
  vec sum = vec{};
  for (ptrdiff_t k = 0; k < n; k++) sum += exp(c[k] - top);
  const vec norm = top + log(sum);
  to_rows(out, in.count, n, [&](ptrdiff_t k) { return c[k] - norm; });
  for (int l = 0; l < in.count; l++) certain[l] &= top[l] > low;
}

}  // namespace tallytree::TT_LEVEL
