"""JAX's operators under jit, where JAX is installed."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Callable, Sequence

import torch


def is_installed() -> bool:
    return importlib.util.find_spec("jax") is not None


def version() -> str:
    return importlib.metadata.version("jax") if is_installed() else "not installed"


def along(operator: str, dim: int) -> Callable[..., object]:
    """An operator of jax.nn over a dim, called as `call(values, mask)` or `call(values)`."""
    import jax

    function = getattr(jax.nn, operator)
    return lambda values, where=None: function(values, axis=dim, where=where)


def elementwise(name: str) -> tuple[Callable[..., object], Callable[..., object]]:
    """JAX's `where` and its operator of that name."""
    import jax

    name = "divide" if name == "div" else name
    return jax.numpy.where, getattr(jax.numpy, name, None) or getattr(jax.lax, name)


def one_pass(
    name: str,
    call: Callable[..., object],
    inputs: Sequence[torch.Tensor],
    constants: Sequence[torch.Tensor] = (),
) -> Callable[[], object]:
    """Forward, or value and gradients of the inputs, of `call(*inputs, *constants)`. Must first be
    called where one CPU is usable: JAX sizes its thread pool once, and its calls are then
    comparable with torch on one thread."""
    # The peer is optional.
    import jax
    import jax.numpy as jnp

    # Whatever accelerator JAX was installed for; and on the calling thread, whose time is taken.
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_cpu_enable_async_dispatch", False)

    def array(tensor: torch.Tensor) -> jax.Array:
        dtype = str(tensor.dtype).removeprefix("torch.")
        return jnp.asarray(tensor.float().numpy()).astype(dtype)

    held = [jnp.asarray(constant.numpy()) for constant in constants]

    def forward(values: list[jax.Array], held: list[jax.Array]) -> jax.Array:
        return call(*values, *held)

    def both(
        values: list[jax.Array], held: list[jax.Array], gradient: jax.Array
    ) -> tuple[jax.Array, list[jax.Array]]:
        result, pull_back = jax.vjp(lambda values: forward(values, held), values)
        return result, pull_back(gradient)[0]

    arguments: list[object] = [[array(x) for x in inputs], held]
    chosen = forward
    if name == "forward+backward":
        chosen = both
        shape = jax.eval_shape(forward, *arguments).shape
        arguments.append(array(torch.randn(shape).to(inputs[0].dtype)))
    compiled = jax.jit(chosen)
    return lambda: jax.block_until_ready(compiled(*arguments))
