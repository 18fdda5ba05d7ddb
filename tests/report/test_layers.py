"""Layers of the page: by the stacks at which a frontend made ops, where neither paths nor names of parameters number
them.
"""

from __future__ import annotations

import re

import hloom
from hloom.report.data.layer_frames import layers_of_stacks
from hloom.report.data.sections import sections
from support.command_line import EXAMPLES

STEP = EXAMPLES / "transformer_train.hlo"
TABLES = """FileNames
1 "model.py"

FunctionNames
1 "main"
2 "block"
3 "dense"

FileLocations
1 {file_name_id=1 function_name_id=1 line=10 end_line=10 column=8 end_column=20}
2 {file_name_id=1 function_name_id=1 line=11 end_line=11 column=8 end_column=20}
3 {file_name_id=1 function_name_id=1 line=12 end_line=12 column=8 end_column=20}
4 {file_name_id=1 function_name_id=2 line=4 end_line=4 column=8 end_column=20}
5 {file_name_id=1 function_name_id=2 line=5 end_line=5 column=8 end_column=20}
6 {file_name_id=1 function_name_id=3 line=1 end_line=1 column=8 end_column=20}

StackFrames
"""


def _stacks(*chains: list[int]) -> str:
    """Returns the tables; the stack of a chain of places has the number of its last row."""
    rows: list[str] = []
    for chain in chains:
        for n, place in enumerate(chain):
            parent = len(rows) + 1 if n else 1
            rows.append(f"{len(rows) + 1} {{file_location_id={place} parent_frame_id={parent}}}")
    return TABLES + "\n".join(rows)


def _program(frames: list[int], tables: str, names: str = "a b c d e f") -> str:
    """Three times two products, each with the frame of its number."""
    weights = names.split()
    lines = ["x = f32[8,8] parameter(0)", *(f"{w} = f32[8,8] parameter({n})" for n, w in enumerate(weights, 1))]
    before = "x"
    for n, w in enumerate(weights):
        lines += [f"y{n} = f32[8,8] dot({before}, {w}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, "
                  f'metadata={{op_name="jit(f)/dot_general" stack_frame_id={frames[n]}}}',
                  f"h{n} = f32[8,8] tanh(y{n})"]  # fmt: skip
        before = f"h{n}"
    return f"HloModule m\n\n{tables}\n\nENTRY e {{\n" + "\n".join([*lines[:-1], "ROOT " + lines[-1]]) + "\n}\n"


def test_a_function_called_on_several_lines_makes_a_layer_each() -> None:
    tables = _stacks(*([call, place, 6] for call in (1, 2, 3) for place in (4, 5)))
    entry = hloom.parse(_program([3, 6, 9, 12, 15, 18], tables)).entry
    assert list(layers_of_stacks(entry, (), {}).values()) == [0, 0, 0, 1, 1, 2, 2]


def test_a_loop_calls_a_function_again_on_one_line() -> None:
    tables = _stacks([1, 4, 6], [1, 5, 6])
    module = hloom.parse(_program([3, 6] * 3, tables))
    assert list(layers_of_stacks(module.entry, (), {}).values()) == [0, 0, 0, 1, 1, 2, 2]
    found, layers = sections(module)
    assert (layers, [(s.name, s.count) for s in found]) == (3, [("layers 0 to 2", 3)])


def test_products_of_different_places_are_no_layers() -> None:
    tables = _stacks([1, 4], [2, 5], [3, 6], [1, 5], [1, 6], [2, 6])
    entry = hloom.parse(_program([2, 4, 6, 8, 10, 12], tables)).entry
    assert layers_of_stacks(entry, (), {}) == {}
    assert layers_of_stacks(hloom.parse(_program([0] * 6, TABLES)).entry, (), {}) == {}


def test_names_that_count_otherwise_give_way() -> None:
    tables = _stacks([1, 4, 6], [1, 5, 6])
    named = _program([3, 6] * 3, tables, "w0_a w0_b w0_c w1_a w1_b w1_c")
    assert sections(hloom.parse(named))[1] == 3
    assert sections(hloom.parse(named.replace("stack_frame_id", "source_line")))[1] == 2


def test_a_training_step_without_names_has_the_layers_of_one_with_names() -> None:
    text = STEP.read_text()
    names = dict.fromkeys(re.findall(r"%(state__[\w.]+) = ", text))
    found: list[list[tuple[int, str, int, int]]] = []
    for number, source in enumerate((text, re.sub(r'op_name="state[^"]*"', 'op_name="p"', text))):
        for n, name in enumerate(names if number else ()):
            source = re.sub(rf"(?<!\w){re.escape(name)}(?![\w.])", f"anonymous{'abcdefghij'[n // 10]}{n % 10}z", source)
        module = hloom.partition(hloom.parse(source)).module
        found.append([(s.phase, s.name, s.count, len(s.members)) for s in sections(module)[0]])
    assert found[0] == found[1]
    assert sum("layer" in name and "the" not in name for _, name, _, _ in found[1]) >= 4
