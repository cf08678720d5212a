// Upward messages: which counts can occur, then one convolution per node. Downward: samples.
#include "sample/tree.hpp"

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/constants.hpp"
#include "base/parallel.hpp"
#include "base/sigmoid.hpp"
#include "base/workspace.hpp"

namespace tallytree {

static constexpr int64_t kWideLevel = 32;  // nodes that are worth being shared among threads

SampleTree::SampleTree(const SampleTreeInput& in, const SampleKernels& kernels, int threads)
    : kernels_(kernels), blocks_(in.blocks()), nodes_((int64_t)in.left.size()), left_(in.left.begin(), in.left.end()),
      right_(in.right.begin(), in.right.end()), roots_(in.roots.begin(), in.roots.end()) {
  collect(in);
  bound(in);
  if (impossible_) return;
  order_nodes();
  pass_up(in, threads);
}

// Variables with finite log-odds stay in their blocks, the others are drawn by themselves.
void SampleTree::collect(const SampleTreeInput& in) {
  const double tilt = in.windowed ? in.tilt : 0.0;
  start_.push_back(0);
  forced_.assign(blocks_, 0);
  for (int64_t b = 0; b < blocks_; b++) {
    for (int64_t i = in.start[b]; i < in.start[b + 1]; i++) {
      const int64_t v = in.variables[i];
      if (std::isfinite(in.nu[v])) {
        variables_.push_back(v);
        nu_.push_back(in.nu[v] + tilt);
      } else {
        independent_.push_back(v);
        forced_[b] += in.nu[v] > 0;
      }
    }
    start_.push_back((int64_t)variables_.size());
  }
  independent_.insert(independent_.end(), in.free.begin(), in.free.end());
  std::sort(independent_.begin(), independent_.end());
  for (int64_t v : independent_) independent_nu_.push_back(in.nu[v]);
  for (const auto* held : {&variables_, &independent_})
    for (const int64_t v : *held) width_ = std::max(width_, v + 1);
}

// Smallest and largest count of every block and node: from zeros in tables upwards, from parents downwards.
void SampleTree::bound(const SampleTreeInput& in) {
  const int64_t total = blocks_ + nodes_;
  low_.resize(total);
  high_.resize(total);
  std::vector<double> mean(in.windowed ? total : 0), variance(mean.size());
  for (int64_t id = 0; id < total; id++) {
    if (id < blocks_) {
      low_[id] = forced_[id];
      high_[id] = low_[id] + start_[id + 1] - start_[id];
      if (in.windowed) mean[id] = (double)forced_[id];
      for (int64_t i = start_[id]; in.windowed && i < start_[id + 1]; i++) {
        mean[id] += sigmoid(nu_[i]);
        variance[id] += spread(nu_[i]);
      }
    } else {
      const int64_t a = left_[id - blocks_], b = right_[id - blocks_];
      low_[id] = low_[a] + low_[b];
      high_[id] = high_[a] + high_[b];
      if (in.windowed) mean[id] = mean[a] + mean[b], variance[id] = variance[a] + variance[b];
    }
    if (in.table[id] >= 0) {
      const double* table = in.tables.data() + in.table[id];
      while (low_[id] <= high_[id] && table[low_[id]] == -kInfinity) low_[id]++;
      while (low_[id] <= high_[id] && table[high_[id]] == -kInfinity) high_[id]--;
    }
    if (in.windowed) {
      const double c = in.budget / 3.0, radius = c + std::sqrt(c * c + 2.0 * in.budget * variance[id]);  // Bernstein
      // Compared as doubles: a wide budget may reach beyond all integers.
      low_[id] = (int64_t)std::max((double)low_[id], std::floor(mean[id] - radius));
      high_[id] = (int64_t)std::min((double)high_[id], std::ceil(mean[id] + radius));
    }
    impossible_ |= low_[id] > high_[id];
    if (impossible_) return;
  }
  if (in.windowed && !roots_.empty()) {
    low_[roots_[0]] = std::max(low_[roots_[0]], in.low);
    high_[roots_[0]] = std::min(high_[roots_[0]], in.high);
    impossible_ |= low_[roots_[0]] > high_[roots_[0]];
  }
  for (int64_t i = nodes_ - 1; i >= 0 && !impossible_; i--) {
    const int64_t p = blocks_ + i;
    for (int side = 0; side < 2; side++) {
      const int64_t x = side ? right_[i] : left_[i], y = side ? left_[i] : right_[i];
      low_[x] = std::max(low_[x], low_[p] - high_[y]);
      high_[x] = std::min(high_[x], high_[p] - low_[y]);
    }
  }
}

void SampleTree::pass_up(const SampleTreeInput& in, int threads) {
  const int64_t total = blocks_ + nodes_;
  place_.assign(total + 1, 0);
  for (int64_t id = 0; id < total; id++) {
    const int64_t length = high_[id] - low_[id] + 1;
    place_[id + 1] = place_[id] + length;
    longest_ = std::max(longest_, length);
  }
  up_.resize(place_[total]);
  auto weigh = [&](int64_t id) {
    double* up = up_.data() + place_[id];
    const double* table = in.table[id] < 0 ? nullptr : in.tables.data() + in.table[id] + low_[id];
    for (int64_t k = 0; table && k <= high_[id] - low_[id]; k++) up[k] += table[k];
  };
  const int64_t grain = 16;
  const int64_t tiles = (blocks_ + grain - 1) / grain;
  parallel_for(tiles, blocks_ < 64 ? 1 : threads, [&](int64_t tile) {
    double message[kBlock + 1];
    for (int64_t b = tile * grain; b < std::min(blocks_, (tile + 1) * grain); b++) {
      kernels_.block_message(nu_.data() + start_[b], (int)(start_[b + 1] - start_[b]), message);
      std::copy(message + (low_[b] - forced_[b]), message + (high_[b] - forced_[b] + 1), up_.data() + place_[b]);
      weigh(b);
    }
  });
  // One level is shared among threads where that is worth waking them.
  std::vector<WorkerMemory> memory(std::max(threads, 1));
  for (size_t l = level_.size() - 1; l-- > 0;) {
    const int64_t begin = level_[l], end = level_[l + 1];
    double work = 0;
    for (int64_t i = begin; i < end; i++) {
      const MessageView a = message(left_[order_[i] - blocks_]), b = message(right_[order_[i] - blocks_]);
      work += (double)a.length * (double)b.length;
    }
    run_tasks((size_t)(end - begin), work < 3e5 ? 1 : threads, [&](size_t i, int thread) {
      const int64_t id = order_[begin + (int64_t)i];
      const MessageView a = message(left_[id - blocks_]), b = message(right_[id - blocks_]);
      memory[thread].arena.reset();
      Worker worker = memory[thread].worker((size_t)(a.length + b.length));
      const int64_t origin = a.low + b.low;
      kernels_.log_convolve(a.log_weight, a.length, b.log_weight, b.length, low_[id] - origin, high_[id] - origin,
                            up_.data() + place_[id], worker);
      weigh(id);
    });
  }
  for (int64_t root : roots_) {
    const MessageView m = message(root);
    impossible_ |= *std::max_element(m.log_weight, m.log_weight + m.length) == -kInfinity;
  }
}

// Nodes by depth. Wide levels are shared by nodes, runs of thin ones by samples.
void SampleTree::order_nodes() {
  std::vector<int64_t> depth(blocks_ + nodes_, 0);
  for (int64_t i = nodes_ - 1; i >= 0; i--) depth[left_[i]] = depth[right_[i]] = depth[blocks_ + i] + 1;
  order_.resize(nodes_);
  for (int64_t i = 0; i < nodes_; i++) order_[i] = blocks_ + i;
  std::stable_sort(order_.begin(), order_.end(), [&](int64_t a, int64_t b) { return depth[a] < depth[b]; });
  for (int64_t i = 0; i < nodes_; i++)
    if (i == 0 || depth[order_[i]] > depth[order_[i - 1]]) level_.push_back(i);
  level_.push_back(nodes_);
  for (size_t l = 0; l + 1 < level_.size(); l++) {
    const int64_t begin = level_[l], end = level_[l + 1];
    const bool wide = end - begin >= kWideLevel;
    if (!wide && !stages_.empty() && !stages_.back().wide) stages_.back().end = end;
    else stages_.push_back({begin, end, wide});
  }
}

// -- downward: roots, then nodes by depth, then blocks; which thread does what never changes a sample -----------------

static constexpr ptrdiff_t kCounts = 8 << 20;  // counts of all nodes held at a time
static constexpr int64_t kTile = 8;            // blocks that a thread writes together: neighbours in memory
static constexpr double kWorthThreads = 3e5;   // decisions below which one thread is quicker

struct SampleTree::Room {
  std::vector<uint64_t> bits;
  std::vector<int32_t> order;
  std::vector<double> scratch;
  std::unique_ptr<BlockTable[]> table;  // of the blocks of a tile
};

int64_t SampleTree::tiles() const { return (all_blocks() + kTile - 1) / kTile; }

// Samples first..first + count of a call, in groups of 64.
struct SampleTree::Work {
  uint8_t* out;
  ptrdiff_t stride;
  const int64_t* rows;
  const int64_t* totals;
  ptrdiff_t first, count;
  SampleKey key;
  std::vector<int32_t> counts;  // (blocks + nodes, capacity)
  ptrdiff_t capacity;
  ptrdiff_t groups_per_task;

