// The floating-point state that every computation runs under: round to nearest even, subnormals kept, traps masked.
// control_bits() is the state without the sticky flags: what decides how arithmetic works.
#pragma once

#include <stdint.h>

namespace cuvil {

#if defined(__x86_64__)

struct FloatState {
  uint32_t mxcsr;
};

constexpr FloatState kStrictFloatState = {0x1f80};

inline FloatState read_float_state() {
  FloatState state;
  __asm__ volatile("stmxcsr %0" : "=m"(state.mxcsr) : : "memory");
  return state;
}

inline void write_float_state(const FloatState &state) {
  __asm__ volatile("ldmxcsr %0" : : "m"(state.mxcsr) : "memory");
}

inline uint64_t control_bits(const FloatState &state) { return state.mxcsr & ~0x3fu; }

#elif defined(__aarch64__)

// FPCR holds rounding, flushing and traps; the sticky flags are in FPSR and belong to the caller as well.
struct FloatState {
  uint64_t fpcr;
  uint64_t fpsr;
};

constexpr FloatState kStrictFloatState = {0, 0};

inline FloatState read_float_state() {
  FloatState state;
  __asm__ volatile("mrs %0, fpcr" : "=r"(state.fpcr) : : "memory");
  __asm__ volatile("mrs %0, fpsr" : "=r"(state.fpsr) : : "memory");
  return state;
}

inline void write_float_state(const FloatState &state) {
  __asm__ volatile("msr fpcr, %0" : : "r"(state.fpcr) : "memory");
  __asm__ volatile("msr fpsr, %0" : : "r"(state.fpsr) : "memory");
}

inline uint64_t control_bits(const FloatState &state) { return state.fpcr; }

#elif defined(__riscv) && __riscv_xlen == 64 && defined(__riscv_flen) && __riscv_flen == 64

// fcsr holds the rounding mode and the sticky flags; there are neither traps nor flushing.
struct FloatState {
  uint64_t fcsr;
};

constexpr FloatState kStrictFloatState = {0};

inline FloatState read_float_state() {
  FloatState state;
  __asm__ volatile("frcsr %0" : "=r"(state.fcsr) : : "memory");
  return state;
}

inline void write_float_state(const FloatState &state) { __asm__ volatile("fscsr %0" : : "r"(state.fcsr) : "memory"); }

inline uint64_t control_bits(const FloatState &state) { return state.fcsr & ~UINT64_C(0x1f); }

#else
#error "cuvil runtime: supported machines are x86-64, AArch64 and RV64GC"
#endif

// Keeps the caller's floating-point state for the length of a scope.
class FloatStateKeeper {
 public:
  FloatStateKeeper() : saved_(read_float_state()) {}
  ~FloatStateKeeper() { write_float_state(saved_); }
  FloatStateKeeper(const FloatStateKeeper &) = delete;
  FloatStateKeeper &operator=(const FloatStateKeeper &) = delete;

 private:
  FloatState saved_;
};

}  // namespace cuvil
