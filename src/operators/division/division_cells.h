// Which cell computes a kind, for whoever walks elements.
#if defined(SAFEOPS_DIVISION_CELLS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SAFEOPS_DIVISION_CELLS_H_
#undef SAFEOPS_DIVISION_CELLS_H_
#else
#define SAFEOPS_DIVISION_CELLS_H_
#endif

#include "operators/division/division_math.h"

SAFEOPS_BEGIN_LANES

template <DivisionKind kKind>
struct CellsOf {
  template <class Real, class E>
  using Quotient = QuotientForward<Real, E, kKind>;
  template <class Real, class E>
  using Forward = UnaryForward<Real, E, kKind>;
  template <class Real, class E>
  using Backward = UnaryBackward<Real, E, kKind>;
};

// use.template operator()<Cell>(), where Cell<Real, E> is a cell.
template <class Use>
auto with_forward_cell(DivisionKind kind, const Use& use) {
  switch (kind) {
    case DivisionKind::quotient:
      return use.template operator()<CellsOf<DivisionKind::quotient>::template Quotient>();
    case DivisionKind::truncated:
      return use.template operator()<CellsOf<DivisionKind::truncated>::template Quotient>();
    case DivisionKind::floored:
      return use.template operator()<CellsOf<DivisionKind::floored>::template Quotient>();
    case DivisionKind::rsqrt:
      return use.template operator()<CellsOf<DivisionKind::rsqrt>::template Forward>();
    case DivisionKind::sqrt:
      return use.template operator()<CellsOf<DivisionKind::sqrt>::template Forward>();
    case DivisionKind::log:
      break;
  }
  return use.template operator()<CellsOf<DivisionKind::log>::template Forward>();
}
template <class Use>
auto with_backward_cell(DivisionKind kind, const Use& use) {
  switch (kind) {
    case DivisionKind::quotient:
      return use.template operator()<QuotientBackward>();
    case DivisionKind::truncated:
    case DivisionKind::floored:
      return use.template operator()<StepBackward>();
    case DivisionKind::rsqrt:
      return use.template operator()<CellsOf<DivisionKind::rsqrt>::template Backward>();
    case DivisionKind::sqrt:
      return use.template operator()<CellsOf<DivisionKind::sqrt>::template Backward>();
    case DivisionKind::log:
      break;
  }
  return use.template operator()<CellsOf<DivisionKind::log>::template Backward>();
}

SAFEOPS_END_LANES

#endif
