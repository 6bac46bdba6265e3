// The elements of one row in device memory.
#pragma once

#include "core/row_program_cuda.h"

SAFEOPS_BEGIN_LANES

// What the policy stores instead of results.
template <class Real>
struct Filling {
  bool fills, covers_masked;
  Real value;
};

template <class Operands, bool kUnitStep>
class RowMemory {
 public:
  using Real = typename Operands::Real;
  using Input = typename Operands::Input;
  static constexpr size_t kInputs = Operands::kInputs;
  // Elements of 16 bytes of an input, and what they become on either side.
  static constexpr size_t kPack = 16 / sizeof(Input);
  struct alignas(16) InputPack {
    Input of[kPack];
  };
  struct alignas(16) RealPack {
    typename Real::Scalar of[kPack];
  };

  // A row that does not exist has no place and must not be touched.
  SAFEOPS_INLINE RowMemory(const RowArguments& arguments, size_t row) : arguments_(arguments) {
    const RowLayout& layout = arguments.layout;
    ptrdiff_t input[kInputs] = {}, output = 0, mask = 0;
#pragma unroll 1
    for (size_t d = layout.kept_dims; d-- > 0;) {
      size_t before = 0, index = row;
      if (d != 0) {
        before = row / layout.kept_size[d];
        index = row - before * layout.kept_size[d];
      }
      row = before;
      const auto steps = static_cast<ptrdiff_t>(index);
      SAFEOPS_UNROLL for (size_t k = 0; k < kInputs; ++k) input[k] +=
          steps * layout.operand[k].kept[d];
      output += steps * layout.operand[kInputs].kept[d];
      if constexpr (Operands::kStaged) mask += steps * layout.operand[kMaskOperand].kept[d];
    }
    SAFEOPS_UNROLL for (size_t k = 0; k < kInputs; ++k) input_[k] =
        static_cast<const Input*>(arguments.input[k]) + input[k];
    output_ = static_cast<char*>(arguments.output);
    if (writes()) output_ += output * bytes_of_output();
    mask_ = arguments.storage.mask != nullptr ? arguments.storage.mask + mask : nullptr;
  }

  SAFEOPS_INLINE bool writes() const { return arguments_.output != nullptr; }
  SAFEOPS_INLINE bool is_masked(size_t j) const {
    if constexpr (Operands::kStaged) {
      return arguments_.storage.mask != nullptr &&
             !mask_[static_cast<ptrdiff_t>(j) * arguments_.layout.operand[kMaskOperand].step];
    }
    return false;
  }
  SAFEOPS_INLINE Elements<Real, kInputs> read(size_t j, bool masked) const {
    Elements<Real, kInputs> x;
    SAFEOPS_UNROLL for (size_t k = 0; k < kInputs; ++k) {
      x.of[k] = masked
                    ? Real(static_cast<typename Real::Scalar>(arguments_.storage.masked_input[k]))
                    : as_real(input_[k][place(k, j)]);
    }
    return x;
  }
  SAFEOPS_INLINE Elements<Real, kInputs> read(size_t j) const { return read(j, is_masked(j)); }

