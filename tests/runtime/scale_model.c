/* A model library written by hand: y = 1.1 * x over x: f32[SIZE], in the ABI that compiled models have.
 * Built freestanding, as compiled models are. Input values choose a special path:
 *   x[0] == -1  crash; x[0] == -2  report a failure; x[0] == -3  nested parallel loops. */
#include "cuvil/runtime.h"

#ifndef SIZE
#define SIZE 1024
#endif
#ifndef MAGIC
#define MAGIC 0x4c49565543
#endif
#ifndef VERSION
#define VERSION 2
#endif
#ifndef WORDS
#define WORDS 23
#endif
#ifndef RANK
#define RANK 1
#endif
#ifndef NAME_OFFSET
#define NAME_OFFSET 19
#endif
#ifndef ARENA_BYTES
#define ARENA_BYTES 256
#endif
#ifndef STRINGS_BYTES
#define STRINGS_BYTES 23
#endif
#ifndef WEIGHTS_BYTES
#define WEIGHTS_BYTES 4
#endif
#ifndef SIZE_BYTES
#define SIZE_BYTES (4 * SIZE)
#endif
#ifndef DTYPE
#define DTYPE 1
#endif

#ifdef FLUSHES
/* What the start-up code of a library does that was linked with -ffast-math: it changes the whole process. */
__attribute__((constructor)) static void flush_subnormals(void) {
#if defined(__x86_64__)
  unsigned state;
  __asm__ volatile("stmxcsr %0" : "=m"(state));
  state |= 0x8040;
  __asm__ volatile("ldmxcsr %0" : : "m"(state));
#elif defined(__aarch64__)
  __asm__ volatile("msr fpcr, %0" : : "r"(INT64_C(0x01000000)));
#else
  __asm__ volatile("fsrmi 1"); /* there is no flushing here; rounding toward zero is as bad */
#endif
}
#endif

#ifndef FEATURES
#define FEATURES 0
#endif
#ifndef MIN_VLEN_BITS
#define MIN_VLEN_BITS 0
#endif

#ifndef DIMENSIONS
#define DIMENSIONS 0
#endif

#define EXPORT __attribute__((visibility("default")))

/* Offsets: 0 target, 13 model, 19 input, 21 output. */
EXPORT const char cuvil_model_strings[] = "native-linux\0scale\0x\0y";

EXPORT const int64_t cuvil_model_info[] = {
    MAGIC, VERSION, WORDS, 1, 1, ARENA_BYTES, WEIGHTS_BYTES, STRINGS_BYTES, 0, 13, FEATURES, MIN_VLEN_BITS,
    DIMENSIONS, NAME_OFFSET, DTYPE, SIZE_BYTES, RANK, SIZE, 21, 1, 4 * SIZE, 1, SIZE,
};

EXPORT _Alignas(64) const float cuvil_model_weights[16] = {1.1f};

struct arguments {
  const cuvil_services *services;
  const float *weights;
  const float *x;
  float *y;
};

static void scale(void *opaque, int64_t begin, int64_t end) {
  const struct arguments *a = opaque;
  for (int64_t i = begin; i < end; ++i) a->y[i] = a->weights[0] * a->x[i];
}

static void scale_in_chunks(void *opaque, int64_t begin, int64_t end) {
  struct arguments *a = opaque;
  for (int64_t chunk = begin; chunk < end; ++chunk) {
    struct arguments part = {a->services, a->weights, a->x + chunk * 16, a->y + chunk * 16};
    a->services->parallel_for(a->services->context, scale, &part, 16, 1);
  }
}

EXPORT int64_t cuvil_model_run(const cuvil_services *services, const void *weights, const void *const *inputs,
                               void *const *outputs, void *arena, const int64_t *dimensions) {
  struct arguments a = {services, weights, inputs[0], outputs[0]};
  (void)dimensions;
  if (services->size_bytes < (int64_t)sizeof *services || services->version != 2) return 2;
  if ((uintptr_t)arena % 64 != 0 || (uintptr_t)weights % 64 != 0) return 3;
  if (a.x[0] == -1.0f) __builtin_trap();
  if (a.x[0] == -2.0f) return 1;
  for (int64_t i = 0; i < ARENA_BYTES; ++i) ((volatile char *)arena)[i] = (char)i;
  if (a.x[0] == -3.0f)
    services->parallel_for(services->context, scale_in_chunks, &a, SIZE / 16, 1);
  else
    services->parallel_for(services->context, scale, &a, SIZE, 16);
  return 0;
}
