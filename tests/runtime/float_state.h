/* The floating-point state of this thread, and states that a careless host program may leave it in. */
#pragma once

#include <stdint.h>

#define HOSTILE_STATES 3

/* The whole state as a number, and hostile settings of it: flushing on where there is such a thing, and rounding
 * downward, upward with a flag raised, or toward zero. */
#if defined(__x86_64__)
static uint64_t read_state(void) {
  uint32_t state;
  __asm__ volatile("stmxcsr %0" : "=m"(state));
  return state;
}
static void write_state(uint64_t wide) {
  uint32_t state = (uint32_t)wide;
  __asm__ volatile("ldmxcsr %0" : : "m"(state) : "memory");
}
static const uint64_t hostile[HOSTILE_STATES] = {0x1f80u | 0x8040u | 0x2000u, 0x1f80u | 0x8040u | 0x4000u | 0x1u,
                                                 0x1f80u | 0x8040u | 0x6000u};
#elif defined(__aarch64__)
static uint64_t read_state(void) {
  uint64_t control, flags;
  __asm__ volatile("mrs %0, fpcr" : "=r"(control));
  __asm__ volatile("mrs %0, fpsr" : "=r"(flags));
  return control << 32 | flags;
}
static void write_state(uint64_t state) {
  __asm__ volatile("msr fpcr, %0" : : "r"(state >> 32) : "memory");
  __asm__ volatile("msr fpsr, %0" : : "r"(state & 0xffffffffu) : "memory");
}
static const uint64_t hostile[HOSTILE_STATES] = {UINT64_C(0x01800000) << 32, UINT64_C(0x01400000) << 32 | 0x1,
                                                 UINT64_C(0x01c00000) << 32};
#else
static uint64_t read_state(void) {
  uint64_t state;
  __asm__ volatile("frcsr %0" : "=r"(state));
  return state;
}
static void write_state(uint64_t state) { __asm__ volatile("fscsr %0" : : "r"(state) : "memory"); }
static const uint64_t hostile[HOSTILE_STATES] = {2 << 5, 3 << 5 | 1, 1 << 5};
#endif
