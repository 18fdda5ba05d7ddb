"""The parameters of `jax.jit`, and the functions that it takes."""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# pyright: reportMissingTypeArgument=false, reportUntypedFunctionDecorator=false

from __future__ import annotations

import functools
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from support.jax_rows import auto_mesh, put, row

P = jax.sharding.PartitionSpec


def first(n: Any, x: Any) -> Any:
    return x[:n]


@row("static arguments by number")
def static_numbers(jit: Any) -> Any:
    return jit(first, static_argnums=0)(3, jnp.arange(8.0)), jit(first, static_argnums=(0,))(n=2, x=jnp.arange(8.0))


@row("static arguments by a negative number")
def static_negative(jit: Any) -> Any:
    return jit(lambda x, n: x[:n], static_argnums=-1)(jnp.arange(8.0), 3)


@row("static arguments by name")
def static_names(jit: Any) -> Any:
    return jit(first, static_argnames="n")(3, x=jnp.arange(8.0)), jit(first, static_argnames=["n"])(n=2, x=np.ones(4))


@row("static arguments by number and by name")
def static_both(jit: Any) -> Any:
    f = jit(lambda n, x, *, m: x[:n] * m, static_argnums=0, static_argnames="m")
    return f(3, jnp.arange(8.0), m=2), f(3, jnp.arange(8.0), m=3)


@row("static arguments that are tuples, strings, types and functions", slow=True)
def static_kinds(jit: Any) -> Any:
    f = jit(lambda x, kind, how, where: how(x.astype(kind)).reshape(where), static_argnums=(1, 2, 3))
    return f(jnp.arange(6), jnp.float32, jnp.sin, (2, 3)), f(jnp.arange(6), "float32", jnp.cos, (3, 2))


@row("a static argument without a hash", fails=True)
def static_without_hash(jit: Any) -> Any:
    return jit(first, static_argnums=0)([3], jnp.arange(8.0))


@row("a static argument number that is too large", fails=True)
def static_too_large(jit: Any) -> Any:
    return jit(lambda x: x, static_argnums=3)(jnp.arange(8.0))


@row("a static argument name that does not exist", fails=True)
def static_unknown(jit: Any) -> Any:
    return jit(lambda x: x, static_argnames="y")(jnp.arange(8.0))


@row("a static argument that changes compiles once for each value")
def static_compilations(jit: Any) -> Any:
    f = jit(lambda n, x: x[:n], static_argnums=0)
    return [f(n, jnp.arange(8.0)) for n in (1, 2, 1)], f._cache_size()


@row("donated arguments are deleted")
def donation(jit: Any) -> Any:
    x, y = jnp.arange(8.0), jnp.arange(8.0)
    return jit(lambda x, y: x + y, donate_argnums=0)(x, y), x.is_deleted(), y.is_deleted()


@row("donated arguments by name")
def donation_by_name(jit: Any) -> Any:
    x = jnp.arange(8.0)
    return jit(lambda x: x + 1, donate_argnames="x")(x=x), x.is_deleted()


@row("donated arguments that are divided")
def donation_divided(jit: Any) -> Any:
    x = put(auto_mesh(), np.arange(16.0, dtype=np.float32).reshape(4, 4), "x", "y")
    return jit(lambda x: x * 2, donate_argnums=(0,))(x), x.is_deleted()


@row("donated arguments of a pytree")
def donation_of_tree(jit: Any) -> Any:
    tree = {"a": jnp.ones(3), "b": [jnp.ones(4)]}
    found = jit(lambda t: jax.tree.map(jnp.sin, t), donate_argnums=0)(tree)
    return found, [leaf.is_deleted() for leaf in jax.tree.leaves(tree)]


@row("donated arguments that no result can use are a warning")
def donation_warning(jit: Any) -> Any:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        value = jit(lambda x: x.sum(), donate_argnums=0)(jnp.arange(8.0))
    return value, sorted({str(w.message).splitlines()[0] for w in found if "donated" in str(w.message)})


