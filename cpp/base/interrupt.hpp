// Ctrl-C in the midst of long work.
#pragma once

namespace tallytree {

// To be called between pieces of work that take long together. Now and then it has the interpreter look for signals, if
// this thread is one that gave up the interpreter's lock, and throws what a handler raises. A thread that helps with a job
// which has failed meanwhile leaves it by an exception. Not while a lock is held.
void let_signals_through();

}  // namespace tallytree