  // Whether a row may be walked by packs: elements j .. j + kPack, j a multiple of kPack.
  SAFEOPS_INLINE bool has_packs() const {
    static_assert(kUnitStep);
    bool packs = reinterpret_cast<std::uintptr_t>(output_) % 16 == 0;
    SAFEOPS_UNROLL for (size_t k = 0; k < kInputs; ++k) packs =
        packs && reinterpret_cast<std::uintptr_t>(input_[k]) % alignof(InputPack) == 0;
    return packs && (!Operands::kStaged || arguments_.storage.mask == nullptr);
  }
  SAFEOPS_INLINE RealPack read_pack(size_t which, size_t j) const {
    const InputPack stored = *reinterpret_cast<const InputPack*>(input_[which] + j);
    RealPack pack;
    SAFEOPS_UNROLL for (size_t s = 0; s < kPack; ++s) pack.of[s] = as_real(stored.of[s]).raw;
    return pack;
  }
  SAFEOPS_INLINE void write_pack(size_t j, const Filling<Real>& filling, RealPack pack) const {
    SAFEOPS_UNROLL for (size_t s = 0; s < kPack; ++s) {
      if (filling.fills) pack.of[s] = filling.value.raw;
    }
    as_stored([&](auto stored) { put_pack<decltype(stored)>(j, pack); });
  }
  // Writes result(elements) for elements first, first + step, ... Several are read before any is
  // written: the output may be an input, so that the compiler does not move loads over stores.
  template <class Result>
  SAFEOPS_INLINE void write_all(size_t first, size_t end, size_t step, const Filling<Real>& filling,
                                Result result) const {
    constexpr size_t kBatch = 4;
    for (; first < end; first += kBatch * step) {
      Elements<Real, kInputs> x[kBatch];
      bool masked[kBatch];
      SAFEOPS_UNROLL for (size_t s = 0; s < kBatch; ++s) {
        const size_t j = first + s * step;
        if (j >= end) continue;
        masked[s] = is_masked(j);
        x[s] = read(j, masked[s]);
      }
      SAFEOPS_UNROLL for (size_t s = 0; s < kBatch; ++s) {
        const size_t j = first + s * step;
        if (j < end) write(j, masked[s], filling, result(x[s]));
      }
    }
  }

  template <class Mask>
  SAFEOPS_INLINE Filling<Real> filling(Mask singular, const Resolution& policy) const {
    const bool fills = is_set(singular) && policy.fills;
    return {fills, fills && policy.fill != policy.fill && arguments_.storage.nan_fill_covers_masked,
            Real(static_cast<typename Real::Scalar>(policy.fill))};
  }
  SAFEOPS_INLINE void write(size_t j, bool masked, const Filling<Real>& filling, Real x) const {
    if (filling.fills) x = filling.value;
    if constexpr (Operands::kStaged) {
      if (masked && !filling.covers_masked)
        x = Real(static_cast<typename Real::Scalar>(arguments_.storage.masked_output));
    }
    as_stored([&](auto stored) { put<decltype(stored)>(j, x); });
  }

 private:
  // Only float32 meets other types: halves come or go as it.
  static constexpr bool kOneOutput = !Operands::kStaged || !std::is_same_v<Real, Lanes<float>>;

  SAFEOPS_INLINE ptrdiff_t bytes_of_output() const {
    if constexpr (kOneOutput) return sizeof(Input);
    return arguments_.storage.output == Element::float32 ? 4 : 2;
  }
  // Calls store() with an element of the type of the output.
  template <class Store>
  SAFEOPS_INLINE void as_stored(Store store) const {
    [[maybe_unused]] const Element stored = arguments_.storage.output;
    if constexpr (kOneOutput) {
      store(Input());
    } else if (stored == Element::float32) {
      store(float());
    } else if constexpr (std::is_same_v<Input, float>) {
      stored == Element::float16 ? store(float16()) : store(bfloat16());
    } else {
      store(Input());
    }
  }
  template <class E>
  SAFEOPS_INLINE void put(size_t j, Real x) const {
    reinterpret_cast<E*>(output_)[place(kInputs, j)] = as_element<E>(x);
  }
  template <class E>
  SAFEOPS_INLINE void put_pack(size_t j, const RealPack& pack) const {
    struct alignas(kPack * sizeof(E) < 16 ? kPack * sizeof(E) : 16) Pack {
      E of[kPack];
    } stored;
    SAFEOPS_UNROLL for (size_t s = 0; s < kPack; ++s) stored.of[s] =
        as_element<E>(Real(pack.of[s]));
    *reinterpret_cast<Pack*>(output_ + j * sizeof(E)) = stored;
  }

  SAFEOPS_INLINE ptrdiff_t place(size_t which, size_t j) const {
    if constexpr (kUnitStep) return static_cast<ptrdiff_t>(j);
    return static_cast<ptrdiff_t>(j) * arguments_.layout.operand[which].step;
  }

  const RowArguments& arguments_;
  const Input* input_[kInputs];
  char* output_;
  const bool* mask_;
};

SAFEOPS_END_LANES