@row("a donated argument is used again", fails=True)
def donation_twice(jit: Any) -> Any:
    x = jnp.arange(8.0)
    f = jit(lambda x: x + 1, donate_argnums=0)
    f(x)
    return f(x)


@row("an argument is static and donated", fails=True)
def static_and_donated(jit: Any) -> Any:
    return jit(first, static_argnums=0, donate_argnums=0)(3, jnp.arange(8.0))


@row("unused arguments are kept with keep_unused")
def kept(jit: Any) -> Any:
    f = jit(lambda x, y: x + 1, keep_unused=True)
    compiled = f.lower(jnp.ones(3), jnp.ones(4)).compile()
    return f(jnp.ones(3), jnp.ones(4)), compiled.memory_analysis().argument_size_in_bytes


@row("unused arguments take no memory")
def unused_bytes(jit: Any) -> Any:
    compiled = jit(lambda x, y: x + 1).lower(jnp.ones(3), jnp.ones(4)).compile()
    return compiled.memory_analysis().argument_size_in_bytes, compiled(jnp.ones(3), jnp.ones(4))


@row("inline")
def inline(jit: Any) -> Any:
    f = jit(jnp.sin, inline=True)
    return f(jnp.arange(4.0)), jax.jit(lambda x: f(x) + 1)(jnp.arange(4.0))


@row("device")
def device(jit: Any) -> Any:
    found = jit(lambda x: x + 1, device=jax.devices()[2])(np.ones(3, np.float32))
    return found, found.devices()


@row("backend")
def backend(jit: Any) -> Any:
    found = jit(lambda x: x + 1, backend="cpu")(np.ones(3, np.float32))
    return found, found.devices()


@row("device and backend at once", fails=True)
def device_and_backend(jit: Any) -> Any:
    return jit(lambda x: x + 1, backend="cpu", device=jax.devices()[0])(np.ones(3))


@row("options of the compiler")
def compiler_options(jit: Any) -> Any:
    return jit(jnp.cumsum, compiler_options={"xla_embed_ir_in_executable": True})(jnp.arange(4.0))


@row("options of the compiler that do not exist", fails=True)
def unknown_compiler_options(jit: Any) -> Any:
    return jit(jnp.cumsum, compiler_options={"xla_no_such_option": 1})(jnp.arange(4.0))


@row("a parameter that jax.jit does not have", fails=True)
def unknown_parameter(jit: Any) -> Any:
    return jit(jnp.cumsum, donates=0)(jnp.arange(4.0))


@row("something that is no function", fails=True)
def no_function(jit: Any) -> Any:
    return jit(3)


@row("abstracted axes", fails=True)
def abstracted_axes(jit: Any) -> Any:
    return jit(lambda x: x + 1, abstracted_axes={0: "n"})(jnp.ones(3))


# -- functions


@row("a decorator")
def decorator(jit: Any) -> Any:
    @jit
    def double(x: Any) -> Any:
        """Doubles."""
        return x * 2

    return double(jnp.ones(3)), double.__name__, double.__doc__


@row("a decorator with options")
def decorator_with_options(jit: Any) -> Any:
    @jit(static_argnames="n")
    def power(x: Any, n: int) -> Any:
        return x**n

    return power(jnp.arange(3.0), n=3)


@row("a partial decorator")
def partial_decorator(jit: Any) -> Any:
    @functools.partial(jit, static_argnums=(1,))
    def power(x: Any, n: int) -> Any:
        return x**n

    return power(jnp.arange(3.0), 3)


@row("a method, self static")
def method(jit: Any) -> Any:
    class Scale:
        def __init__(self, k: float) -> None:
            self.k = k

        @functools.partial(jit, static_argnums=0)
        def __call__(self, x: Any) -> Any:
            return x * self.k

        @functools.partial(jit, static_argnames=("self", "n"))
        def power(self, x: Any, n: int = 2) -> Any:
            return self(x) ** n

    scale = Scale(2.0)
    return scale(jnp.arange(3.0)), scale.power(jnp.arange(3.0)), scale.power(jnp.arange(3.0), n=3)


