/* A program that embeds the runtime, valid as C11 and as C++17. Usage: embed COMMAND MODEL [THREADS].
 * It checks what it is asked to, says what failed on stderr and then exits with 1. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuvil/runtime.h"
#include "float_state.h"

#define COUNT 1024
#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                        \
    }                                                                 \
  } while (0)

static float x[COUNT];

/* Values whose product with 1.1 rounds differently in every mode, and subnormals that flushing would lose. */
static void fill_inputs(void) {
  for (int i = 0; i < COUNT; ++i) {
    uint32_t bits = i % 4 == 3 ? 0x00000100u + (uint32_t)i : 0x3f800000u + (uint32_t)i * 7919u;
    if (i % 5 == 2) bits |= 0x80000000u;
    memcpy(&x[i], &bits, sizeof bits);
  }
}

static cuvil_model *load(const char *path) {
  char message[512];
  cuvil_model *model = NULL;
  if (cuvil_model_load(path, message, (int64_t)sizeof message, &model) == CUVIL_OK) return model;
  fprintf(stderr, "%s\n", message);
  exit(1);
}

static cuvil_session *open_session(cuvil_model *model, int64_t num_threads) {
  cuvil_session *session = NULL;
  CHECK(cuvil_session_create(model, num_threads, &session) == CUVIL_OK && session != NULL);
  return session;
}

static cuvil_status run(cuvil_session *session, float *y) {
  const void *inputs[] = {x};
  void *outputs[] = {y};
  return cuvil_session_run(session, inputs, outputs);
}

/* Prints the status and the message of a load. */
static void command_load(const char *path) {
  char message[512] = "untouched";
  cuvil_model *model = NULL;
  const uint64_t before = read_state();
  cuvil_status status = cuvil_model_load(path, message, (int64_t)sizeof message, &model);
  CHECK(read_state() == before);
  CHECK((status == CUVIL_OK) == (model != NULL));
  CHECK((status == CUVIL_OK) == (message[0] == 0));
  printf("%d %s\n", (int)status, message);
  CHECK(cuvil_model_load(path, NULL, 0, &model) == status);
  cuvil_model_release(model);
}

/* Prints the outputs' bits and then how often workers ran. */
static void command_bits(cuvil_model *model, int64_t num_threads) {
  float y[COUNT];
  cuvil_session *session = open_session(model, num_threads);
  for (int repeat = 0; repeat < 50; ++repeat) CHECK(run(session, y) == CUVIL_OK);
  for (int i = 0; i < COUNT; ++i) {
    uint32_t bits;
    memcpy(&bits, &y[i], sizeof bits);
    printf("%08" PRIx32 "%s", bits, i + 1 == COUNT ? "\n" : "");
  }
  printf("%" PRId64 "\n", cuvil_session_worker_runs(session));
  cuvil_session_release(session);
}

/* Describes the model, and what the API refuses. */
static void command_api(cuvil_model *model) {
  float y[COUNT];
  cuvil_tensor_info info;
  cuvil_session *session = NULL;
  const void *inputs[] = {x}, *no_inputs[] = {NULL}, *misaligned[] = {(const char *)x + 1};
  void *outputs[] = {y}, *no_outputs[] = {NULL};
  CHECK(cuvil_abi_version() == 2);
  CHECK(strcmp(cuvil_model_name(model), "scale") == 0 && strcmp(cuvil_model_target(model), "native-linux") == 0);
  CHECK(cuvil_model_input_count(model) == 1 && cuvil_model_output_count(model) == 1);
  CHECK(cuvil_model_input(model, 0, &info) == CUVIL_OK && strcmp(info.name, "x") == 0);
  CHECK(cuvil_model_output(model, 0, &info) == CUVIL_OK && strcmp(info.name, "y") == 0);
  CHECK(info.dtype == 1 && info.rank == 1 && info.dims[0] == COUNT && info.size_bytes == 4 * COUNT);
  CHECK(cuvil_model_input(model, 1, &info) == CUVIL_INVALID_ARGUMENT);
  CHECK(cuvil_model_output(model, -1, &info) == CUVIL_INVALID_ARGUMENT);
  CHECK(cuvil_session_create(model, -1, &session) == CUVIL_INVALID_ARGUMENT && session == NULL);
  CHECK(cuvil_session_create(model, 1025, &session) == CUVIL_INVALID_ARGUMENT && session == NULL);
  CHECK(cuvil_session_create(NULL, 1, &session) == CUVIL_INVALID_ARGUMENT);
  session = open_session(model, 0);
  CHECK(cuvil_session_run(session, NULL, outputs) == CUVIL_INVALID_ARGUMENT);
  CHECK(cuvil_session_run(session, no_inputs, outputs) == CUVIL_INVALID_ARGUMENT);
  CHECK(cuvil_session_run(session, inputs, no_outputs) == CUVIL_INVALID_ARGUMENT);
  CHECK(cuvil_session_run(session, misaligned, outputs) == CUVIL_INVALID_ARGUMENT);
  CHECK(cuvil_session_run(session, inputs, outputs) == CUVIL_OK);
  x[0] = -2.0f; /* the model's own failure */
  CHECK(cuvil_session_run(session, inputs, outputs) == CUVIL_RUN_FAILED);
  CHECK(strlen(cuvil_status_text(CUVIL_RUN_FAILED)) > 0 && strlen(cuvil_status_text((cuvil_status)99)) > 0);
  cuvil_session_release(session);
  cuvil_session_release(NULL);
  cuvil_model_release(NULL);
}

