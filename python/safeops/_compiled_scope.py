"""The policies in force, as compiled code reads them: plain module-level values.

Dynamo guards these on every supported version of torch, so a change recompiles; it does not guard
context variables, class attributes or lists everywhere. They are always read and written as
attributes of this module: Dynamo takes a global of the frame it starts from for something else.
"""

from __future__ import annotations

normalize: str = ""
eps: float | None = None
