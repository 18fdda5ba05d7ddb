"""Compiles LLVM IR through llvmlite to object code, and loads object code.

`HLOOM_CPU` hides features of the processor, such as `-avx512f,-fma`: without the fused multiply-add there is no native
code.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache
from typing import Any

from ...ir.diagnostics import fail
from ...ir.disk_cache import cached, folder

CPU = "HLOOM_CPU"
Native = Callable[[int], None]  # a compiled kernel: it takes the address of the array of buffer addresses


@cache
def _binding() -> Any:
    """Returns llvmlite's binding. Raises ImportError without llvmlite."""
    import llvmlite.binding as binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding


def is_available() -> bool:
    """Whether llvmlite is installed and the processor has a fused multiply-add, which HLOOM_CPU does not hide.

    Raises CompileError if HLOOM_CPU is wrong.
    """
    return _is_available(hidden())


@cache
def _is_available(masked: tuple[str, ...]) -> bool:
    try:
        features = _features()
    except (ImportError, OSError, RuntimeError):
        return False
    return any(features.get(name, False) and name not in masked for name in ("fma", "neon"))


@cache
def _features() -> dict[str, bool]:
    return dict(_binding().get_host_cpu_features())


def hidden() -> tuple[str, ...]:
    """Returns the features that HLOOM_CPU hides. Raises CompileError for other words."""
    return _hidden(os.environ.get(CPU, ""))


@cache
def _hidden(text: str) -> tuple[str, ...]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if not word.startswith("-"):
            fail(f"{CPU}: '{word}' hides no feature of the processor; -avx512f does, say")
    return tuple(word[1:] for word in words)


def host() -> tuple[str, str]:
    """Returns LLVM's name of this processor and its features, without those that HLOOM_CPU hides."""
    return _host(hidden())


@cache
def _host(masked: tuple[str, ...]) -> tuple[str, str]:
    binding = _binding()
    features = binding.get_host_cpu_features().flatten()
    return binding.get_host_cpu_name(), ",".join([features, *(f"-{name}" for name in masked)])


def version() -> str:
    """Returns the version of LLVM."""
    return ".".join(map(str, _binding().llvm_version_info))


def object_code(text: str, cpu: str = "", features: str = "") -> bytes:
    """Returns the object code of LLVM IR, for this processor unless another is named.

    The text is optimized already, with invariants hoisted and equal values numbered: LLVM's passes of level 2 take two
    to four times as long and make it no faster.
    """
    binding = _binding()
    if not cpu:
        cpu, features = host()
    module = binding.parse_assembly(text)
    module.verify()
    # LLVM puts each section into any gap between mappings. In a process of much memory these lie gigabytes apart, and
    # only the large model reaches that far. Kernels are no slower, since addresses stand outside of loops.
    machine = binding.Target.from_default_triple().create_target_machine(
        cpu=cpu, features=features, opt=2, reloc="static", codemodel="large"
    )
    builder = binding.create_pass_builder(machine, binding.create_pipeline_tuning_options())
    _few_passes().run(module, builder)
    return machine.emit_object(module)


def kept_code(text: str) -> bytes:
    """Returns the object code of LLVM IR for this processor, from the cache on disk if it is there."""
    return cached((text, version(), *host()), lambda: object_code(text), folder())


def _few_passes() -> Any:
    manager = _binding().create_new_module_pass_manager()
    manager.add_sroa_pass()
    manager.add_instruction_combine_pass()
    manager.add_simplify_cfg_pass()
    manager.add_new_gvn_pass()
    manager.add_dead_code_elimination_pass()
    return manager


class Loaded:
    """Object code in memory, and one of its functions."""

    def __init__(self, code: bytes, name: str = "kernel") -> None:
        binding = _binding()
        empty = binding.parse_assembly("")
        machine = binding.Target.from_default_triple().create_target_machine()
        self._engine = binding.create_mcjit_compiler(empty, machine)
        self._engine.add_object_file(binding.ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        self.address: int = self.function(name)
        self.run: Native = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.address)

    def function(self, name: str) -> int:
        """Returns the address of a function."""
        address: int = self._engine.get_function_address(name)
        if not address:
            raise ValueError(f"the object code has no function {name}")
        return address