/* A session keeps its model: the caller may give up its own hold first. */
static void command_lifetime(const char *path) {
  float y[COUNT];
  cuvil_model *model = load(path);
  cuvil_session *first = open_session(model, 2), *second = open_session(model, 1);
  cuvil_model_release(model);
  cuvil_session_release(first);
  CHECK(run(second, y) == CUVIL_OK);
  cuvil_session_release(second);
}

/* Loops inside parallel loops give the same result. */
static void command_nested(cuvil_model *model, int64_t num_threads) {
  float plain[COUNT], nested[COUNT];
  cuvil_session *session = open_session(model, num_threads);
  x[0] = 3.0f;
  CHECK(run(session, plain) == CUVIL_OK);
  x[0] = -3.0f;
  CHECK(run(session, nested) == CUVIL_OK);
  CHECK(nested[0] == -plain[0] && memcmp(plain + 1, nested + 1, sizeof plain - sizeof plain[0]) == 0);
  cuvil_session_release(session);
}

/* Takes the model's parts out of the library and attaches them, as a JIT compiler does. */
static void command_attach(const char *path) {
  char message[512];
  float y[COUNT];
  cuvil_run_function entry;
  cuvil_model *model = NULL;
  void *library = dlopen(path, RTLD_NOW);
  CHECK(library != NULL);
  const int64_t *info = (const int64_t *)dlsym(library, "cuvil_model_info");
  const char *strings = (const char *)dlsym(library, "cuvil_model_strings");
  const void *weights = dlsym(library, "cuvil_model_weights");
  void *address = dlsym(library, "cuvil_model_run");
  memcpy(&entry, &address, sizeof entry);
  CHECK(cuvil_model_attach(info, strings, weights, entry, NULL, message, (int64_t)sizeof message, &model) == CUVIL_OK);
  cuvil_session *session = open_session(model, 2);
  CHECK(run(session, y) == CUVIL_OK && y[1] == x[1] * 1.1f);
  cuvil_session_release(session);
  cuvil_model_release(model);
  weights = (const char *)weights + 8;
  CHECK(cuvil_model_attach(info, strings, weights, entry, NULL, message, (int64_t)sizeof message, &model) ==
        CUVIL_INVALID_MODEL);
  CHECK(model == NULL && strstr(message, "weights modulo 64") != NULL);
  CHECK(cuvil_model_attach(NULL, strings, weights, entry, NULL, NULL, 0, &model) == CUVIL_INVALID_ARGUMENT);
}

