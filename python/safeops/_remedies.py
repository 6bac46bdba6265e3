"""What each policy makes of a singular row or element, and what to do about it.

The claims of the table are formulas in the words of docs/semantics.md, which a test evaluates and
compares with the operators: ``x`` (or ``a`` over ``b``) is the input, ``g`` the incoming gradient,
``eps`` the threshold in force, ``+-eps`` eps with the sign of ``b``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from safeops._policy import POLICIES

ERROR = "error"


@dataclass(frozen=True, slots=True)
class Remedy:
    """What one policy does at one kind of singular row.

    Attributes:
        value: what the row becomes: a formula, ``"error"``, or a kind of number, ``"inf or nan"``.
        gradient: the same of the gradient of every input, in order. ``"error"`` is raised where the
            incoming gradient is not 0.
        needs_eps: only where the call or its scope gives an eps; under the default eps of this
            policy the row is regular, as every other.
    """

    value: str
    gradient: tuple[str, ...]
    needs_eps: bool = False

    def __str__(self) -> str:
        gradient = " and ".join(dict.fromkeys(self.gradient))  # once where they agree
        said = f"value {self.value}, gradient {gradient}".replace(ERROR, "an error")
        if self.value == ERROR:
            said = "SingularityError"
        return f"{said}; regular unless an eps is given" if self.needs_eps else said


def _entry(
    stock: tuple[str, ...],
    epsilon: tuple[str, ...],
    *,
    nan: str = "nan",
    zero: str = "0",
    raised: str = ERROR,
    without_eps: tuple[str, ...] = (),
) -> dict[str, Remedy]:
    """Of every policy: (value, gradients...) where they differ, the value where it is unusual."""
    claims = {
        "stock": stock,
        "nan": (nan, *["nan"] * (len(stock) - 1)),
        "epsilon": epsilon,
        "zero": (zero, *["0"] * (len(stock) - 1)),
        "raise": (raised, *[ERROR] * (len(stock) - 1)),
    }
    return {
        policy: Remedy(value, tuple(gradients), policy in without_eps)
        for policy, (value, *gradients) in claims.items()
    }


# Policies whose eps is 0 where none is given: what is below an eps and not 0 is regular there.
_NO_FLOOR = ("nan", "zero", "raise")
_NO_FLOOR_IN_DIVISION = ("stock", *_NO_FLOOR)

_QUOTIENT_BY_ZERO = _entry(
    ("inf or nan", "inf or nan", "inf or nan"), ("a / +-eps", "g / +-eps", "0")
)
_QUOTIENT_BELOW = _entry(
    ("a / b", "g / b", "-g * (a / b) / b"),
    ("a / +-eps", "g / +-eps", "0"),
    without_eps=_NO_FLOOR_IN_DIVISION,
)

# (operator, condition) -> policy -> what it does there.
REMEDIES: dict[tuple[str, str], dict[str, Remedy]] = {
    ("normalize", "zero_norm"): _entry(("0", "g / eps"), ("0", "g / eps")),
    ("normalize", "below_eps"): _entry(
        ("x / eps", "g / eps"), ("x / eps", "g / eps"), without_eps=_NO_FLOOR
    ),
    ("softmax", "empty_row"): _entry(("nan", "nan"), ("0", "0")),
    ("log_softmax", "empty_row"): _entry(("nan", "nan"), ("log(eps)", "0"), zero="-inf"),
    ("logsumexp", "empty_row"): _entry(("-inf", "nan"), ("-inf", "0"), nan="-inf", zero="-inf"),
    ("div", "zero_denominator"): _QUOTIENT_BY_ZERO,
    ("div", "below_eps"): _QUOTIENT_BELOW,
    ("reciprocal", "zero_denominator"): _entry(("inf", "inf or nan"), ("1 / +-eps", "0")),
    ("reciprocal", "below_eps"): _entry(
        ("1 / b", "-g / b / b"), ("1 / +-eps", "0"), without_eps=_NO_FLOOR_IN_DIVISION
    ),
    ("rsqrt", "zero_argument"): _entry(("inf", "inf or nan"), ("1 / sqrt(eps)", "0")),
    ("rsqrt", "negative_argument"): _entry(("nan", "nan"), ("1 / sqrt(eps)", "0")),
    ("rsqrt", "below_eps"): _entry(
        ("1 / sqrt(x)", "-g / (2 * x * sqrt(x))"),
        ("1 / sqrt(eps)", "0"),
        without_eps=_NO_FLOOR_IN_DIVISION,
    ),
    # The root of 0 is 0: only its slope is missing.
    ("sqrt", "zero_argument"): _entry(("0", "inf or nan"), ("sqrt(eps)", "0"), nan="0", raised="0"),
    ("sqrt", "negative_argument"): _entry(("nan", "nan"), ("sqrt(eps)", "0")),
    ("sqrt", "below_eps"): _entry(
        ("sqrt(x)", "g / (2 * sqrt(x))"), ("sqrt(eps)", "0"), without_eps=_NO_FLOOR_IN_DIVISION
    ),
    ("log", "zero_argument"): _entry(("-inf", "inf or nan"), ("log(eps)", "0")),
    ("log", "negative_argument"): _entry(("nan", "g / x"), ("log(eps)", "0")),
    ("log", "below_eps"): _entry(
        ("log(x)", "g / x"), ("log(eps)", "0"), without_eps=_NO_FLOOR_IN_DIVISION
    ),
}

# Where a gradient is this large, an optimizer step that is proportional to it leaves the range in
# which anything trained.
_LARGE_GRADIENT = 1e4

_EMPTY = "Every element of a row is -inf or masked out"
_BELOW = "below eps, but not 0; policy 'epsilon' floors it at eps"
_NEGATIVE = "An argument is negative: find what made it so; policy 'epsilon' takes eps in its place"

_ADVICE: dict[tuple[str, str], str] = {
    ("normalize", "zero_norm"): "A row is all 0; policy 'zero' gives 0 and gradient 0",
    ("normalize", "below_eps"): (
        "The norm of a row is below eps, but not 0; policy 'zero' without an eps gives the unit "
        "row and its gradient"
    ),
    ("softmax", "empty_row"): f"{_EMPTY}; policy 'zero' gives weights and gradients of 0",
    ("log_softmax", "empty_row"): (
        f"{_EMPTY}; policy 'epsilon' gives log(eps), finite in a loss, and 'zero' -inf"
    ),
    ("logsumexp", "empty_row"): f"{_EMPTY}; -inf is right, and policy 'zero' has gradient 0 there",
    ("div", "zero_denominator"): (
        "The divisor is 0; policy 'zero' suits a mean of nothing, 'epsilon' a divisor that is small"
    ),
    ("div", "below_eps"): f"The divisor is {_BELOW}",
    ("reciprocal", "zero_denominator"): (
        "The argument is 0; policy 'zero' suits a weight of nothing, 'epsilon' a small number"
    ),
    ("reciprocal", "below_eps"): f"The argument is {_BELOW}",
    ("rsqrt", "zero_argument"): (
        "The argument is 0, as a variance of equal numbers is; policy 'epsilon' gives "
        "1 / sqrt(eps), 'zero' 0"
    ),
    ("rsqrt", "negative_argument"): _NEGATIVE,
    ("rsqrt", "below_eps"): f"The argument is {_BELOW}",
    ("sqrt", "zero_argument"): (
        "The root of 0 has no slope; policy 'zero' keeps the value and makes the gradient 0"
    ),
    ("sqrt", "negative_argument"): _NEGATIVE,
    ("sqrt", "below_eps"): f"The argument is {_BELOW}",
    ("log", "zero_argument"): (
        "The argument is 0, as a probability that underflowed is; policy 'epsilon' gives log(eps), "
        "while 'zero' reads as the logarithm of 1"
    ),
    ("log", "negative_argument"): _NEGATIVE,
    ("log", "below_eps"): f"The argument is {_BELOW}",
}


def suggestion(
    operator: str,
    condition: str,
    policies: tuple[str, ...],
    backward: int,
    largest_gradient: float | None,
) -> str:
    """One or two sentences about a line that hit.

    Args:
        operator, condition: what was met.
        policies: those in force at the calls of the line.
        backward: how many rows backward passes met.
        largest_gradient: the largest magnitude of a gradient that calls of the line which hit
            passed on, whatever they met; None where none was seen.
    """
    advice = _ADVICE.get((operator, condition))
    if advice is None:
        return ""
    damage = _damage(backward, largest_gradient)
    if "raise" in policies:
        return (
            "Policy 'raise' stopped here: choose 'zero' or 'epsilon' to go on, or mend the input."
        )
    if "nan" in policies:
        return (
            "Policy 'nan' marked these rows. NaN times 0 is NaN: a mask that multiplies does not "
            "take the mark away; use 'zero' to train."
        )
    harmless = largest_gradient is None or largest_gradient < _LARGE_GRADIENT
    if "stock" not in policies and harmless:
        names = " and ".join(f"'{policy}'" for policy in policies)
        return (
            f"Policy {names} answered: nothing to do, unless there should be no {condition} here."
        )
    if policies == ("zero",):  # there is no other to advise
        return f"Policy 'zero' answered. {damage}"
    return f"{advice}. {damage}"


def _damage(backward: int, largest_gradient: float | None) -> str:
    if largest_gradient is None:
        if not backward:
            return "No backward pass met it, so only the value matters here so far."
        return "Backward passes met it; how large their gradients were was not seen."
    if math.isnan(largest_gradient) or math.isinf(largest_gradient):
        return f"Backward passed {largest_gradient} on: what lies before this line gets it."
    if largest_gradient == 0:
        return "All gradients there were 0 so far: harmless, if what follows masks these rows."
    size = f"a gradient of up to {largest_gradient:.3g}"
    if largest_gradient >= _LARGE_GRADIENT:
        return f"Backward passed {size} on, enough to wreck what was trained, without any NaN."
    return f"Backward passed {size} on: no damage seen so far."


def remedies(operator: str, condition: str) -> dict[str, Remedy]:
    """What each policy does, in the order of the policies; empty where a condition is no hit."""
    table = REMEDIES.get((operator, condition), {})
    return {policy: table[policy] for policy in POLICIES if policy in table}
