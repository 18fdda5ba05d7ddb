"""Writes the training step of a small classifier as annotated HLO: `mlp_train.hlo`.

    python examples/make_mlp.py --out examples/mlp_train.hlo
    python examples/make_mlp.py --mesh data=3            # a mesh that does not divide the batch

Two dense layers, softmax cross entropy, SGD with momentum. Data parallel: the batch is divided over the mesh axis
`data`, parameters and momentum are whole on every device, so the gradients have to be summed over all devices.
"""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

from typing import Any

from lowering import Lowering, options, write

Tree = Any  # a dict of arrays


def loss_of(parameters: Tree, images: Any, labels: Any) -> Any:
    """Returns the mean cross entropy of [batch, inputs] against [batch] class numbers."""
    import jax

    hidden = jax.nn.relu(images @ parameters["w1"] + parameters["b1"])
    log_p = jax.nn.log_softmax(hidden @ parameters["w2"] + parameters["b2"])
    return -(jax.nn.one_hot(labels, log_p.shape[-1]) * log_p).sum(axis=-1).mean()


def train_step(parameters: Tree, momentum: Tree, images: Any, labels: Any) -> tuple[Tree, Tree, Any]:
    """Takes one step of SGD with momentum. Returns the new parameters, the new momentum and the loss."""
    import jax

    loss, gradient = jax.value_and_grad(loss_of)(parameters, images, labels)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradient)
    parameters = jax.tree.map(lambda p, m: p - 0.1 * m, parameters, momentum)
    return parameters, momentum, loss


def main() -> None:
    parser = options(
        "Write the training step of a small classifier as HLO.",
        mesh="data=8",
        batch=32,
        inputs=48,
        hidden=64,
        classes=10,
    )
    arguments = parser.parse_args()
    lowering = Lowering(arguments.mesh)

    import jax
    from jax.sharding import PartitionSpec as P

    inputs, hidden, classes = arguments.inputs, arguments.hidden, arguments.classes
    dims = {"w1": (inputs, hidden), "b1": (hidden,), "w2": (hidden, classes), "b2": (classes,)}
    parameters = {name: jax.ShapeDtypeStruct(d, jax.numpy.float32) for name, d in dims.items()}
    images = jax.ShapeDtypeStruct((arguments.batch, inputs), jax.numpy.float32)
    labels = jax.ShapeDtypeStruct((arguments.batch,), jax.numpy.int32)
    whole = {name: P() for name in dims}
    text = lowering.text(
        train_step,
        (parameters, parameters, images, labels),
        (whole, whole, P("data", None), P("data")),
        (whole, whole, P()),
    )
    write(text, arguments.out)


if __name__ == "__main__":
    main()
