"""Lists examples for the help of each command. A test runs them all on the files that they name."""

EXAMPLES: dict[str, tuple[str, ...]] = {
    "run": (
        "hloom run examples/mlp_named.hlo --check",
        "hloom run examples/mlp_named.hlo --mesh x=3,y=5 --check --seeds 3",
        "hloom run examples/transformer_train.hlo --ranks 4 --out results",
    ),
    "bench": ("hloom bench examples/mlp_named.hlo --repeat 3", "hloom bench examples/mlp_named.hlo --backend native"),
    "prove": ("hloom prove examples/mlp_named.hlo", "hloom prove examples/mlp_named.hlo --mesh x=3,y=5 --trials 8"),
    "relate": ("hloom relate examples/mlp_named.hlo", "hloom relate examples/mlp_named.hlo 'all-*' --mesh x=3,y=5"),
    "eval": (
        "hloom eval examples/mlp_named.hlo --inputs zeros",
        "hloom eval examples/mlp_named.hlo --seed 7 --out one",
    ),
    "partition": (
        "hloom partition examples/mlp_named.hlo",
        "hloom partition examples/mlp_named.hlo --set 'w*=,y' --form manual",
    ),
    "opt": (
        "hloom opt examples/mlp_named.hlo --passes propagate,spmd-partition,cse,dce",
        "hloom opt examples/mlp_named.hlo --passes propagate --dump-after all --time",
    ),
    "comm": ("hloom comm examples/mlp_named.hlo", "hloom comm examples/mlp_named.hlo --mesh x=4,y=2 --json"),
    "memory": ("hloom memory examples/mlp_named.hlo", "hloom memory examples/mlp_named.hlo --mesh x=4,y=2 --largest 5"),
    "schedule": (
        "hloom schedule examples/transformer_train.hlo --machine h100",
        "hloom schedule examples/transformer_scan_train.hlo --machine cpu-cluster --trace forecast.json",
    ),
    "forecast": (
        "hloom forecast examples/transformer_train.hlo --machine h100",
        "hloom forecast examples/transformer_scan_train.hlo --machine tpu-v5e --critical",
    ),
    "machine": ("hloom machine", "hloom machine h100 > ours.toml", "hloom machine calibrate --ranks 4 -o ours.toml"),
    "shard": (
        "hloom shard examples/mlp_named.hlo",
        "hloom shard examples/transformer_train.hlo \"state['first']*\" '*dot_general*'",
    ),
    "explain": (
        "hloom explain examples/mlp_named.hlo square",
        "hloom explain examples/transformer_train.hlo \"state['first']['embedding']\"",
        "hloom explain examples/mlp_named.hlo h --without w1",
    ),
    "rules": ("hloom rules examples/mlp_named.hlo",),
    "picture": (
        "hloom picture f32[8,6] \"[{'y'}, {'x'}]\" --mesh x=2,y=3",
        "hloom picture f32[8,6] '{devices=[4,2]<=[8]}'",
    ),
    "reshard": (
        "hloom reshard f32[8,6] \"[{'x'}, {}]\" \"[{}, {'x'}]\" --mesh x=2",
        "hloom reshard f32[8] '{devices=[4]<=[4]}' '{replicated}' --links 1us/100GB",
    ),
    "from-jax": (
        "hloom from-jax examples/train_step.py:program --out step.hlo",
        "hloom from-jax examples/train_step.py:program > step.hlo",
    ),
    "show": ("hloom show examples/mlp_named.hlo", "hloom show examples/mlp_named.hlo --computation sum",
             "hloom show examples/mlp_named.hlo --as stablehlo > mlp.mlir"),
    "isolate": ("hloom isolate examples/mlp_named.hlo --inst y --depth 2",),
    "diff": ("hloom diff examples/mlp_named.hlo examples/mlp_named.hlo",),
    "verify": ("hloom verify examples/mlp_named.hlo",),
    "completion": ('eval "$(hloom completion bash)"', "hloom completion fish > ~/.config/fish/completions/hloom.fish"),
}
