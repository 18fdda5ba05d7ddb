"""Forecasts how rules that combine collectives schedule the backward pass of Llama 3.1 under FSDP.

    python bench/schedule.py [--models 8B 70B] [--devices 64 256] [--tokens 2048]

Prints milliseconds of the backward pass per model and number of devices: a lower bound, the best plan found and its gap
to the bound (`exact` where it is proven), and the plans of the rules: SimpleFSDP's greedy one, one bucket per layer,
XLA's combiners with 30 MiB, one collective per tensor. Collectives have the latency and bandwidth of NCCL across H100
nodes (LL128 up to 64 devices on eight nodes, 32 nodes beyond), a device 593 TFLOP/s. Tensors in flight may take as much
as 8 layers. Nothing runs; a plan whose tensors do not fit is marked with `!`. `step.py --buckets` runs smaller models
on ranks: with one collective per tensor, with one bucket per layer, and scheduled.
"""

from __future__ import annotations

import argparse
import time

from hloom.passes.schedule.search.arrange import Buckets, arrange
from hloom.passes.schedule.search.best import best_schedule
from hloom.passes.schedule.search.heuristics import XLA_BYTES, capped, in_groups, per_tensor, simplefsdp
from hloom.passes.schedule.search.problem import SchedulingProblem
from llama_problems import MODELS, Llama, Setting, backward, tensors

LINKS = {8: (30e-6, 394e9), 64: (150e-6, 298e9), 256: (564e-6, 295e9), 512: (1128e-6, 295e9)}
"""Latency and bandwidth of a gather by devices. The latency of 512 doubles that of 256, as a ring's does."""
HELD = 8  # layers


def setting_of(model: Llama, devices: int, tokens: int) -> Setting:
    """Returns devices with their links and memory for some layers of a model."""
    latency, bandwidth = LINKS[devices]
    setting = Setting(devices, latency, bandwidth, tokens, 0.0)
    layer = sum(size for size, _, name in tensors(model, setting) if name == "layer 0")
    largest = max(size for size, _, _ in tensors(model, setting))
    return Setting(devices, latency, bandwidth, tokens, max(HELD * layer, 3 * largest))


def text_of(problem: SchedulingProblem, buckets: Buckets) -> str:
    """Returns the milliseconds of the plan with these buckets."""
    found = arrange(problem, buckets)
    return f"{found.seconds * 1e3:.1f}{'' if found.is_within else '!'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=[m.name for m in MODELS])
    parser.add_argument("--devices", nargs="+", type=int, default=[64, 256, 512], choices=sorted(LINKS))
    parser.add_argument("--tokens", nargs="+", type=int, default=[2048, 8192], help="per device")
    parser.add_argument("--trials", type=int, default=300)
    arguments = parser.parse_args()
    print("model devices tokens     bound      best   gap  simplefsdp     layer   30 MiB     none  seconds")
    for model in (m for m in MODELS if m.name in arguments.models):
        for devices in arguments.devices:
            for tokens in arguments.tokens:
                problem, layers = backward(model, setting_of(model, devices, tokens))
                start = time.process_time()
                best = best_schedule(problem, layers, layers, trials=arguments.trials)
                seconds = time.process_time() - start
                rules = [simplefsdp(problem), in_groups(problem, layers, layers),
                         capped(problem, XLA_BYTES, alone=True), per_tensor(problem)]  # fmt: skip
                kind = "exact" if best.is_proven else f"{best.gap:.1%}"
                others = "  ".join(f"{text_of(problem, rule):>8}" for rule in rules)
                found = f"{best.bound * 1e3:8.1f}  {best.outcome.seconds * 1e3:8.1f} {kind:>5}"
                print(f"{model.name:5} {devices:7} {tokens:6}  {found}    {others}  {seconds:7.1f}", flush=True)


if __name__ == "__main__":
    main()
