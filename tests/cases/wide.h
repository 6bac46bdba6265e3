#pragma once

#include <mpfr.h>

#include <cmath>
#include <concepts>
#include <utility>

namespace safeops::cases {

/// A real number of 320 bits with an exponent that neither overflows nor underflows here: the
/// oracle's arithmetic. Sums of squares of float64 lose nothing that a bound in ulp of float64
/// could see.
class Wide {
 public:
  Wide() : Wide(0.0) {}
  Wide(
      double value) {  // NOLINT(google-explicit-constructor): formulas mix doubles and wide numbers
    mpfr_init2(value_, kBits);
    mpfr_set_d(value_, value, MPFR_RNDN);
  }
  Wide(const Wide& other) {
    mpfr_init2(value_, kBits);
    mpfr_set(value_, other.value_, MPFR_RNDN);
  }
  // An emptied number has no limbs; it can only be assigned to or destroyed.
  Wide(Wide&& other) noexcept {
    value_[0] = other.value_[0];
    other.value_[0]._mpfr_d = nullptr;
  }
  Wide& operator=(Wide other) noexcept {
    std::swap(value_[0], other.value_[0]);
    return *this;
  }
  ~Wide() {
    if (value_[0]._mpfr_d != nullptr) mpfr_clear(value_);
  }

  Wide& operator+=(const Wide& other) {
    mpfr_add(value_, value_, other.value_, MPFR_RNDN);
    return *this;
  }
  Wide& operator-=(const Wide& other) {
    mpfr_sub(value_, value_, other.value_, MPFR_RNDN);
    return *this;
  }
  Wide& operator*=(const Wide& other) {
    mpfr_mul(value_, value_, other.value_, MPFR_RNDN);
    return *this;
  }
  Wide& operator/=(const Wide& other) {
    mpfr_div(value_, value_, other.value_, MPFR_RNDN);
    return *this;
  }

  friend Wide operator+(Wide a, const Wide& b) {
    a += b;
    return a;
  }
  friend Wide operator-(Wide a, const Wide& b) {
    a -= b;
    return a;
  }
  friend Wide operator*(Wide a, const Wide& b) {
    a *= b;
    return a;
  }
  friend Wide operator/(Wide a, const Wide& b) {
    a /= b;
    return a;
  }

  // False where either side is NaN, as for double.
  friend bool operator==(const Wide& a, const Wide& b) {
    return mpfr_equal_p(a.value_, b.value_) != 0;
  }
  friend bool operator<(const Wide& a, const Wide& b) {
    return mpfr_less_p(a.value_, b.value_) != 0;
  }
  friend bool operator>(const Wide& a, const Wide& b) { return b < a; }
  friend bool operator<=(const Wide& a, const Wide& b) {
    return mpfr_lessequal_p(a.value_, b.value_) != 0;
  }
  friend bool operator>=(const Wide& a, const Wide& b) { return b <= a; }

  friend Wide sqrt(Wide a) {
    mpfr_sqrt(a.value_, a.value_, MPFR_RNDN);
    return a;
  }
  friend Wide abs(Wide a) {
    mpfr_abs(a.value_, a.value_, MPFR_RNDN);
    return a;
  }
  friend Wide pow(Wide a, const Wide& exponent) {
    mpfr_pow(a.value_, a.value_, exponent.value_, MPFR_RNDN);
    return a;
  }
  friend Wide exp(Wide a) {
    mpfr_exp(a.value_, a.value_, MPFR_RNDN);
    return a;
  }
  friend Wide log1p(Wide a) {
    mpfr_log1p(a.value_, a.value_, MPFR_RNDN);
    return a;
  }
  friend Wide log(Wide a) {
    mpfr_log(a.value_, a.value_, MPFR_RNDN);
    return a;
  }
  friend Wide floor(Wide a) {
    mpfr_floor(a.value_, a.value_);
    return a;
  }
  friend Wide atan2(Wide y, const Wide& x) {
    mpfr_atan2(y.value_, y.value_, x.value_, MPFR_RNDN);
    return y;
  }
  friend Wide operator-(Wide a) {
    mpfr_neg(a.value_, a.value_, MPFR_RNDN);
    return a;
  }
  /// a * 2^shift, exactly.
  friend Wide scaled(Wide a, long shift) {
    mpfr_mul_2si(a.value_, a.value_, shift, MPFR_RNDN);
    return a;
  }
  friend const Wide& max(const Wide& a, const Wide& b) { return a < b ? b : a; }

  bool is_nan() const { return mpfr_nan_p(value_) != 0; }
  bool is_infinite() const { return mpfr_inf_p(value_) != 0; }
  bool is_zero() const { return mpfr_zero_p(value_) != 0; }
  bool is_negative() const { return mpfr_signbit(value_) != 0; }

  /// e with 2^e <= |a| < 2^(e+1), for finite a other than zero.
  long exponent() const { return mpfr_get_exp(value_) - 1; }
  double to_double() const { return mpfr_get_d(value_, MPFR_RNDN); }

 private:
  static constexpr mpfr_prec_t kBits = 320;
  mpfr_t value_;
};

inline Wide power_of_two(long exponent) { return scaled(Wide(1.0), exponent); }

// The same words for long double, whose 64 bits or more are wide enough to judge results of at most
// 32 bits, and cost a tenth.
inline long double exp(long double a) { return std::exp(a); }
inline long double log(long double a) { return std::log(a); }
inline long double sqrt(long double a) { return std::sqrt(a); }
inline long double floor(long double a) { return std::floor(a); }
inline long double atan2(long double y, long double x) { return std::atan2(y, x); }
inline long double log1p(long double a) { return std::log1p(a); }
inline long double abs(long double a) { return std::fabs(a); }
inline long double scaled(long double a, long shift) {
  return std::ldexp(a, static_cast<int>(shift));
}
inline const long double& max(const long double& a, const long double& b) { return a < b ? b : a; }

inline bool is_nan(long double a) { return std::isnan(a); }
inline bool is_infinite(long double a) { return std::isinf(a); }
inline bool is_negative(long double a) { return std::signbit(a); }
inline bool is_zero(long double a) { return a == 0; }
inline long exponent(long double a) { return std::ilogb(a); }
inline double to_double(long double a) { return static_cast<double>(a); }

inline bool is_nan(const Wide& a) { return a.is_nan(); }
inline bool is_infinite(const Wide& a) { return a.is_infinite(); }
inline bool is_negative(const Wide& a) { return a.is_negative(); }
inline bool is_zero(const Wide& a) { return a.is_zero(); }
inline long exponent(const Wide& a) { return a.exponent(); }
inline double to_double(const Wide& a) { return a.to_double(); }

/// What an oracle may compute in.
template <class N>
concept Number = std::same_as<N, Wide> || std::same_as<N, long double>;

}  // namespace safeops::cases
