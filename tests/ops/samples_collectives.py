"""Samples of collectives: they parse, verify and print; running them needs several devices (see tests/runtime)."""

from __future__ import annotations

_HEAD = "HloModule m, num_partitions=8\n"
_ADD = "f { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }\n"
_GLOBAL = "channel_id=1, use_global_device_ids=true"


def _one(operand: str, result: str, opcode: str, attributes: str, head: str = _HEAD) -> str:
    return f"{head}ENTRY e {{ x = {operand} parameter(0) ROOT r = {result} {opcode}(x), {attributes} }}"


def _two(operand: str, result: str, opcode: str, attributes: str, head: str = _HEAD) -> str:
    return (
        f"{head}ENTRY e {{ x = {operand} parameter(0) y = {operand} parameter(1) "
        f"ROOT r = ({result}, {result}) {opcode}(x, y), {attributes} }}"
    )


_LISTS = "replica_groups={{0,1,2,3},{4,5,6,7}}"
_IOTA = "replica_groups=[2,4]<=[4,2]T(1,0)"
_MESH = "replica_groups=mesh['x'=2,'y'=4] {'y'}"
_REDUCER = _HEAD + _ADD

SAMPLES: dict[str, list[str]] = {
    "all-reduce": [
        _one("f32[4,6]", "f32[4,6]", "all-reduce", f"{_LISTS}, {_GLOBAL}, to_apply=f", _REDUCER),
        _one("f32[4,6]", "f32[4,6]", "all-reduce", "replica_groups={}, to_apply=f", _REDUCER),
        _two("f32[4,6]", "f32[4,6]", "all-reduce", f"{_IOTA}, {_GLOBAL}, to_apply=f", _REDUCER),
    ],
    "all-gather": [
        _one("f32[4,6]", "f32[16,6]", "all-gather", f"{_IOTA}, {_GLOBAL}, dimensions={{0}}"),
        _one("f32[4,6]", "f32[4,24]", "all-gather", f"{_MESH}, {_GLOBAL}, dimensions={{1}}"),
        _two("bf16[4,6]", "bf16[4,48]", "all-gather", "replica_groups={}, dimensions={1}"),
    ],
    "reduce-scatter": [
        _one("f32[8,6]", "f32[2,6]", "reduce-scatter", f"{_LISTS}, {_GLOBAL}, dimensions={{0}}, to_apply=f", _REDUCER),
        _two("f32[8,6]", "f32[2,6]", "reduce-scatter", f"{_IOTA}, {_GLOBAL}, dimensions={{0}}, to_apply=f", _REDUCER),
    ],
    "all-to-all": [
        _one("f32[8,6]", "f32[8,6]", "all-to-all", f"{_LISTS}, channel_id=1, dimensions={{0}}"),
        _two("f32[8,6]", "f32[8,6]", "all-to-all", "replica_groups={{0,1},{2,3},{4,5},{6,7}}"),
    ],
    "collective-permute": [
        _one("f32[8,6]", "f32[8,6]", "collective-permute", "channel_id=1, source_target_pairs={{0,1},{1,2},{2,0}}"),
        _one("s32[]", "s32[]", "collective-permute", "source_target_pairs={{0,7}}"),
    ],
    "collective-broadcast": [
        _one("f32[8,6]", "f32[8,6]", "collective-broadcast", f"{_LISTS}, channel_id=1"),
    ],
}
