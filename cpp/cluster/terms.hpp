// What the operations of a cluster program do to states, for any arithmetic.
//
// A product is a list of terms (x, y, out): row `out` of the result gains the product of row x of the first operand with
// row y of the second, an edge's table already in it. Everything is static: files of several instruction sets include it.
#pragma once
#include "cluster/types.hpp"

namespace tallytree {

struct Term {
  int x, y, out;
};

static inline int states_of(int kind, int K) { return kind == kScalar ? 1 : kind == kVector ? K : K * K; }
static inline int first_kind(int op, int kind) {
  if (op == kThrough || op == kSum) return kVector;
  if (op == kTurn || op == kTable) return kind;
  if (op == kJoin) return kScalar;
  return op == kClose || op == kCompress || op == kScalePath ? kMatrix : kVector;
}

// The terms of a product; returns their number, at most K^3.
static inline int list_terms(int op, int K, Term* out) {
  int n = 0;
  const int P = op == kJoin ? 1 : K;
  const int Q = op == kClose || op == kCompress ? K : 1;
  const int R = op == kHang || op == kCompress || op == kScalePath || op == kOuter ? K : 1;
  for (int p = 0; p < P; p++)
    for (int q = 0; q < Q; q++)
      for (int r = 0; r < R; r++) {
        Term t = {p, 0, R > 1 ? p * K + r : p};
        switch (op) {
          case kRake: t.y = p; break;
          case kHang: t.y = p * K + r; break;
          case kClose: t.x = p * K + q; t.y = q; break;
          case kCompress: t.x = p * K + q; t.y = q * K + r; break;
          case kScalePath: t.x = p * K + r; break;
          case kOuter: t.y = r; break;
          default: break;
        }
        out[n++] = t;
      }
  return n;
}

// An entry of an edge's table, the upper vertex's state first.
static inline double entry(const double* t, bool flip, int K, int p, int q) { return flip ? t[q * K + p] : t[p * K + q]; }

}  // namespace tallytree