/* A child of a fork goes on with its parent's session and has workers again. */
static void command_fork(cuvil_model *model, int64_t num_threads) {
  float before[COUNT], after[COUNT];
  int status = 1;
  cuvil_session *session = open_session(model, num_threads);
  CHECK(run(session, before) == CUVIL_OK);
  pid_t child = fork();
  if (child == 0) {
    const int64_t runs = cuvil_session_worker_runs(session);
    CHECK(run(session, after) == CUVIL_OK && memcmp(before, after, sizeof before) == 0);
    CHECK(cuvil_session_worker_runs(session) > runs);
    cuvil_session_release(session);
    _exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK(run(session, after) == CUVIL_OK && memcmp(before, after, sizeof before) == 0);
  cuvil_session_release(session);
}

static void *run_often(void *session) {
  float y[COUNT];
  for (int repeat = 0; repeat < 200; ++repeat) {
    CHECK(run((cuvil_session *)session, y) == CUVIL_OK);
    for (int i = 0; i < COUNT; ++i) CHECK(y[i] == x[i] * 1.1f);
  }
  return NULL;
}

/* Several threads share a session, and others come and go beside it. */
static void command_concurrent(cuvil_model *model, int64_t num_threads) {
  pthread_t threads[3];
  cuvil_session *session = open_session(model, num_threads);
  for (int i = 0; i < 3; ++i) CHECK(pthread_create(&threads[i], NULL, run_often, session) == 0);
  for (int i = 0; i < 20; ++i) {
    cuvil_session *other = open_session(model, num_threads);
    float y[COUNT];
    CHECK(run(other, y) == CUVIL_OK);
    cuvil_session_release(other);
  }
  for (int i = 0; i < 3; ++i) CHECK(pthread_join(threads[i], NULL) == 0);
  CHECK(cuvil_session_worker_runs(session) == 600 * (num_threads - 1));
  cuvil_session_release(session);
}

/* The caller's floating-point state changes no result, and comes back as it was. */
static void command_environment(const char *path, int64_t num_threads) {
  float expected[COUNT], y[COUNT];
  cuvil_model *model = load(path);
  cuvil_session *session = open_session(model, num_threads);
  CHECK(run(session, expected) == CUVIL_OK);
  const uint64_t usual = read_state();
  for (int i = 0; i < HOSTILE_STATES; ++i) {
    write_state(hostile[i]);
    cuvil_model *other_model = load(path);
    const uint64_t after_load = read_state();
    cuvil_session *other = open_session(other_model, num_threads);
    const cuvil_status status = run(other, y);
    const uint64_t after_run = read_state();
    write_state(usual);
    CHECK(status == CUVIL_OK && after_load == hostile[i] && after_run == hostile[i]);
    CHECK(memcmp(expected, y, sizeof y) == 0);
    cuvil_session_release(other);
    cuvil_model_release(other_model);
  }
  CHECK(cuvil_session_worker_runs(session) == num_threads - 1);
  cuvil_session_release(session);
  cuvil_model_release(model);
}

/* The state above does change arithmetic: without that, the test would show nothing. */
static void command_hostile(void) {
  const uint64_t usual = read_state();
  for (int state = 0; state < HOSTILE_STATES; ++state) {
    int differing = 0;
    for (int i = 0; i < COUNT; ++i) {
      volatile float factor = 1.1f, value = x[i];
      volatile float here = value * factor;
      write_state(hostile[state]);
      volatile float there = value * factor;
      write_state(usual);
      differing += here != there;
    }
    CHECK(differing > COUNT / 8);
  }
}

int main(int count, char **arguments) {
  CHECK(count >= 3);
  const char *command = arguments[1], *path = arguments[2];
  const int64_t num_threads = count > 3 ? atoi(arguments[3]) : 1;
  cuvil_model *model = NULL;
  fill_inputs();
  if (strcmp(command, "load") == 0) return command_load(path), 0;
  if (strcmp(command, "lifetime") == 0) return command_lifetime(path), 0;
  if (strcmp(command, "attach") == 0) return command_attach(path), 0;
  if (strcmp(command, "environment") == 0) return command_environment(path, num_threads), 0;
  if (strcmp(command, "hostile") == 0) return command_hostile(), 0;
  model = load(path);
  if (strcmp(command, "bits") == 0)
    command_bits(model, num_threads);
  else if (strcmp(command, "api") == 0)
    command_api(model);
  else if (strcmp(command, "nested") == 0)
    command_nested(model, num_threads);
  else if (strcmp(command, "fork") == 0)
    command_fork(model, num_threads);
  else if (strcmp(command, "concurrent") == 0)
    command_concurrent(model, num_threads);
  else
    CHECK(!"known command");
  cuvil_model_release(model);
  return 0;
}
