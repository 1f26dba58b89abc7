// Drives the thread pool alone: every shape of a loop, loops inside loops, and many pools at once. Usage: stress_pool
// COMMAND. It says what failed on stderr and then exits with 1. `race` and `overrun` are planted faults, which a
// sanitizer must find.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../cuvil/runtime/src/thread_pool.h"

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                        \
    }                                                                 \
  } while (0)

namespace {

constexpr int64_t kMaxCount = 257;
constexpr int64_t kCounts[] = {1, 2, 3, 7, 8, 9, 64, kMaxCount};
constexpr int64_t kRows[] = {2, 5, 40};
constexpr int64_t kGrains[] = {0, 1, 2, 5, 300};
constexpr int64_t kThreads[] = {1, 2, 3, 8};

// Plain words, so that a sanitizer sees two threads meet on one.
struct Loop {
  cuvil::ThreadPool *pool;
  int64_t inner_count;
  int64_t visits[kMaxCount];
};

void visit(void *arguments, int64_t begin, int64_t end) {
  Loop *loop = (Loop *)arguments;
  for (int64_t i = begin; i < end; ++i) ++loop->visits[i];
}

// Each element runs a loop of its own over a row, with the pool that is busy with this one.
void visit_rows(void *arguments, int64_t begin, int64_t end) {
  const Loop *outer = (const Loop *)arguments;
  for (int64_t i = begin; i < end; ++i) {
    Loop row = {outer->pool, 0, {}};
    cuvil::parallel_for(outer->pool, visit, &row, outer->inner_count, 1);
    int64_t sum = 0;
    for (int64_t k = 0; k < outer->inner_count; ++k) sum += row.visits[k];
    ((Loop *)arguments)->visits[i] += sum;
  }
}

void expect_visits(const Loop &loop, int64_t count, int64_t each) {
  for (int64_t i = 0; i < kMaxCount; ++i) CHECK(loop.visits[i] == (i < count ? each : 0));
}

// Fewer elements than threads, none at all, grains that forbid a split, and counts that don't divide.
void try_shapes(cuvil::ThreadPool *pool) {
  for (int64_t count : kCounts) {
    for (int64_t grain : kGrains) {
      Loop loop = {pool, 0, {}};
      for (int repeat = 0; repeat < 3; ++repeat) cuvil::parallel_for(pool, visit, &loop, count, grain);
      expect_visits(loop, count, 3);
    }
  }
  Loop nothing = {pool, 0, {}};
  cuvil::parallel_for(pool, visit, &nothing, 0, 1);
  cuvil::parallel_for(pool, visit, &nothing, -5, 1);
  expect_visits(nothing, 0, 0);
}

void try_nested(cuvil::ThreadPool *pool) {
  for (int64_t count : kRows) {
    Loop loop = {pool, 9, {}};
    cuvil::parallel_for(pool, visit_rows, &loop, count, 1);
    expect_visits(loop, count, 9);
  }
}

void command_shapes() {
  for (int64_t num_threads : kThreads) {
    cuvil::ThreadPool *pool = cuvil::create_thread_pool(num_threads);
    CHECK(pool != nullptr);
    try_shapes(pool);
    try_nested(pool);
    cuvil::destroy_thread_pool(pool);
  }
}

void *come_and_go(void *) {
  for (int round = 0; round < 6; ++round) {
    cuvil::ThreadPool *pool = cuvil::create_thread_pool(1 + round % 4);
    CHECK(pool != nullptr);
    try_shapes(pool);
    try_nested(pool);
    cuvil::destroy_thread_pool(pool);
  }
  return nullptr;
}

// Many pools at once, each made, used and destroyed by a thread of its own.
void command_many() {
  pthread_t threads[6];
  for (pthread_t &thread : threads) CHECK(pthread_create(&thread, nullptr, come_and_go, nullptr) == 0);
  for (pthread_t &thread : threads) CHECK(pthread_join(thread, nullptr) == 0);
}

// Pools that are destroyed as soon as they are made, before their workers have begun to wait.
void command_churn() {
  for (int i = 0; i < 100; ++i) {
    cuvil::ThreadPool *pool = cuvil::create_thread_pool(4);
    CHECK(pool != nullptr);
    cuvil::destroy_thread_pool(pool);
  }
}

void touch_first(void *arguments, int64_t, int64_t) { ++((Loop *)arguments)->visits[0]; }

// A loop whose ranges write the same word.
void command_race() {
  cuvil::ThreadPool *pool = cuvil::create_thread_pool(4);
  Loop loop = {pool, 0, {}};
  for (int repeat = 0; repeat < 100; ++repeat) cuvil::parallel_for(pool, touch_first, &loop, 64, 1);
  cuvil::destroy_thread_pool(pool);
}

// A write behind the end of an allocation.
void command_overrun(void *(*volatile allocate)(size_t)) {
  volatile char *memory = (volatile char *)allocate(8);
  memory[8] = 1;
  free((void *)memory);
}

}  // namespace

int main(int count, char **arguments) {
  CHECK(count == 2);
  if (strcmp(arguments[1], "shapes") == 0) return command_shapes(), 0;
  if (strcmp(arguments[1], "many") == 0) return command_many(), 0;
  if (strcmp(arguments[1], "churn") == 0) return command_churn(), 0;
  if (strcmp(arguments[1], "race") == 0) return command_race(), 0;
  if (strcmp(arguments[1], "overrun") == 0) return command_overrun(malloc), 0;
  CHECK(!"known command");
}
