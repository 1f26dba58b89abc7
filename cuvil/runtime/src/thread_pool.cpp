// Range i of n runs on thread i: range 0 on the caller, the others on workers. Each worker has a signal word of its
// own; it spins on it briefly, then sleeps on it (futex): an idle pool costs nothing, a busy machine is not burdened.

#include "thread_pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "float_environment.h"

namespace cuvil {
namespace {

// Values of Worker::signal.
constexpr uint32_t kIdle = 0;
constexpr uint32_t kAsleep = 1;
constexpr uint32_t kWork = 2;
constexpr uint32_t kStop = 3;

// Set in ThreadPool::pending while the caller sleeps on it.
constexpr uint32_t kCallerAsleep = 0x80000000u;

// Long enough to bridge the serial code between two parallel loops, short enough not to hurt a neighbour.
constexpr int64_t kSpinNs = 20000;
constexpr int kPausesPerClockRead = 32;

struct alignas(64) Worker {
  uint32_t signal;
  int64_t range_index;
  int64_t runs;
  ThreadPool *pool;
  pthread_t thread;
};

struct Job {
  RangeFunction body;
  void *arguments;
  int64_t count;
  int64_t num_ranges;
};

}  // namespace

struct ThreadPool {
  int64_t num_workers;
  int64_t num_started;
  int64_t spin_ns;
  pid_t owner;
  Worker *workers;
  Job job;
  bool busy;
  alignas(64) uint32_t pending;
};

namespace {

void futex_wait(uint32_t *word, uint32_t expected) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

void futex_wake(uint32_t *word) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0); }

int64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void pause_briefly() {
#if defined(__x86_64__)
  __asm__ volatile("pause");
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#elif defined(__riscv)
  __asm__ volatile(".insn i 0x0F, 0, x0, x0, 0x010");  // pause: a hint, a no-op where it is unknown
#endif
}

// Reads the word until `done` accepts it or the time is over; returns what it read last.
template <typename Done>
uint32_t spin(const uint32_t *word, int64_t spin_ns, Done done) {
  uint32_t seen = __atomic_load_n(word, __ATOMIC_ACQUIRE);
  if (done(seen) || spin_ns == 0) return seen;
  const int64_t deadline = now_ns() + spin_ns;
  do {
    for (int i = 0; i < kPausesPerClockRead && !done(seen); ++i) {
      pause_briefly();
      seen = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    }
    // The thread that is waited for may be queued behind this one on the same processor.
    if (!done(seen)) sched_yield();
  } while (!done(seen) && now_ns() < deadline);
  return seen;
}

