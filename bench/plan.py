"""Plans programs without annotations, and compares with hand-made shardings by the same forecast.

    python bench/plan.py [NAME ..] [--time 60] [--layers 2] [--list]    # rows with such names

Needs JAX and HiGHS. A row is a program on a mesh of a machine. Its hand-made shardings: data parallel and fully sharded
over all devices, Megatron's tensor parallelism, fully sharded by tensor parallelism, each with and without the sequence
divided between products; for other models those of their papers, mixtures of experts with their other weights divided,
and convolutions by batch alone, too. They are judged by the same schedules as plans, which do not see them. The
published models have all their layers, as loops: Llama 8B with a sequence per device, 70B with one for two and 405B
with one for eight, decoding on the caches of 256 sequences. `ratio` is its step against the best of these: the goal is
at most 1.00 in each row, at most 0.95 in four of ten. `model` is the model's own time against the forecast of the best
plan (within 10 % in the median, and 25 % at worst, is the goal), `gap` what the bound leaves to the model's best. The
time to find a plan is processor time, and so is its limit: other processes on the machine take nothing of it.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import hloom
from hloom.cost.presets import PRESETS
from hloom.ir.graph.module import clone_module
from hloom.passes.base import PassContext
from hloom.passes.planning.judge import Effort, Judged, judge
from hloom.passes.schedule.does_not_fit import DoesNotFit

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import jax
import lowering
import transformer
from models import conformer, decode, dense, experts, images
from models.layout import Layout
from models.training import training

P: Any = jax.sharding.PartitionSpec
JIT: Any = jax.jit  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
MEDIUM = {"batch": 64, "sequence": 1024, "width": 2048, "heads": 16, "hidden": 8192, "vocabulary": 32000}
LARGE = {"batch": 16, "sequence": 2048, "width": 4096, "heads": 32, "hidden": 14336, "vocabulary": 128256}
MANY = LARGE | {"batch": 64}
MESHES = {"data": 4, "model": 2}, {"data": 8, "model": 8}, {"data": 64, "model": 8}
Programs = dict[str, hloom.Module]


@dataclass(frozen=True)
class Row:
    """A program (`plain`) with hand-made shardings of it, on a mesh of a machine."""

    name: str
    machine: str
    mesh: Mapping[str, int]
    programs: Callable[[], tuple[hloom.Module, Programs]]


def tables(data: str, model: str, divides: bool) -> dict[str, tuple[dict[str, Any], Any, Any]]:
    """Returns hand-made shardings of the transformer: of weights by kind, of the batch, and of activations. All devices
    divide the batch if they can (`divides`), else the first axis does.
    """
    both = (data, model)
    batch = P(both) if divides else P(data)
    tensor = {"col": P(None, model), "row": P(model), "heads": P(None, model), "out": P(model), "emb": P(model)}
    sharded = {"col": P(data, model), "row": P(model, data), "heads": P(data, model), "out": P(model, None, data),
               "emb": P(model, data)}  # fmt: skip
    full = {"col": P(both), "row": P(None, both), "heads": P(both), "out": P(None, None, both), "emb": P(None, both)}
    return {
        "data": ({}, batch, batch), "fsdp": (full, batch, batch),
        "tensor": (tensor, P(data), P(data)), "tensor, sequence": (tensor, P(data), P(data, model)),
        "fsdp x tensor": (sharded, P(data), P(data)), "fsdp x tensor, sequence": (sharded, P(data), P(data, model)),
    }  # fmt: skip


def steps(axes: Mapping[str, int], layers: int, sizes: Mapping[str, Any]) -> tuple[hloom.Module, Programs]:
    """Returns the training step of a transformer without annotations, and with each table."""
    config = transformer.Config(layers=layers, **sizes)
    tokens = jax.ShapeDtypeStruct((config.batch, config.sequence), jax.numpy.int32)
    state = transformer.state_shapes(config)
    given = lowering.Lowering(dict(axes))

    def module(weights: dict[str, Any], batch: Any, activations: Any) -> hloom.Module:
        col, row, heads, out, emb = (weights.get(k, P()) for k in ("col", "row", "heads", "out", "emb"))
        layer = {"attention_norm": P(), "query": heads, "key": heads, "value": heads, "output": out, "mlp_norm": P(),
                 "gate": col, "up": col, "down": row}  # fmt: skip
        specs = {"embedding": emb, "layers": [layer] * layers, "final_norm": P(), "unembedding": col}
        whole = {"step": P(), "parameters": specs, "first": specs, "second": specs}

        def on_mesh(spec: Any) -> Any:
            return jax.sharding.NamedSharding(given.mesh, spec)

        def placed(tree: Any) -> Any:
            return jax.tree.map(on_mesh, tree, is_leaf=is_spec)

        def constrain(x: Any, spec: Any) -> Any:
            return given.constrain(x, activations) if spec == transformer.RESIDUAL else x

        step = transformer.make_step(config, constrain)
        inputs = placed(whole), placed(batch), placed(batch)
        jitted = JIT(step, in_shardings=inputs, out_shardings=(placed(whole), placed(P())), donate_argnums=0)
        return hloom.parse(lowering.hlo_text(jitted.trace(state, tokens, tokens).lower(lowering_platforms=("cpu",))))

    plain = JIT(transformer.make_step(config, unchanged), donate_argnums=0)
    text = lowering.hlo_text(plain.trace(state, tokens, tokens).lower(lowering_platforms=("cpu",)))
    divides = config.batch % math.prod(axes.values()) == 0
    return hloom.parse(text), {name: module(*table) for name, table in tables(*axes, divides=divides).items()}


def unchanged(x: Any, _: Any) -> Any:
    return x


def is_spec(value: Any) -> bool:
    return isinstance(value, P)


def models(made: Mapping[str, Callable[[], Any]]) -> tuple[hloom.Module, Programs]:
    """Returns a model without annotations, and with each of its hand-made shardings, on meshes of their own. Those that
    divide a value unevenly are left out, as JAX refuses them.
    """
    programs: Programs = {}
    for name, make in made.items():
        try:
            programs[name] = make().module
        except ValueError as error:
            if "evenly" not in str(error):
                raise
    plain = clone_module(next(iter(programs.values())))
    hloom.strip_annotations(plain)
    return plain, programs


def llama(model: dense.Transformer, mesh: Mapping[str, int]) -> tuple[hloom.Module, Programs]:
    """Returns a training step of a dense model."""
    every = {"data": math.prod(mesh.values())}
    if model.batch % every["data"] or model.vocabulary % every["data"]:
        every = dict(mesh)  # only the first axis divides both
    tables = {
        "fsdp": (dense.FSDP, every), "fsdp x tensor": (dense.FSDP_TENSOR, mesh), "data": (dense.ACTIVATIONS, every),
        "tensor": (dense.MEGATRON, mesh), "tensor, sequence": (dense.SEQUENCE, mesh),
        "fsdp x tensor, sequence": (dense.FSDP_SEQUENCE, mesh), "finalized": (dense.FINALIZED, mesh),
    }  # fmt: skip
    return models({n: lambda t=t, on=on: dense.dense(model, on, t) for n, (t, on) in tables.items()})


def decoding(mesh: Mapping[str, int]) -> tuple[hloom.Module, Programs]:
    """Returns sixteen words of Llama 70B, by heads and by context."""
    model, count = replace(dense.LLAMA_70B, positions=""), math.prod(mesh.values())
    every = {"data": count} if model.batch % count == 0 else mesh  # else only the first axis divides the batch
    tables = {
        "heads": (decode.HEADS, mesh), "all heads": (decode.HEADS, {"data": 1, "model": count}),
        "fsdp": ({**dense.FSDP, "B": ("data",), "BSND": ("data",)}, every),
        "context": (decode.CONTEXT, {"data": count}),
    }  # fmt: skip
    tables = {n: t for n, t in tables.items() if n != "all heads" or not 8 % count}
    return models({n: lambda t=t, on=on: decode.decoding(model, on, t, 16) for n, (t, on) in tables.items()})


def mixture(model: experts.Experts, count: int) -> tuple[hloom.Module, Programs]:
    """Returns a training step of a mixture of experts, as GShard shards it, and with all other weights divided."""
    tables = {"paper": experts.GSHARD, "sharded": experts.SHARDED}
    return models({n: lambda t=t: experts.experts(model, {"data": count}, t) for n, t in tables.items()})


def perceptron(mesh: Mapping[str, int]) -> tuple[hloom.Module, Programs]:
    """Returns a training step of eight products, 1,024 rows for each device."""
    count = math.prod(mesh.values())
    sizes, weights = {"B": 1024 * count, "M": 4096, "H": 16384}, [{"up": "MH", "down": "HM"}] * 4

    def loss(weights: Any, inputs: Any, targets: Any) -> Any:
        x: Any = inputs
        for w in weights:
            x = x + jax.nn.relu(x @ w["up"].astype(x.dtype)) @ w["down"].astype(x.dtype)
        return jax.numpy.mean(jax.numpy.square((x - targets).astype("float32")))

    def made(table: Mapping[str, Any], axes: Mapping[str, int]) -> Any:
        layout = Layout(axes, table)
        batch = (layout.argument("BM", sizes, "bfloat16"),) * 2
        return training(layout, sizes, weights, loss, batch)

    every, rows = {"data": count}, {"BM": ("data",)}
    tables = {
        "data": (rows | {"MH": (), "HM": ()}, every),
        "fsdp": (rows | {"MH": ("data",), "HM": (None, "data")}, every),
        "tensor": (rows | {"MH": (None, "model"), "HM": ("model",)}, mesh),
        "fsdp x tensor": (rows | {"MH": ("data", "model"), "HM": ("model", "data")}, mesh),
    }  # fmt: skip
    return models({n: lambda t=t, on=on: made(t, on) for n, (t, on) in tables.items()})


def volumes(mesh: Mapping[str, int]) -> tuple[hloom.Module, Programs]:
    """Returns a training step of a 3-D U-Net, an image for each device, by the sides of the images and by batch."""
    every, whole = {"data": math.prod(mesh.values())}, (None, None, None)
    model = images.UNet(every["data"], 128, 32, 3)
    tables = {"paper": (("z", "y", None), mesh), "data": (whole, every)}
    return models({n: lambda space=space, on=on: images.images(model, on, space)
                   for n, (space, on) in tables.items()})  # fmt: skip


def encoder(mesh: Mapping[str, int]) -> tuple[hloom.Module, Programs]:
    """Returns a training step of the large Conformer."""
    model = conformer.Conformer(17, 512, 2048, 8, 64, 32, 512, 1024)
    every = {"data": math.prod(mesh.values())}
    tables = {"frames": (conformer.FRAMES, mesh), "tensor": (dense.MEGATRON, mesh), "fsdp": (dense.FSDP, every),
              "data": (dense.ACTIVATIONS, every)}  # fmt: skip
    return models({n: lambda t=t, on=on: conformer.conformer(model, on, t) for n, (t, on) in tables.items()})


def published(machine: str, mesh: Mapping[str, int]) -> list[Row]:
    """Returns published models on a mesh of a machine."""
    count = math.prod(mesh.values())
    llamas = {"8b": (dense.LLAMA_8B, 1), "70b": (dense.LLAMA_70B, 2), "405b": (dense.LLAMA_405B, 8)}
    sized = {n: replace(model, batch=max(count // devices, mesh["data"])) for n, (model, devices) in llamas.items()}
    return [
        *(Row(f"llama-{n} {count} {machine}", machine, mesh, lambda one=one: llama(one, mesh))
          for n, one in sized.items()),
        Row(f"decode {count} {machine}", machine, mesh, lambda: decoding(mesh)),
        Row(f"conformer {count} {machine}", machine, mesh, lambda: encoder(mesh)),
    ]  # fmt: skip


def rows(layers: int) -> list[Row]:
    found = [Row(f"small-mlp 8 {m}", m, {"data": 8}, lambda: models({"paper": lambda: _Loaded("mlp_train.hlo")}))
             for m in ("tpu-v4", "h100")]  # fmt: skip
    volume = {"data": 2, "z": 2, "y": 2}, {"data": 16, "z": 2, "y": 2}, {"data": 64, "z": 4, "y": 2}
    for machine in ("tpu-v5p", "h100"):
        for mesh, space, sizes in zip(MESHES, volume, (MEDIUM, LARGE, MANY)):
            count = math.prod(mesh.values())
            on = f"{count} {machine}"
            tpu = "tpu-v3" if machine == "tpu-v5p" else machine  # the paper's
            found += [
                Row(f"mlp {on}", machine, mesh, lambda mesh=mesh: perceptron(mesh)),
                Row(f"transformer {on}", machine, mesh, lambda m=mesh, s=sizes: steps(m, layers, s)),
                *published(machine, mesh),
                Row(f"experts {count} {tpu}", tpu, {"data": count}, lambda n=count: mixture(experts.gshard(n, 4), n)),
                Row(f"deepseek {on}", machine, {"data": count}, lambda n=count: mixture(experts.deepseek(n, 28), n)),
                Row(f"unet {on}", machine, space, lambda space=space: volumes(space)),
            ]
    return found


class _Loaded:
    def __init__(self, name: str) -> None:
        self.module = hloom.load(Path(__file__).parents[1] / "examples" / name)


def best_schedule(module: hloom.Module, context: PassContext, devices: int) -> Judged:
    """Returns the better forecast of the whole search of schedules and of list schedules, as a plan takes it; the
    latter alone if parameters and state do not fit.
    """
    listed = judge(module, context, devices, effort=Effort.LISTED)
    if listed.given > context.machine.capacity:
        return listed
    return min(listed, judge(module, context, devices), key=lambda judged: judged.rank)


def run(row: Row, seconds: float) -> tuple[float, float | None] | None:
    """Prints a row, and returns its ratio and the model's time over the forecast, None without a choice of the model;
    None if nothing fits, neither the plan nor what is hand-made.
    """
    plain, hand = row.programs()
    devices = math.prod(row.mesh.values())
    context = PassContext(machine=PRESETS[row.machine].of_devices(devices))
    judged = {name: best_schedule(module, context, devices) for name, module in hand.items()}
    best = min(judged, key=lambda name: judged[name].seconds)
    time.monotonic, begun = time.process_time, time.process_time()
    try:
        found = hloom.plan(plain, row.machine, mesh=row.mesh, seconds=seconds)
    except DoesNotFit as error:
        least = min(one.peak for one in judged.values())
        print(f"{row.name:22} does not fit: the plan takes {error.peak / 1e9:.3f} GB at least, the smallest hand-made "
              f"{least / 1e9:.3f} GB; {best} takes {1e3 * judged[best].seconds:.4f} ms", flush=True)  # fmt: skip
        return (math.inf, None) if judged[best].fits else None
    spent = time.process_time() - begun
    ratio = found.seconds / judged[best].seconds
    value = found.best.value
    told = value.seconds / found.seconds if value else None
    model = f"{told:5.2f}" if told is not None else "    -"
    gap = f"{found.gap:6.1%}" if found.gap is not None else "     -"
    print(f"{row.name:22} {1e3 * found.seconds:10.4f} {found.peak / 1e9:8.3f} {best:24} "
          f"{1e3 * judged[best].seconds:10.4f} {ratio:6.3f} {gap} {model} {found.best.name:34} {spent:6.1f}",
          flush=True)  # fmt: skip
    return ratio, told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--time", type=float, default=60.0)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    if args.list:
        print(*(row.name for row in rows(args.layers)), sep="\n")
        return
    print(f"{'program':22} {'plan ms':>10} {'peak GB':>8} {'best hand-made':24} {'ms':>10} {'ratio':>6} {'gap':>6} "
          f"{'model':>5} {'proposed by':34} {'cpu s':>6}")  # fmt: skip
    chosen = [r for r in rows(args.layers) if not args.names or any(name in r.name for name in args.names)]
    found = [one for row in chosen for one in [run(row, args.time)] if one is not None]
    ratios, off = [ratio for ratio, _ in found], [abs(told - 1) for _, told in found if told is not None]
    print(f"at most 1.00: {sum(round(r, 3) <= 1.0 for r in ratios)} of {len(ratios)}; "
          f"at most 0.95: {sum(r <= 0.95 for r in ratios)}")  # fmt: skip
    if off:
        print(f"the model's time differs from the forecast by {statistics.median(off):.1%} in the median, "
              f"{max(off):.1%} at most")  # fmt: skip


if __name__ == "__main__":
    main()
