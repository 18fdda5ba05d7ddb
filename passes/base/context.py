"""What passes share while they run: options, findings, and what they go by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...cost.machine import DEFAULT, Machine
from ...ir.diagnostics import Diagnostics
from ...ir.factors.sharding_rule import ShardingRule
from ...ir.graph.module import Module
from ...ir.graph.op import OpCall
from ..op_sharding.forms import LocalForms, built_in
from ..resharding.base.record import Resharding


@dataclass(frozen=True, slots=True)
class PassRecord:
    """What a pipeline saw of one pass: seconds and whether the module changed."""

    name: str
    seconds: float
    changed: bool


Rules = Mapping[str, "str | Callable[[OpCall[Any]], ShardingRule | None]"]
"""Sharding rules by opcode, as text or as functions of the use."""


@dataclass
class PassContext:
    """What passes share. `num_devices` is the number asked for, or None to take what the program says, or
    `default_devices` if it says nothing.

    `rules` take the place of the sharding rules of built-in ops in propagation (`propagation/rules`). `after` is called
    with the pass name and the module after every pass (dumps). `verify` checks the module after every pass that changed
    it; a violation is Hloom's own mistake and raises InternalError. `machine` says how long things take. `forms` are
    the local forms of ops, which costs and the partitioner both go by. Passes add what they find to `diagnostics`, the
    partitioner its plans to `reshardings`.
    """

    num_devices: int | None = None
    default_devices: int | None = None
    rules: Rules = field(default_factory=dict[str, Any])
    verify: bool = False
    after: Callable[[str, Module], None] | None = None
    machine: Machine = DEFAULT
    forms: LocalForms = field(default_factory=built_in)
    diagnostics: Diagnostics = field(default_factory=Diagnostics)
    reshardings: list[Resharding] = field(default_factory=list[Resharding])
    records: list[PassRecord] = field(default_factory=list[PassRecord])
