"""Local forms, by op family. Importing this package registers them all."""

from . import (
    bitcast,
    device_number,
    dynamic,
    fft,
    indexed,
    iota,
    normalization,
    random,
    reduce,
    reshape,
    slicing,
    sort,
    topk,
    windows,
)

__all__ = [
    "bitcast", "device_number", "dynamic", "fft", "indexed", "iota", "normalization", "random", "reduce", "reshape",
    "slicing", "sort", "topk", "windows",
]  # fmt: skip
