"""JAX's operators under jit, where JAX is installed."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Callable

import torch


def is_installed() -> bool:
    return importlib.util.find_spec("jax") is not None


def version() -> str:
    return importlib.metadata.version("jax") if is_installed() else "not installed"


def one_pass(
    name: str, operator: str, x: torch.Tensor, dim: int, where: torch.Tensor | None
) -> Callable[[], object]:
    """Forward, or value and gradient. Must first be called where one CPU is usable: JAX sizes its
    thread pool once, and its calls are then comparable with torch on one thread."""
    # The peer is optional.
    import jax
    import jax.numpy as jnp

    # Whatever accelerator JAX was installed for; and on the calling thread, whose time is taken.
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_cpu_enable_async_dispatch", False)

    def array(tensor: torch.Tensor) -> jax.Array:
        dtype = str(tensor.dtype).removeprefix("torch.")
        return jnp.asarray(tensor.float().numpy()).astype(dtype)

    function = getattr(jax.nn, operator)

    def call(values: jax.Array, where: jax.Array | None) -> jax.Array:
        return function(values, axis=dim, where=where)

    def both(
        values: jax.Array, where: jax.Array | None, gradient: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        result, pull_back = jax.vjp(lambda values: call(values, where), values)
        return result, pull_back(gradient)[0]

    arguments = [array(x), None if where is None else jnp.asarray(where.numpy())]
    chosen = call
    if name == "forward+backward":
        chosen = both
        shape = jax.eval_shape(call, *arguments).shape
        arguments.append(array(torch.randn(shape).to(x.dtype)))
    compiled = jax.jit(chosen)
    return lambda: jax.block_until_ready(compiled(*arguments))
