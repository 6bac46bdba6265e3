"""Which functions of torch.nn.functional are patched, as compiled code reads it.

A bool per function, which Dynamo guards; see `_compiled_scope`.
"""

from __future__ import annotations

normalize = softmax = log_softmax = softmin = False
