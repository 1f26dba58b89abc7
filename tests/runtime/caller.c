/* Calls any model as a difficult host program would, valid as C11. Usage: caller COMMAND MODEL.
 * It says what failed on stderr and then exits with 1. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuvil/runtime.h"
#include "float_state.h"

#define MAX_TENSORS 16
#define GUARD_BYTES 64
#define GUARD 0xa5
#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                        \
    }                                                                 \
  } while (0)

/* A buffer that begins `offset` bytes behind a 64-byte boundary, with guard bytes around it. */
struct buffer {
  unsigned char *memory;
  unsigned char *data;
  int64_t size_bytes;
};

static struct buffer allocate(int64_t size_bytes, int64_t offset) {
  struct buffer buffer;
  const size_t whole = ((size_t)(GUARD_BYTES + offset + size_bytes + GUARD_BYTES) + 63) / 64 * 64;
  buffer.memory = (unsigned char *)aligned_alloc(64, whole);
  CHECK(buffer.memory != NULL);
  memset(buffer.memory, GUARD, whole);
  buffer.data = buffer.memory + GUARD_BYTES + offset;
  buffer.size_bytes = size_bytes;
  return buffer;
}

static void check_guards(const struct buffer *buffer) {
  for (const unsigned char *before = buffer->memory; before < buffer->data; ++before) CHECK(*before == GUARD);
  for (int i = 0; i < GUARD_BYTES; ++i) CHECK(buffer->data[buffer->size_bytes + i] == GUARD);
}

/* Floats of all kinds that arithmetic treats differently when flushing or rounding is changed: ordinary ones of both
 * signs, and subnormals. */
static void fill(struct buffer *buffer) {
  for (int64_t i = 0; i < buffer->size_bytes / 4; ++i) {
    uint32_t bits = i % 4 == 3 ? 0x00000100u + (uint32_t)i : 0x3f000000u + (uint32_t)(i * 7919 % 0x00ffffff);
    if (i % 5 == 2) bits |= 0x80000000u;
    memcpy(buffer->data + 4 * i, &bits, sizeof bits);
  }
}

static cuvil_model *load(const char *path) {
  char message[512];
  cuvil_model *model = NULL;
  if (cuvil_model_load(path, message, (int64_t)sizeof message, &model) == CUVIL_OK) return model;
  fprintf(stderr, "%s\n", message);
  exit(1);
}

/* The buffers of one call. */
struct call {
  int64_t num_inputs, num_outputs;
  struct buffer inputs[MAX_TENSORS], outputs[MAX_TENSORS];
};

static struct call prepare(cuvil_model *model, int64_t offset) {
  struct call call;
  cuvil_tensor_info info;
  call.num_inputs = cuvil_model_input_count(model);
  call.num_outputs = cuvil_model_output_count(model);
  CHECK(call.num_inputs <= MAX_TENSORS && call.num_outputs <= MAX_TENSORS);
  for (int64_t i = 0; i < call.num_inputs; ++i) {
    CHECK(cuvil_model_input(model, i, &info) == CUVIL_OK);
    call.inputs[i] = allocate(info.size_bytes, offset);
    fill(&call.inputs[i]);
  }
  for (int64_t i = 0; i < call.num_outputs; ++i) {
    CHECK(cuvil_model_output(model, i, &info) == CUVIL_OK);
    call.outputs[i] = allocate(info.size_bytes, offset);
  }
  return call;
}

static cuvil_status run(cuvil_session *session, struct call *call) {
  const void *inputs[MAX_TENSORS];
  void *outputs[MAX_TENSORS];
  for (int64_t i = 0; i < call->num_inputs; ++i) inputs[i] = call->inputs[i].data;
  for (int64_t i = 0; i < call->num_outputs; ++i) outputs[i] = call->outputs[i].data;
  return cuvil_session_run(session, inputs, outputs);
}

/* The guards stand, the inputs are as they were, the outputs have the same bits as those of the other call. */
static void check_same(const struct call *call, const struct call *expected) {
  for (int64_t i = 0; i < call->num_inputs; ++i) {
    check_guards(&call->inputs[i]);
    CHECK(memcmp(call->inputs[i].data, expected->inputs[i].data, (size_t)call->inputs[i].size_bytes) == 0);
  }
  for (int64_t i = 0; i < call->num_outputs; ++i) {
    check_guards(&call->outputs[i]);
    CHECK(memcmp(call->outputs[i].data, expected->outputs[i].data, (size_t)call->outputs[i].size_bytes) == 0);
  }
}

static void release(struct call *call) {
  for (int64_t i = 0; i < call->num_inputs; ++i) free(call->inputs[i].memory);
  for (int64_t i = 0; i < call->num_outputs; ++i) free(call->outputs[i].memory);
}

/* The bits of a call with aligned buffers and the usual floating-point state: what all others must have. */
static struct call usual_call(cuvil_model *model) {
  cuvil_session *session = NULL;
  struct call call = prepare(model, 0);
  CHECK(cuvil_session_create(model, 1, &session) == CUVIL_OK);
  CHECK(run(session, &call) == CUVIL_OK);
  cuvil_session_release(session);
  return call;
}

/* Buffers at the least alignment that the element type allows. */
static void command_misaligned(cuvil_model *model) {
  struct call expected = usual_call(model);
  for (int64_t num_threads = 1; num_threads <= 3; num_threads += 2) {
    cuvil_session *session = NULL;
    CHECK(cuvil_session_create(model, num_threads, &session) == CUVIL_OK);
    for (int64_t offset = 4; offset < 64; offset += 4) {
      struct call call = prepare(model, offset);
      CHECK(run(session, &call) == CUVIL_OK);
      check_same(&call, &expected);
      release(&call);
    }
    cuvil_session_release(session);
  }
  release(&expected);
}

/* A host that flushes subnormals and rounds in another direction: while it loads, makes a session, and runs. */
static void command_hostile(const char *path) {
  cuvil_model *model = load(path);
  struct call expected = usual_call(model);
  const uint64_t usual = read_state();
  for (int i = 0; i < HOSTILE_STATES; ++i) {
    for (int64_t num_threads = 1; num_threads <= 3; num_threads += 2) {
      cuvil_session *session = NULL;
      struct call call = prepare(model, 0);
      write_state(hostile[i]);
      cuvil_model *other = load(path);
      const cuvil_status created = cuvil_session_create(other, num_threads, &session);
      const cuvil_status ran = run(session, &call);
      const uint64_t after = read_state();
      write_state(usual);
      CHECK(created == CUVIL_OK && ran == CUVIL_OK && after == hostile[i]);
      check_same(&call, &expected);
      cuvil_session_release(session);
      cuvil_model_release(other);
      release(&call);
    }
  }
  release(&expected);
  cuvil_model_release(model);
}

int main(int count, char **arguments) {
  CHECK(count == 3);
  if (strcmp(arguments[1], "hostile") == 0) return command_hostile(arguments[2]), 0;
  cuvil_model *model = load(arguments[2]);
  CHECK(strcmp(arguments[1], "misaligned") == 0);
  command_misaligned(model);
  cuvil_model_release(model);
  return 0;
}
