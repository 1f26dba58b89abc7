// A session: one model, one arena, one thread pool, one run at a time.

#include <pthread.h>
#include <stdlib.h>

#include "cuvil/runtime.h"
#include "float_environment.h"
#include "model.h"
#include "thread_pool.h"

struct cuvil_session {
  cuvil_model *model;
  cuvil::ThreadPool *pool;
  void *arena;
  cuvil_services services;
  pthread_mutex_t running;
};

namespace {

using cuvil::kAlignmentBytes;

constexpr int64_t kMaxThreads = 1024;

void *allocate_arena(int64_t size_bytes) {
  const size_t alignment = kAlignmentBytes;
  return aligned_alloc(alignment, ((size_t)size_bytes / alignment + 1) * alignment);
}

cuvil_status fill_session(cuvil_session *session, cuvil_model *model, int64_t num_threads) {
  session->arena = allocate_arena(model->info.arena_bytes);
  if (session->arena == nullptr) return CUVIL_OUT_OF_MEMORY;
  session->pool = cuvil::create_thread_pool(num_threads);
  if (session->pool == nullptr) return CUVIL_NO_THREADS;
  session->services = {sizeof(cuvil_services), cuvil::kModelAbiVersion, session->pool, cuvil::parallel_for};
  pthread_mutex_init(&session->running, nullptr);
  cuvil::hold_model(model);
  session->model = model;
  return CUVIL_OK;
}

void free_session(cuvil_session *session) {
  if (session->pool != nullptr) cuvil::destroy_thread_pool(session->pool);
  free(session->arena);
  free(session);
}

bool usable_pointer(const void *pointer, const cuvil_tensor_info &tensor) {
  if (pointer == nullptr) return tensor.size_bytes == 0;
  return (uintptr_t)pointer % (uintptr_t)cuvil::element_size_bytes(tensor.dtype) == 0;
}

bool usable_pointers(const void *const *pointers, const cuvil_tensor_info *tensors, int64_t count) {
  if (pointers == nullptr) return count == 0;
  for (int64_t i = 0; i < count; ++i)
    if (!usable_pointer(pointers[i], tensors[i])) return false;
  return true;
}

cuvil_status run_locked(cuvil_session *session, const int64_t *dimensions, const void *const *inputs,
                        void *const *outputs) {
  if (!cuvil::revive_after_fork(session->pool)) return CUVIL_NO_THREADS;
  cuvil::FloatStateKeeper keeper;
  cuvil::write_float_state(cuvil::kStrictFloatState);
  const cuvil_model *model = session->model;
  const int64_t result = model->run(&session->services, model->weights, inputs, outputs, session->arena, dimensions);
  return result == 0 ? CUVIL_OK : CUVIL_RUN_FAILED;
}

}  // namespace

cuvil_status cuvil_session_create(cuvil_model *model, int64_t num_threads, cuvil_session **session) {
  if (session != nullptr) *session = nullptr;
  if (model == nullptr || session == nullptr) return CUVIL_INVALID_ARGUMENT;
  if (num_threads < 0 || num_threads > kMaxThreads) return CUVIL_INVALID_ARGUMENT;
  if (num_threads == 0) num_threads = cuvil::usable_processors();
  cuvil_session *made = (cuvil_session *)calloc(1, sizeof(cuvil_session));
  if (made == nullptr) return CUVIL_OUT_OF_MEMORY;
  const cuvil_status status = fill_session(made, model, num_threads < kMaxThreads ? num_threads : kMaxThreads);
  if (status != CUVIL_OK)
    free_session(made);
  else
    *session = made;
  return status;
}

void cuvil_session_release(cuvil_session *session) {
  if (session == nullptr) return;
  cuvil_model *model = session->model;
  pthread_mutex_destroy(&session->running);
  free_session(session);
  cuvil_model_release(model);
}

cuvil_status cuvil_session_run(cuvil_session *session, const void *const *inputs, void *const *outputs) {
  return cuvil_session_run_bound(session, nullptr, inputs, outputs);
}

cuvil_status cuvil_session_run_bound(cuvil_session *session, const int64_t *dimensions, const void *const *inputs,
                                     void *const *outputs) {
  if (session == nullptr || !cuvil::usable_dimensions(session->model, dimensions)) return CUVIL_INVALID_ARGUMENT;
  const cuvil::ModelInfo &info = session->model->info;
  if (!usable_pointers(inputs, info.tensors, info.num_inputs) ||
      !usable_pointers((const void *const *)outputs, info.tensors + info.num_inputs, info.num_outputs))
    return CUVIL_INVALID_ARGUMENT;
  pthread_mutex_lock(&session->running);
  const cuvil_status status = run_locked(session, dimensions, inputs, outputs);
  pthread_mutex_unlock(&session->running);
  return status;
}

int64_t cuvil_session_worker_runs(const cuvil_session *session) { return cuvil::worker_runs(session->pool); }
