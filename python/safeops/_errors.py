"""What safeops raises and warns with."""

from __future__ import annotations


class SingularityError(FloatingPointError, ValueError):
    """An operator met a singular row or element under policy ``raise``.

    Raised by eager Python calls. Backward passes, compiled graphs and C++ callers raise a plain
    ``ValueError`` with the same sentence, so ``except ValueError`` catches every road.

    Attributes:
        operator: name of the operator, ``"normalize"``.
        condition: the condition that most of the rows met, ``"zero_norm"``.
        count: number of singular rows (elements, for element-wise operators).
        first_row: lowest singular row, numbered row-major over the dims that are kept.
        shape: shape of the input; sizes past the eighth are left out.
        dtype: dtype of the input as torch prints it, without the prefix: ``"float32"``.
    """

    # The fields have defaults because unpickling and torch's ExceptionWrapper (DataLoader workers)
    # rebuild an exception from its message alone.
    def __init__(
        self,
        message: str = "",
        *,
        operator: str = "",
        condition: str = "",
        count: int = 0,
        first_row: int = 0,
        shape: tuple[int, ...] = (),
        dtype: str = "",
    ) -> None:
        super().__init__(message)
        self.operator = operator
        self.condition = condition
        self.count = count
        self.first_row = first_row
        self.shape = shape
        self.dtype = dtype


class SingularityWarning(UserWarning):
    """An operator met a singular row or element, and nobody had chosen a policy.

    Issued once per call line and operator, until ``safeops.diagnostics.reset()``. A hit that only
    the backward pass meets (``sqrt`` at 0) is warned of at the next call of an operator, or at
    ``safeops.diagnostics.snapshot()``, and under the line of the forward call.
    """


# Tracebacks name a class by its module.
for _public in (SingularityError, SingularityWarning):
    _public.__module__ = "safeops"
