// A session's threads. They share out the ranges of parallel loops by a fixed rule, so results can't hang on timing.
#pragma once

#include <stdint.h>

namespace cuvil {

using RangeFunction = void (*)(void *arguments, int64_t begin, int64_t end);

struct ThreadPool;

// A pool of num_threads threads, the caller among them. Null when memory or threads are not to be had.
ThreadPool *create_thread_pool(int64_t num_threads);

// Stops and joins the workers.
void destroy_thread_pool(ThreadPool *pool);

// Threads do not survive a fork: starts them anew in a child. False when the system refuses.
bool revive_after_fork(ThreadPool *pool);

// Calls body for ranges that together are [0, count). pool is a ThreadPool.
void parallel_for(void *pool, RangeFunction body, void *arguments, int64_t count, int64_t grain);

// How many ranges the workers have executed.
int64_t worker_runs(const ThreadPool *pool);

// The number of processors that this process may use, at least 1.
int64_t usable_processors();

}  // namespace cuvil
