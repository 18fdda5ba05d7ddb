"""Derivatives of compiled functions."""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false, reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from support.jax_arrays import data, line, loss, on, weights
from support.jax_rows import row


@row("gradient")
def gradient(jit: Any) -> Any:
    return jax.grad(jit(loss))(weights(), data())


@row("gradient, inside of jax.jit")
def gradient_in_jit(jit: Any) -> Any:
    return jax.jit(jax.grad(jit(loss)))(weights(), data())


@row("gradient, compiled itself", slow=True)
def compiled_gradient(jit: Any) -> Any:
    return jit(jax.grad(jit(loss)))(weights(), data())


@row("gradient with in_shardings, inside of jax.jit", slow=True)
def gradient_with_shardings(jit: Any) -> Any:
    f = jit(loss, in_shardings=(on(None, "y"), on("x")))
    return jax.jit(jax.grad(f, argnums=(0, 1)))(weights(), jax.device_put(data(), on("x")))


@row("value and gradient by several arguments", slow=True)
def value_and_gradient(jit: Any) -> Any:
    return jax.value_and_grad(jit(loss), argnums=(0, 1))(weights(), data())


@row("gradient with further results", slow=True)
def gradient_with_more(jit: Any) -> Any:
    f = jit(lambda w, x: (loss(w, x), {"sum": x.sum(), "numbers": jnp.arange(3)}))
    return jax.value_and_grad(f, has_aux=True)(weights(), data())


@row("gradient of a tree", slow=True)
def gradient_of_tree(jit: Any) -> Any:
    return jax.grad(jit(lambda p: loss(p["w"], p["x"])))({"w": weights(), "x": data()})


@row("gradient by a keyword argument's value", slow=True)
def gradient_of_keyword(jit: Any) -> Any:
    f = jit(lambda *, a, b: (a * b).sum())
    return jax.grad(lambda a: f(a=a, b=2.0))(data())


@row("gradient beside a static argument", slow=True)
def gradient_beside_static(jit: Any) -> Any:
    return jax.grad(jit(lambda n, x: (x**n).sum(), static_argnums=0), argnums=1)(3, data())


@row("gradient beside integers", slow=True)
def gradient_beside_integers(jit: Any) -> Any:
    return jax.grad(jit(lambda x, i: x[i].sum()))(data(), jnp.array([1, 2]))


@row("gradient by a value that the function closes over")
def gradient_of_closure(jit: Any) -> Any:
    return jax.grad(lambda w: jit(lambda x: loss(w, x))(data()))(weights())


@row("gradient by a number of Python", devices=1)
def gradient_of_scalar(jit: Any) -> Any:
    return jax.grad(jit(lambda v: jnp.sin(v) * v))(1.3)


@row("third derivative", devices=1, slow=True)
def third_derivative(jit: Any) -> Any:
    return jax.grad(jax.grad(jax.grad(jit(lambda v: jnp.sin(v) * v))))(1.3)


@row("gradient through complex numbers", slow=True)
def gradient_through_complex(jit: Any) -> Any:
    return jax.grad(jit(lambda x: jnp.abs(x * 1j + jnp.fft.fft(x)).sum()))(data() + 1)


@row("gradient of a holomorphic function", devices=1, slow=True)
def holomorphic_gradient(jit: Any) -> Any:
    return jax.grad(jit(lambda z: (z * z * z).sum()), holomorphic=True)(line() + 1j)


@row("gradient with random keys")
def gradient_with_keys(jit: Any) -> Any:
    f = jit(lambda x, key: (x * jax.random.normal(key, x.shape)).sum())
    return jax.grad(f)(data(), jax.random.key(3))


@row("gradient that is zero", slow=True)
def zero_gradient(jit: Any) -> Any:
    return jax.grad(jit(lambda x, y: y.sum() + jnp.sum(jnp.round(x))))(data(), weights())


@row("gradient that stops", slow=True)
def stopped_gradient(jit: Any) -> Any:
    return jax.grad(jit(lambda x: (jax.lax.stop_gradient(x) * x).sum()))(data())


@row("gradient by integers", devices=1, fails=True)
def gradient_by_integers(jit: Any) -> Any:
    return jax.grad(jit(lambda i: (i * 2).sum()))(jnp.arange(3))


@row("gradient of a vector", devices=1, fails=True)
def gradient_of_vector(jit: Any) -> Any:
    return jax.grad(jit(jnp.sin))(line())


@row("directional derivative")
def jvp(jit: Any) -> Any:
    return jax.jvp(jit(loss), (weights(), data()), (data(), weights()))


@row("jax.vjp", slow=True)
def vjp(jit: Any) -> Any:
    result, pull = jax.vjp(jit(lambda w: w @ w), weights())
    return result, pull(data())


@row("jax.linearize", slow=True)
def linearize(jit: Any) -> Any:
    result, push = jax.linearize(jit(lambda w: w @ w), weights())
    return result, push(data()), push(weights())


@row("jax.linear_transpose")
def linear_transpose(jit: Any) -> Any:
    return jax.linear_transpose(jit(lambda x: x * 3 + x.T), data())(weights())


@row("Hessian", slow=True)
def hessian(jit: Any) -> Any:
    return jax.hessian(jit(lambda v: jnp.sin(v * v[0]).sum()))(line())


@row("Jacobian, forward and reverse", slow=True)
def jacobians(jit: Any) -> Any:
    f = jit(lambda v: jnp.sin(v * v[0]))
    return jax.jacfwd(f)(line()), jax.jacrev(f)(line())


@row("product of a Hessian and a vector", slow=True)
def hessian_vector(jit: Any) -> Any:
    return jax.jvp(jax.grad(jit(lambda w: jnp.sin(w @ w).sum())), (weights(),), (data(),))[1]


@row("custom derivative inside, reverse", slow=True)
def custom_vjp_inside(jit: Any) -> Any:
    custom = jax.custom_vjp(jnp.sin)
    custom.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (g * 3.0 * x,))
    return jax.grad(jit(lambda x: custom(x).sum()))(data())


@row("custom derivative inside, forward", slow=True)
def custom_jvp_inside(jit: Any) -> Any:
    custom = jax.custom_jvp(jnp.sin)
    custom.defjvp(lambda primals, tangents: (jnp.sin(primals[0]), tangents[0] * 5))
    return jax.jvp(jit(custom), (data(),), (weights(),)), jax.grad(jit(lambda x: custom(x).sum()))(data())


@row("custom derivative outside", slow=True)
def custom_vjp_outside(jit: Any) -> Any:
    sine, cosine = jit(jnp.sin), jit(jnp.cos)
    custom = jax.custom_vjp(lambda x: sine(x))
    custom.defvjp(lambda x: (sine(x), x), lambda x, g: (g * cosine(x),))
    return jax.grad(lambda x: custom(x).sum())(data())


@row("compiled function in a compiled function", slow=True)
def nested(jit: Any) -> Any:
    inner = jit(lambda x: jnp.sin(x) @ x)
    return jax.grad(jit(lambda x: inner(x).sum()))(data())


@row("step of an optimizer", slow=True)
def optimizer(jit: Any) -> Any:
    f = jit(loss)
    step = jit(lambda w, x: jax.tree.map(lambda p, g: p - 0.1 * g, w, jax.grad(f)(w, x)))
    return step(weights(), data())
