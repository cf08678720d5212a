// Downward: roots, then nodes by depth, then blocks; which thread does what never changes a sample.
#include <algorithm>
#include <memory>

#include "base/parallel.hpp"
#include "sample/tree.hpp"

namespace tallytree {

namespace {

constexpr ptrdiff_t kCounts = 8 << 20;  // counts of all nodes held at a time
constexpr int64_t kTile = 8;            // blocks that a thread writes together: neighbours in memory
constexpr double kWorthThreads = 3e5;   // decisions below which one thread is quicker

}  // namespace

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
  kernels_.choose(&m, room.bits.data(), work.count, to, room.scratch.data());
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
      from = (b - blocks_) * kBlock, to = std::min<int64_t>(from + kBlock, (int64_t)plain_.size());
    }
  };
  for (int64_t b = begin; b < end; b++) {
    int64_t from, to;
    extent(b, from, to);
    if (b < blocks_) kernels_.block_table(nu_.data() + from, (int)(to - from), &room.table[b - begin]);
    else kernels_.plain_table(plain_nu_.data() + from, (int)(to - from), &room.table[b - begin]);
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
      kernels_.draw_block(&room.table[b - begin], counts, lanes, &work.key, counted ? kTagBlock : kTagPlain,
                          (uint32_t)(counted ? b : b - blocks_), work.group(s), words);
      const int64_t* variables = (counted ? variables_ : plain_).data() + from;
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
  const double decisions = (double)samples * (double)(variables_.size() + plain_.size() + 8 * nodes_);
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
