"""Writes the training step of a small transformer as annotated HLO, with its layers written out or in a loop.

    python examples/make_transformer.py --out examples/transformer_train.hlo
    python examples/make_transformer.py --scan --out examples/transformer_scan_train.hlo
    python examples/make_transformer.py --mesh data=3,model=2                # a mesh that divides nothing evenly
    python examples/make_transformer.py --mesh data=64,model=32 --batch 128 --heads 32 --width 256 --hidden 512

The model is in `transformer.py`. The mesh needs the axes `data` and `model`, of any size.
"""

# JAX's own annotations leave many types open.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

from lowering import Lowering, options, write


def main() -> None:
    parser = options(
        "Write the training step of a small transformer as HLO.",
        mesh="data=2,model=4",
        batch=8,
        sequence=16,
        width=32,
        heads=4,
        hidden=64,
        vocabulary=64,
        layers=2,
    )
    parser.add_argument("--scan", action="store_true", help="lax.scan over stacked layers")
    arguments = vars(parser.parse_args())
    out, lowering = arguments.pop("out"), Lowering(arguments.pop("mesh"))

    import jax
    import transformer
    from jax.sharding import PartitionSpec as P

    config = transformer.Config(**arguments)
    tokens = jax.ShapeDtypeStruct((config.batch, config.sequence), jax.numpy.int32)
    specs, by_batch = transformer.state_specs(config), P("data", None)
    text = lowering.text(
        transformer.make_step(config, lowering.constrain),
        (transformer.state_shapes(config), tokens, tokens),
        (specs, by_batch, by_batch),
        (specs, P()),
    )
    write(text, out)


if __name__ == "__main__":
    main()