uint32_t wait_for_signal(Worker *worker) {
  uint32_t seen = spin(&worker->signal, worker->pool->spin_ns, [](uint32_t signal) { return signal != kIdle; });
  if (seen != kIdle) return seen;
  if (!__atomic_compare_exchange_n(&worker->signal, &seen, kAsleep, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
    return seen;
  while ((seen = __atomic_load_n(&worker->signal, __ATOMIC_ACQUIRE)) == kAsleep) futex_wait(&worker->signal, kAsleep);
  return seen;
}

void send_signal(Worker *worker, uint32_t signal) {
  if (__atomic_exchange_n(&worker->signal, signal, __ATOMIC_ACQ_REL) == kAsleep) futex_wake(&worker->signal);
}

void wait_for_workers(ThreadPool *pool) {
  uint32_t left = spin(&pool->pending, pool->spin_ns, [](uint32_t pending) { return pending == 0; });
  if (left == 0) return;
  left = __atomic_or_fetch(&pool->pending, kCallerAsleep, __ATOMIC_ACQ_REL);
  while (left != kCallerAsleep) {
    futex_wait(&pool->pending, left);
    left = __atomic_load_n(&pool->pending, __ATOMIC_ACQUIRE);
  }
}

void report_done(ThreadPool *pool) {
  const uint32_t before = __atomic_fetch_sub(&pool->pending, 1, __ATOMIC_ACQ_REL);
  if (before == (kCallerAsleep | 1)) futex_wake(&pool->pending);
}

// The first `count % num_ranges` ranges are one longer than the others.
int64_t range_begin(const Job &job, int64_t index) {
  const int64_t longer = job.count % job.num_ranges;
  return index * (job.count / job.num_ranges) + (index < longer ? index : longer);
}

void run_range(const Job &job, int64_t index) {
  job.body(job.arguments, range_begin(job, index), range_begin(job, index + 1));
}

void *run_worker(void *argument) {
  Worker *worker = (Worker *)argument;
  write_float_state(kStrictFloatState);
  while (wait_for_signal(worker) == kWork) {
    run_range(worker->pool->job, worker->range_index);
    __atomic_fetch_add(&worker->runs, 1, __ATOMIC_RELAXED);
    // Idle before done: the caller may send the next signal as soon as it sees this range done.
    __atomic_store_n(&worker->signal, kIdle, __ATOMIC_RELAXED);
    report_done(worker->pool);
  }
  return nullptr;
}

// Workers leave the host's signals to the host's own threads, but not the ones that a fault raises.
sigset_t block_host_signals() {
  sigset_t blocked, before;
  sigfillset(&blocked);
  const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};
  for (int fault : faults) sigdelset(&blocked, fault);
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  return before;
}

bool start_workers(ThreadPool *pool) {
  pool->owner = getpid();
  pool->pending = 0;
  pool->busy = false;
  const sigset_t before = block_host_signals();
  for (pool->num_started = 0; pool->num_started < pool->num_workers; ++pool->num_started) {
    Worker *worker = &pool->workers[pool->num_started];
    worker->signal = kIdle;
    worker->range_index = pool->num_started + 1;
    worker->pool = pool;
    if (pthread_create(&worker->thread, nullptr, run_worker, worker) != 0) break;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return pool->num_started == pool->num_workers;
}

void stop_workers(ThreadPool *pool) {
  for (int64_t i = 0; i < pool->num_started; ++i) send_signal(&pool->workers[i], kStop);
  for (int64_t i = 0; i < pool->num_started; ++i) pthread_join(pool->workers[i].thread, nullptr);
  pool->num_started = 0;
}

int64_t count_ranges(const ThreadPool *pool, int64_t count, int64_t grain) {
  const int64_t useful = count / (grain > 0 ? grain : 1);
  const int64_t threads = pool->num_workers + 1;
  return useful < 1 ? 1 : useful < threads ? useful : threads;
}

void *allocate_zeroed(int64_t size_bytes) {
  void *memory = aligned_alloc(64, (size_t)((size_bytes + 63) / 64 * 64));
  if (memory != nullptr) __builtin_memset(memory, 0, (size_t)size_bytes);
  return memory;
}

}  // namespace

ThreadPool *create_thread_pool(int64_t num_threads) {
  ThreadPool *pool = (ThreadPool *)allocate_zeroed(sizeof(ThreadPool));
  if (pool == nullptr) return nullptr;
  pool->num_workers = num_threads - 1;
  // Spinning only pays while every thread has a processor to itself.
  pool->spin_ns = num_threads <= usable_processors() ? kSpinNs : 0;
  pool->workers = (Worker *)allocate_zeroed((int64_t)sizeof(Worker) * num_threads);
  if (pool->workers != nullptr && start_workers(pool)) return pool;
  destroy_thread_pool(pool);
  return nullptr;
}

void destroy_thread_pool(ThreadPool *pool) {
  if (pool->owner == getpid()) stop_workers(pool);
  free(pool->workers);
  free(pool);
}

bool revive_after_fork(ThreadPool *pool) {
  if (pool->num_workers == 0 || pool->owner == getpid()) return true;
  if (start_workers(pool)) return true;
  stop_workers(pool);
  pool->owner = 0;  // no process has this number: the next call tries again
  return false;
}

void parallel_for(void *context, RangeFunction body, void *arguments, int64_t count, int64_t grain) {
  ThreadPool *pool = (ThreadPool *)context;
  if (count <= 0) return;
  const int64_t num_ranges = count_ranges(pool, count, grain);
  // A loop inside a parallel loop runs on the thread that meets it.
  if (num_ranges == 1 || pool->busy) return body(arguments, 0, count);
  pool->busy = true;
  pool->job = {body, arguments, count, num_ranges};
  __atomic_store_n(&pool->pending, (uint32_t)(num_ranges - 1), __ATOMIC_RELEASE);
  for (int64_t i = 0; i < num_ranges - 1; ++i) send_signal(&pool->workers[i], kWork);
  run_range(pool->job, 0);
  wait_for_workers(pool);
  pool->busy = false;
}

int64_t worker_runs(const ThreadPool *pool) {
  int64_t total = 0;
  for (int64_t i = 0; i < pool->num_workers; ++i) total += __atomic_load_n(&pool->workers[i].runs, __ATOMIC_RELAXED);
  return total;
}

int64_t usable_processors() {
  cpu_set_t usable;
  // The call fails on machines with more processors than the set can name.
  const bool known = sched_getaffinity(0, sizeof usable, &usable) == 0;
  const int64_t count = known ? CPU_COUNT(&usable) : sysconf(_SC_NPROCESSORS_ONLN);
  return count > 0 ? count : 1;
}

}  // namespace cuvil