@row("a method, self a pytree")
def method_of_tree(jit: Any) -> Any:
    @jax.tree_util.register_pytree_node_class
    class Scale:
        def __init__(self, k: Any) -> None:
            self.k = k

        @jit
        def by(self, x: Any) -> Any:
            return x * self.k

        def tree_flatten(self) -> Any:
            return (self.k,), None

        @classmethod
        def tree_unflatten(cls, _: Any, children: Any) -> Any:
            return cls(*children)

    return Scale(jnp.arange(3.0)).by(2.0)


@row("class methods and static methods")
def class_methods(jit: Any) -> Any:
    class Maths:
        k = 3.0

        @classmethod
        @functools.partial(jit, static_argnums=0)
        def scaled(cls, x: Any) -> Any:
            return x * cls.k

        @staticmethod
        @jit
        def doubled(x: Any) -> Any:
            return x * 2

    return Maths.scaled(jnp.arange(3.0)), Maths().doubled(jnp.arange(3.0))


@row("a bound method")
def bound_method(jit: Any) -> Any:
    class Scale:
        k = 2.0

        def by(self, x: Any) -> Any:
            return x * self.k

    return jit(Scale().by)(jnp.arange(3.0))


@row("a functools.partial")
def partial(jit: Any) -> Any:
    return jit(functools.partial(lambda x, y, z: x + y * z, 1.0, z=jnp.arange(3.0)))(jnp.ones(3))


@row("an object with __call__")
def callable_object(jit: Any) -> Any:
    class Scale:
        def __call__(self, x: Any) -> Any:
            return x * 2

    return jit(Scale())(jnp.arange(3.0))


@row("a function of numpy's interface and a built-in of JAX", slow=True)
def library_functions(jit: Any) -> Any:
    return jit(jnp.linalg.norm)(jnp.arange(3.0)), jit(jax.nn.softmax)(jnp.arange(3.0)), jit(jnp.add)(1, 2.0)


@row("a compiled function compiled again")
def twice(jit: Any) -> Any:
    return jit(jit(lambda x: x + 1))(jnp.arange(3.0)), jax.jit(jit(jnp.sin))(jnp.arange(3.0))


@row("a coroutine or generator function", fails=True)
def generator(jit: Any) -> Any:
    def numbers(x: Any) -> Any:
        yield x

    return jit(numbers)(1.0)


@row("a function with defaults, *args, keywords and **kwargs", slow=True)
def signatures(jit: Any) -> Any:
    f = jit(lambda x, y=2.0, *rest, k=3.0, **more: (x + y * k, rest, more))
    return f(1.0), f(1.0, 1.0, 5, k=2, other=np.ones(2)), f(y=1.0, x=jnp.ones(3))


@row("missing and superfluous arguments", fails=True)
def wrong_arguments(jit: Any) -> Any:
    return jit(lambda x: x)(1.0, 2.0)


@row("a closure over arrays, divided ones too")
def closure(jit: Any) -> Any:
    w = jnp.arange(8.0)
    return jit(lambda x: x * w)(2.0), jit(lambda x: x + np.arange(3))(jnp.ones(3, jnp.int32))


@row("a closure over a value that is traced outside")
def closure_over_tracer(jit: Any) -> Any:
    return jax.jit(lambda y: jit(lambda x: x * y)(jnp.arange(3.0)))(2.0)


@row("side effects of Python at tracing time")
def side_effects(jit: Any) -> Any:
    calls: list[Any] = []
    f = jit(lambda x: calls.append(x.shape) or x + 1)
    return [f(jnp.ones(n)) for n in (3, 3, 4, 3)], calls
