"""Every public name works as the first that a process uses: no other import had to come before.

Names are used in the least way that needs what they promise. A process that used a name of Hloom first partitions a
program then, and its numbers are right.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import hloom
import hloom.jax
import hloom.runtime
import pytest
from hloom import builder
from support.command_line import ROOT
from support.nursery import cold

PROGRAM = """HloModule m
ENTRY e {
  x = f32[16] parameter(0), sharding={devices=[4]<=[4]}
  ROOT y = f32[9] slice(x), slice={[3:12]}
}"""
BEGIN = f"""
import numpy as np
import hloom
it = hloom.%s
text = '''{PROGRAM}'''
x = np.arange(16, dtype=np.float32)
"""
PARTS = "module = hloom.parse(text)\nlocal = hloom.partition(module)\n"
END = """
(y,) = hloom.simulate(hloom.partition(hloom.parse(text)), [x])
np.testing.assert_array_equal(y, x[3:12])
"""
SAME = "text = text.replace('slice(x), slice={[3:12]}', OP + '(x)').replace('f32[9]', 'f32[16]')\n"
REFUSED = "try:\n    hloom.parse('x')\nexcept hloom.CompileError as e:\n    error = e\n"
NEGATION = "c = hloom.Module('n').new_computation('e', entry=True)\nv = c.build('negate', c.parameter(0, 'f32[2]'))\n"
SHARDING = "s = hloom.Sharding.over(hloom.Mesh.of(x=4), 'x')\n"

# How a name is used, after `it` is the name.
USES: dict[str, str] = {
    "export": PARTS + "assert it(local, 'replica').replica_count == 4",
    "Collective": PARTS + "assert isinstance(hloom.collectives(local)[0], it)",
    "collectives": PARTS + "assert len(it(local))",
    "Machine": "class M(it):\n    pass\nassert isinstance(hloom.parse_machine(), it)",
    "compile": "assert len(it(hloom.parse(text)).simulate([x])[0]) == 9",
    "Program": "assert isinstance(hloom.compile(hloom.parse(text)), it)",
    "NativeMemory": "assert isinstance(hloom.compile(hloom.parse(text)).native_memory(), it | None)",
    "Transfer": "assert it(1.0, 2.0).latency == 1",
    "LiveBuffer": PARTS + "assert isinstance(hloom.live_memory(local).buffers[0], it)",
    "LiveMemory": PARTS + "assert isinstance(hloom.live_memory(local), it)",
    "live_memory": PARTS + "assert it(local).peak",
    "parse_machine": "assert it('tpu-v4').fastest",
    "Timeline": PARTS + "assert isinstance(hloom.timeline(local, 'h100'), it)",
    "timeline": PARTS + "assert it(local, 'h100').seconds > 0",
    "Contraction": "assert it('dot', 'd', 2, 1).count == 1",
    "contractions": "assert it(hloom.parse(text)) == []",
    "builder": "assert it.trace(it.negative, 'f32[4]').entry.root.opcode == 'negate'",
    "jax": "assert 'jit' in it.__all__",
    "Snapshot": "assert it(hloom.parse(text), (), None, 'cpu').platform == 'cpu'",
    "load": "assert it('examples/mlp_named.hlo').name == 'mlp'",
    "load_snapshot": "try:\n    it('examples/mlp_named.hlo')\nexcept hloom.CompileError:\n    pass",
    "parse": "assert it(text).name == 'm'",
    "parse_shape": "assert it('f32[2]').dims == (2,)",
    "parse_sharding": "assert str(it('{replicated}')) == '{replicated}'",
    "find_deadlocks": PARTS + "assert it(local) == []",
    "CompileError": REFUSED + "assert isinstance(error, it)",
    "Diagnostic": REFUSED + "assert isinstance(error.diagnostics[0], it)",
    "InternalError": "assert it('a', 'b').pass_name == 'b'",
    "Severity": "assert it.ERROR.value == 'error'",
    "ShapeError": "assert it('a', help='b').help == 'b'",
    "Attributes": "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass A(it):\n    n: int = 1",
    "Algebra": "assert it('opaque') is it.OPAQUE",
    "Computation": NEGATION + "assert isinstance(c, it)",
    "Instruction": NEGATION + "assert isinstance(v, it)",
    "Module": NEGATION.replace("hloom.Module", "it") + "assert c.parent.to_text()",
    "Stage": "assert hloom.parse(text).stage is it.GLOBAL",
    "Op": "class O(it):\n    opcode = 'own'\nhloom.register(O)\n" + SAME.replace("OP", "'own'") + "hloom.parse(text)",
    "Memory": "class O(hloom.Op, it):\n    opcode, is_view = 'own', True\nassert O().interface(it).is_view",
    "Movement": "class O(hloom.Op, it):\n    opcode = 'own'\nassert O().interface(it).sources(None) is None",
    "Along": "assert it(0, 2).stride == 2",
    "RowMajor": "assert it() == it()",
    "OpCall": NEGATION + "assert isinstance(v.call, it)",
    "register": "class O(hloom.Op):\n    opcode = 'own'\nassert it(O) is O",
    "custom_call": "it('t', rule='([i]) -> [i]')(lambda x: x)",
    "Mesh": "assert it.of(x=4).size == 4",
    "Sharding": "assert str(it.over(hloom.Mesh.of(x=4), 'x'))",
    "P": NEGATION + "assert hloom.match(v, it('negate')) is not None",
    "find_all": "assert it(hloom.parse(text).entry, hloom.P('slice'))",
    "match": NEGATION + "assert it(v, hloom.P('negate')) is not None",
    "to_networkx": "assert len(it(hloom.parse(text))) == 2",
    "pipeline_schedule": "assert it('1f1b', 2, 4).times().bubble > 0",
    "PipelineSchedule": "assert isinstance(hloom.pipeline_schedule('gpipe', 2, 4), it)",
    "Trained": "assert it(1, []).losses == []",
    "train": "step = text.replace('slice(x), slice={[3:12]}', 'negate(x)').replace('f32[9]', 'f32[16]')\n"
             "assert it(hloom.parse(step), 2).step == 2",
    "checkpoint": "try:\n    it.load('none', hloom.parse(text))\nexcept hloom.CompileError:\n    pass",
    "page": "assert it(hloom.parse(text)).html",
    "xla_memory": PARTS + "assert it(local).peak >= it(local).parameters > 0",
    "Page": "assert isinstance(hloom.page(hloom.parse(text)), it)",
    "apply_strategy": "m = hloom.parse(text)\nit(m, {'x': 'a'}, {'a': 4})\nassert m.entry.parameters[0].sharding.mesh",
    "plan": "try:\n    assert it(hloom.parse(text), 'h100', mesh='4').peak > 0\n"
            "except hloom.CompileError as e:\n    assert 'HiGHS' in str(e)",
    "Plan": "assert it.__doc__",
    "sweep": "try:\n    assert it(hloom.parse(text), ['h100'], devices=[4], best=1).best.judged.fits\n"
             "except hloom.CompileError as e:\n    assert 'HiGHS' in str(e)",
    "Sweep": "assert it.__doc__",
    "remesh": "m = hloom.parse(text)\nhloom.apply_strategy(m, {'x': 'a'}, {'a': 4})\nit(m, {'a': 2})\n"
              "assert m.entry.parameters[0].sharding.mesh.size == 2",
    "strip_annotations": "m = hloom.parse(text)\nit(m)\nassert m.num_partitions == 1",
    "load_strategy": "try:\n    it('examples/none.toml')\nexcept hloom.CompileError:\n    pass",
    "partition": "assert it(hloom.parse(text), forms=hloom.local_forms()).num_partitions == 4",
    "propagate": "assert it(hloom.parse(text)).stage.value",
    "run_passes": "assert it(hloom.parse(text), 'propagate,dce').stage is hloom.Stage.SHARDED",
    "verify": "it(hloom.parse(text))",
    "Pass": "class D(it):\n    def run(self, module, context):\n        return False\n"
            "hloom.partition(hloom.parse(text), passes=(D(), *hloom.PIPELINE))",
    "PassContext": "assert len(it().forms.entries) > 20",
    "LocalForm": "assert it(lambda local: local.emit()).exchanged is None",
    "LocalForms": "assert isinstance(hloom.local_forms(), it)",
    "local_forms": "forms = it()\nassert len(forms.entries) > 20\n"
                   "local = hloom.partition(hloom.parse(text), forms=forms)\n"
                   "np.testing.assert_array_equal(hloom.simulate(local, [x])[0], x[3:12])",
    "PIPELINE": "hloom.partition(hloom.parse(text), passes=it)",
    "reshard_plan": SHARDING + "assert it(s, s, hloom.parse_shape('f32[8]')).moved_bytes == 0",
    "Partitioned": PARTS + "assert isinstance(local, it)",
    "LocalOp": "forms = hloom.local_forms().override('negate', hloom.LocalForm(it.emit))\n"
               + SAME.replace("OP", "'negate'") + "hloom.partition(hloom.parse(text), forms=forms)",
    "assert_collectives": PARTS + "it(local, total=range(9))",
    "explain": "assert it(hloom.parse(text), 'y')",
    "StepForecast": "assert isinstance(hloom.forecast(hloom.parse(text), 'h100'), it)",
    "forecast": "assert it(hloom.parse(text), 'h100').seconds > 0",
    "RankFailed": "assert it('a', 1).rank == 1",
    "evaluate": "assert it(hloom.parse(text), [x])[0].shape == (9,)",
    "run": "try:\n    it(hloom.parse(text), [], None)\nexcept (hloom.CompileError, AttributeError):\n    pass",
    "simulate": PARTS + "assert it(local, [x])[0].shape == (9,)",
    "prove": PARTS + "assert it(hloom.parse(text), local).is_equal",
    "Relations": PARTS + "assert isinstance(hloom.relate(module, local), it)",
    "relate": PARTS + "assert it(module, local).rows()",
    "Verdict": PARTS + "assert isinstance(hloom.prove(module, local), it)",
    "run_on_xla": PARTS + "try:\n    it(local, [x], 'none')\nexcept Exception as e:\n    assert 'none' in str(e)",
    "__version__": "assert it",
}  # fmt: skip

JAX = """
import numpy as np
import hloom
it = hloom.jax.%s
import jax
module = lambda: hloom.jax.from_jax(lambda x: x + 1, np.ones(4, np.float32))
"""
JAX_USES = {
    "from_jax": "assert it(lambda x: x + 1, np.ones(4, np.float32)).entry.root.opcode == 'add'",
    "exported": "assert it(hloom.partition(module()))",
    "jit": "np.testing.assert_array_equal(it(lambda x: x + 1)(np.ones(4, np.float32)), np.full(4, 2))",
    "Lowered": "assert isinstance(hloom.jax.jit(lambda x: x + 1).lower(np.ones(4, np.float32)), it)",
    "Compiled": "assert isinstance(hloom.jax.jit(lambda x: x + 1).lower(np.ones(4, np.float32)).compile(), it)",
    "filter_jit": "np.testing.assert_array_equal(it(lambda t: t['x'] * 2)({'x': np.ones(4), 'n': 'a'}), np.full(4, 2))",
    "nnx_jit": "assert callable(it(lambda model: model)) or jax",
    "Hook": "with hloom.jax.passes('cse') as hook:\n    pass\nassert isinstance(hook, it)",
    "Transformed": "assert it('a').changed == ()",
    "pipeline": "try:\n    it(max, max, hloom.pipeline_schedule('1f1b', 2, 2), jax.make_mesh((1,), ('stage',)))\n"
                "except ValueError as e:\n    assert 'not 2' in str(e)",
    "plan": "f = lambda x: x @ x\ntry:\n    assert it(f, np.ones((8, 8)), machine='h100', mesh='4').plan.peak\n"
            "except hloom.CompileError as error:\n    assert 'HiGHS' in str(error)",
    "JaxPlan": "assert it.__doc__",
    "passes": "with it('cse'):\n    jax.jit(lambda x: x + 1)(np.ones(4, np.float32))",
}

# How names of the builder are used in a function of x = f32[4,4], n = s32[4,4] and p = pred[4,4].
BUILDER = {
    "it(x)": "abs absolute arcsin arcsinh arctanh arccos arccosh cbrt ceil cos cosh erf exp expm1 floor imag "
             "isfinite isnan log log1p logistic negative real rint round_half_away rsqrt sign sin sinh sqrt square tan "
             "tanh all any argsort max mean min prod sum sort flip ones_like "
             "zeros_like squeeze transpose replicate barrier asarray",
    "it(n)": "bitwise_not invert count_leading_zeros population_count",
    "it(p)": "logical_not",
    "it(x, x + 1)": "add arctan2 divide equal floor_divide fmod greater greater_equal less less_equal maximum minimum "
                    "multiply not_equal power remainder subtract dot matmul make_complex",
    "it(n, n + 1)": "bitwise_and bitwise_or bitwise_xor left_shift right_shift right_shift_arithmetic "
                    "right_shift_logical multiply_high",
    "it(p, x > 0)": "logical_and logical_or logical_xor",
    "it(x, 1)": "argmax argmin cumprod cumsum cummax expand_dims", "it(x, 1, 0)": "roll",
    "hb.sin(x) + isinstance(x, it)": "Array", "it(x, 2)": "top_k", "it(x, 0, 1)": "clip moveaxis swapaxes",
    "it(x, 'f16')": "astype", "it(p, x, 0.0)": "where", "it('ij,jk->ik', x, x)": "einsum",
    "it(hb.add, x, 0.0)": "reduce", "it(x, (2, 8))": "reshape", "it(x, (3, 4, 4))": "broadcast_to",
    "it(x, x[:1])": "broadcast_arrays", "it([x, x])": "concatenate stack",
    "it(x, (n[0, 0], 0), (2, 2))": "dynamic_slice",
    "it(x, x[:2], (n[0, 0], 0))": "dynamic_update_slice", "it(x, 1.0)": "full_like", "it((2,), 1.0)": "full",
    "it(4) + n[0]": "arange", "it((4, 4), 0)": "iota", "it((4,))": "ones zeros", "it(x, ((1, 1), (0, 0)))": "pad",
    "it(x, n[0], 1)": "take", "it(x, n, 1)": "take_along_axis", "it(x, ('x', None))": "shard", "it(x, 0, 2)": "split",
    "it(x, hb.shard(x, ('x', None)))": "shard_like", "it(x, x + 1)[0]": "shard_as",
    "it(x, hloom.Mesh.of(x=2, y=2), [0, -1])": "mesh_split",
    "it(p[0, 0], hb.sin, hb.cos, x)": "cond", "it(n[0, 0], [hb.sin, hb.cos], x)": "switch",
    "it(0, 3, lambda i, y: y + 1, x)": "fori_loop", "it(lambda c, y: (c + y, c), x[0], x)": "scan",
    "it(lambda y: y.sum() < 9, lambda y: y + 1, x)": "while_loop",
    "it(lambda t: t + 1, in_specs=(('x',),), out_specs=('x',))(x)": "shard_map",
    **{f"hb.shard_map(lambda t: {use}, in_specs=(('x',),), out_specs={out})(x)": names for use, out, names in (
        ("it(t, 'x')", "()", "psum pmax pmin pmean"), ("it(t, 'x', tiled=True)", "()", "all_gather"),
        ("it(t, 'x', tiled=True)", "('x',)", "psum_scatter"), ("it(t, 'x', 1, 0, tiled=True)", "('x',)", "all_to_all"),
        ("it(t, 'x', [(0, 1)])", "('x',)", "ppermute"), ("t + it('x').astype('f32')", "('x',)", "axis_index"),
        ("t * it('x')", "('x',)", "axis_size"),
    )},
    "it('exponential', x)": "op", "it([x, (n, p)])": "flatten", "it([x, n], [0, 1])": "unflatten",
}  # fmt: skip
AROUND = {
    "trace": "print(it(hb.sin, 'f32[4]').to_text())",
    "use_mesh": "with it(hloom.Mesh.of(x=2)):\n    print(hb.trace(hb.sin, 'f32[4]').to_text())",
    "named_scope": "def f(x):\n    with it('a'):\n        return hb.sin(x)\nprint(hb.trace(f, 'f32[4]').to_text())",
    "Program": "with it('p') as program:\n    program.returns(hb.parameter('x', (4,), 'f32'))\n"
               "print(program.module.to_text())",
    "parameter": "with hb.Program('p') as program:\n    program.returns(it('x', (4,), 'f32'))\n"
                 "print(program.module.to_text())",
    "Spec": "print(it)",
}  # fmt: skip


def _of_builder() -> dict[str, str]:
    """The code that uses each name of the builder first, and prints a program."""
    begin = "import hloom\nit = hloom.builder.{}\nfrom hloom import builder as hb\n"
    traced = ("def f(x, n, p):\n    return {}\nwith hb.use_mesh(hloom.Mesh.of(x=2, y=2)):\n"
              "    print(hb.trace(f, 'f32[4,4]', 's32[4,4]', 'pred[4,4]').to_text())")  # fmt: skip
    inside = {name: traced.format(use) for use, names in BUILDER.items() for name in names.split()}
    return {name: begin.format(name) + code for name, code in (inside | AROUND).items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", _of_builder())
def test_name_of_the_builder_comes_first(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = _of_builder()[name]
    ended = cold(code, ROOT)
    assert (ended.code, ended.err) == (0, "")
    exec(compile(code, "<cold>", "exec"), {"__name__": "__main__"})
    assert ended.out == capsys.readouterr().out


def test_names_are_all_here() -> None:
    assert USES.keys() == set(hloom.__all__)
    exported = {alias.name for node in ast.walk(ast.parse(Path(str(builder.__file__)).read_text()))
                if isinstance(node, ast.ImportFrom) for alias in node.names}  # fmt: skip
    assert _of_builder().keys() == exported
    assert JAX_USES.keys() == set(hloom.jax.__all__)
    assert set(hloom.runtime.__all__) - {"KernelProvider", "NumpyKernels"} <= USES.keys()


def _succeeds(code: str) -> None:
    ended = cold(code, ROOT)
    assert (ended.code, ended.err) == (0, ""), ended.err


def _some() -> list[Any]:
    """The names, slow ones but for one of each module that names come from."""
    places = dict.fromkeys(USES) | {name: place.partition(":")[0] for name, place in vars(hloom)["_PLACES"].items()}
    first = {place: name for name, place in reversed(places.items())}
    return [name if first[place] == name and name != "run_on_xla" else pytest.param(name, marks=pytest.mark.slow)
            for name, place in places.items()]  # fmt: skip


@pytest.mark.parametrize("name", _some())
def test_name_comes_first(name: str) -> None:
    _succeeds(BEGIN % name + USES[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", USES)
def test_numbers_are_right_after(name: str) -> None:
    _succeeds(BEGIN % name + USES[name] + f"\ntext = '''{PROGRAM}'''" + END)


@pytest.mark.slow
@pytest.mark.parametrize("name", JAX_USES)
def test_name_of_jax_comes_first(name: str) -> None:
    pytest.importorskip("jax")
    _succeeds(JAX % name + JAX_USES[name])


def test_a_process_is_cold() -> None:
    """Nothing is there that the test's own process has imported."""
    ended = cold("import sys\nprint([m for m in sys.modules if 'hloom' in m], 'numpy' in sys.modules)")
    assert (ended.code, ended.out) == (0, "[] True\n")
    assert cold("import sys\nsys.exit(3)").code == 3
    assert "ZeroDivisionError" in cold("1 / 0").err