  int32_t* of(int64_t id) { return counts.data() + id * capacity; }
  uint32_t group(ptrdiff_t sample) const { return (uint32_t)((first + sample) / kBlock); }
};

void SampleTree::draw_roots(Work& work, int64_t i, Room& room) const {
  const int64_t root = roots_[i];
  int32_t* to = work.of(root);
  if (i == 0 && work.totals) {
    for (ptrdiff_t s = 0; s < work.count; s++) to[s] = (int32_t)work.totals[work.first + s];
    return;
  }
  kernels_.random_bits(&work.key, kTagRoot, (uint32_t)root, work.group(0), work.count, room.bits.data());
  const MessageView m = message(root);
  kernels_.pick_counts(&m, room.bits.data(), work.count, to, room.scratch.data());
}

void SampleTree::draw_node(Work& work, int64_t node, ptrdiff_t first, ptrdiff_t last, Room& room) const {
  const int64_t a = left_[node - blocks_], b = right_[node - blocks_];
  const MessageView left = message(a), right = message(b);
  const int32_t* parent = work.of(node) + first;
  kernels_.random_bits(&work.key, kTagSplit, (uint32_t)node, work.group(first), last - first, room.bits.data());
  kernels_.split(&left, &right, parent, room.bits.data(), last - first, work.of(a) + first, work.of(b) + first,
                 room.order.data(), room.scratch.data());
}

// A tile of blocks for a range of groups: the table of a block is made once, the rows of a group are written together.
void SampleTree::draw_tile(Work& work, int64_t task, Room& room) const {
  const int64_t tile = task % tiles(), part = task / tiles();
  const int64_t begin = tile * kTile, end = std::min(all_blocks(), begin + kTile);
  auto extent = [&](int64_t b, int64_t& from, int64_t& to) {
    if (b < blocks_) {
      from = start_[b], to = start_[b + 1];
    } else {
      from = (b - blocks_) * kBlock, to = std::min<int64_t>(from + kBlock, (int64_t)independent_.size());
    }
  };
  for (int64_t b = begin; b < end; b++) {
    int64_t from, to;
    extent(b, from, to);
    if (b < blocks_) kernels_.block_table(nu_.data() + from, (int)(to - from), &room.table[b - begin]);
    else kernels_.independent_table(independent_nu_.data() + from, (int)(to - from), &room.table[b - begin]);
  }
  const ptrdiff_t stop = std::min<ptrdiff_t>(work.count, (part + 1) * work.groups_per_task * kBlock);
  uint64_t words[kBlock];
  int32_t counts[kBlock];
  for (ptrdiff_t s = part * work.groups_per_task * kBlock; s < stop; s += kBlock) {
    const int lanes = (int)std::min<ptrdiff_t>(kBlock, work.count - s);
    for (int64_t b = begin; b < end; b++) {
      int64_t from, to;
      extent(b, from, to);
      if (from == to) continue;
      const bool counted = b < blocks_;
      for (int lane = 0; counted && lane < lanes; lane++) counts[lane] = work.of(b)[s + lane] - (int32_t)forced_[b];
      kernels_.draw_block(&room.table[b - begin], counts, lanes, &work.key, counted ? kTagBlock : kTagIndependent,
                          (uint32_t)(counted ? b : b - blocks_), work.group(s), words);
      const int64_t* variables = (counted ? variables_ : independent_).data() + from;
      kernels_.write_block(words, lanes, variables, (int)(to - from), variables[to - from - 1] - variables[0] == to - from - 1,
                           work.out, work.rows + work.first + s, work.stride);
    }
  }
}

// One room per thread. Every stage needs the counts that the stage before it drew.
void SampleTree::run(Work& work, std::vector<Room>& rooms) const {
  const int threads = (int)rooms.size();
  run_tasks(roots_.size(), threads, [&](size_t i, int t) { draw_roots(work, (int64_t)i, rooms[(size_t)t]); });
  const ptrdiff_t groups = (work.count + kBlock - 1) / kBlock;
  for (const Stage& stage : stages_) {
    if (stage.wide) {
      run_tasks((size_t)(stage.end - stage.begin), threads, [&](size_t i, int t) {
        draw_node(work, order_[stage.begin + (int64_t)i], 0, work.count, rooms[(size_t)t]);
      });
    } else {
      const ptrdiff_t shares = std::min<ptrdiff_t>(threads, groups);
      run_tasks((size_t)shares, threads, [&](size_t share, int t) {
        const ptrdiff_t first = groups * (ptrdiff_t)share / shares * kBlock;
        const ptrdiff_t last = std::min<ptrdiff_t>(work.count, groups * (ptrdiff_t)(share + 1) / shares * kBlock);
        for (int64_t i = stage.begin; i < stage.end; i++) draw_node(work, order_[i], first, last, rooms[(size_t)t]);
      });
    }
  }
  const int64_t parts = (groups + work.groups_per_task - 1) / work.groups_per_task;
  run_tasks((size_t)(tiles() * parts), threads, [&](size_t i, int t) { draw_tile(work, (int64_t)i, rooms[(size_t)t]); });
}

void SampleTree::draw(uint8_t* out, ptrdiff_t stride, const int64_t* rows, ptrdiff_t samples, const SampleKey& key,
                        const int64_t* totals, int threads) const {
  if (impossible_ || samples == 0) return;
  const ptrdiff_t ids = std::max<ptrdiff_t>(1, blocks_ + nodes_);
  const ptrdiff_t most = std::max<ptrdiff_t>(kBlock, kCounts / ids / kBlock * kBlock);
  const double decisions = (double)samples * (double)(variables_.size() + independent_.size() + 8 * nodes_);
  if (decisions < kWorthThreads) threads = 1;
  threads = std::max(threads, 1);
  std::vector<Room> rooms(threads);
  const ptrdiff_t capacity = std::min(samples, most);
  for (Room& room : rooms) {
    room.bits.resize(capacity + kBlock);
    room.order.resize(split_order(capacity, longest_));
    room.scratch.resize(split_scratch(longest_));
    room.table.reset(new BlockTable[std::clamp<int64_t>(all_blocks(), 1, kTile)]);  // left uninitialised
  }
  Work work{out, stride, rows, totals, 0, 0, key, std::vector<int32_t>(ids * capacity), capacity, 1};
  for (ptrdiff_t first = 0; first < samples; first += capacity) {
    work.first = first;
    work.count = std::min(capacity, samples - first);
    const ptrdiff_t groups = (work.count + kBlock - 1) / kBlock;
    // Few tiles: cut the samples as well, but not so finely that making tables dominates.
    const ptrdiff_t wanted = std::max<ptrdiff_t>(1, groups * std::max<int64_t>(1, tiles()) / (4 * threads));
    work.groups_per_task = std::min(groups, std::max<ptrdiff_t>(8, wanted));
    run(work, rooms);
  }
}

}  // namespace tallytree
