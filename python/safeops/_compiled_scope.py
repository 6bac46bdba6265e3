"""The policies in force, as compiled code reads them: a module-level str for every operator.

Dynamo guards these on every supported version of torch, so a change recompiles; it does not guard
context variables, class attributes or lists everywhere. They are always read and written as
attributes of this module: Dynamo takes a global of the frame it starts from for something else.
"""

from __future__ import annotations

from safeops._library import OPERATORS

globals().update(dict.fromkeys(OPERATORS, ""))

eps: float | None = None
