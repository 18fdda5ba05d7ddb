"""Calls of GPU libraries compute what the ops do that they stand for, and are divided like these."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from typing import Any

import hloom
import numpy as np
import pytest
from hloom.ir.tools.library_calls import expand_library_calls

Array = np.ndarray[Any, Any]


def matmul(epilogue: str = "DEFAULT", beta: float = 0, **more: Any) -> str:
    numbers = {"lhs_contracting_dimensions": ["1"], "rhs_contracting_dimensions": [0]}
    config = {"alpha_real": 0.5, "beta": beta, "epilogue": epilogue, "dot_dimension_numbers": numbers} | more
    return json.dumps({"gemm_backend_config": config})


def product_of(
    config: str, extra: str = "", results: str = "f32[8,4], s8[64]", target: str = "__cublas$lt$matmul"
) -> str:
    names = [line.split(" = ")[0].strip() for line in extra.split("\n") if line]
    return f"""HloModule m
ENTRY e {{
  x = f32[8,6] parameter(0), sharding={{devices=[2,2]<=[4]}}
  w = f32[6,4] parameter(1), sharding={{devices=[2,2]<=[4]}}
{extra}
  g = ({results}) custom-call({", ".join(["x", "w", *names])}), custom_call_target="{target}", backend_config={config}
  ROOT y = f32[8,4] get-tuple-element(g), index=0
}}
"""


def arrays(module: hloom.Module) -> list[Array]:
    rng = np.random.default_rng(0)
    return [rng.integers(-4, 5, p.shape.dims).astype(p.shape.element.numpy) for p in module.entry.parameters]


def gelu(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


BIAS, ADDED = "  b = f32[4] parameter(2)", "  c = f32[8,4] parameter(2)"
CURVES: dict[str, Callable[[Array], Array]] = {
    "RELU": lambda x: np.maximum(x, 0), "GELU": gelu, "SILU": lambda x: x / (1 + np.exp(-x))
}  # fmt: skip


@pytest.mark.parametrize("epilogue", ["DEFAULT", "BIAS", "RELU", "BIAS_RELU", "BIAS_GELU", "SILU"])
def test_products(epilogue: str) -> None:
    module = hloom.parse(product_of(matmul(epilogue), BIAS if "BIAS" in epilogue else ""))
    inputs = arrays(module)
    expected: Array = 0.5 * inputs[0] @ inputs[1] + (inputs[2] if "BIAS" in epilogue else 0)
    if epilogue.removeprefix("BIAS_") in CURVES:
        expected = CURVES[epilogue.removeprefix("BIAS_")](expected)
    np.testing.assert_allclose(hloom.evaluate(module, inputs)[0], expected, rtol=1e-5, atol=1e-5)
    local = hloom.partition(module)
    assert not any(i.opcode == "custom-call" for c in local for i in c)  # nobody reads the memory
    np.testing.assert_allclose(hloom.simulate(local, inputs)[0], expected, rtol=1e-5, atol=1e-5)
    assert hloom.prove(module, local).agrees


def test_an_added_matrix() -> None:
    module = hloom.parse(product_of(matmul(beta=2), ADDED, target="__cublas$gemm"))
    x, w, c = arrays(module)
    np.testing.assert_array_equal(hloom.evaluate(module, [x, w, c])[0], 0.5 * x @ w + 2 * c)


def test_the_value_before_the_curve() -> None:
    """An auxiliary result; a bias lies along the dimension that is innermost in memory."""
    text = product_of(matmul("BIAS_GELU_AUX"), "  b = f32[8] parameter(2)", "f32[8,4]{0,1}, f32[8,4]{0,1}, s8[64]")
    module = hloom.parse(text.replace("index=0", "index=1").replace("y = f32[8,4]", "y = f32[8,4]{0,1}"))
    x, w, b = arrays(module)
    np.testing.assert_array_equal(hloom.evaluate(module, [x, w, b])[0], 0.5 * x @ w + b[:, None])


def test_scales_of_eight_bits() -> None:
    extra = "  s = f32[] parameter(2)\n  t = f32[] parameter(3)"
    module = hloom.parse(product_of(matmul(), extra, target="__cublas$lt$matmul$f8").replace(
        "x = f32", "x = f8e4m3fn").replace("w = f32", "w = f8e4m3fn"))  # fmt: skip
    x, w, s, t = arrays(module)
    found = hloom.evaluate(module, [x, w, s, t])[0]
    np.testing.assert_array_equal(found, 0.5 * s * t * (x.astype(np.float32) @ w.astype(np.float32)))


def test_the_work_is_counted() -> None:
    local = hloom.partition(hloom.parse(product_of(matmul())))
    assert sum(c.multiply_adds for c in hloom.contractions(local)) == 8 * 6 * 4 // 4
    assert "% of the peak" in str(hloom.forecast(hloom.parse(product_of(matmul())), "h100"))


OTHER = {"lhs_contracting_dimensions": ["0"], "rhs_contracting_dimensions": ["1"]}


@pytest.mark.parametrize("config", [
    '"text"', "{}", '{"gemm_backend_config":"x"}', matmul(alpha_real=[]), matmul(dot_dimension_numbers=None),
    matmul(beta=float("inf")), matmul("NEW"), matmul(alpha_imag=1), matmul(dot_dimension_numbers=OTHER),
])  # fmt: skip
def test_calls_that_ask_for_something_else_stay(config: str) -> None:
    module = hloom.parse(product_of(config))
    assert any('custom_call_target="__cublas' in line for line in hloom.partition(module).to_text().splitlines())
    with pytest.raises(hloom.CompileError, match="is unknown"):
        hloom.evaluate(module, arrays(module))


CONVOLUTION = """HloModule m
ENTRY e {{
  x = f32[2,{size},7,3] parameter(0)
  w = f32[3,2,3,4] parameter(1)
  y = f32[2,{rows},{columns},4] parameter(2)
  f = (f32[2,{rows},{columns},4], u8[0]) custom-call(x, w), custom_call_target="__cudnn$convForward", {how}
  dx = (f32[2,{size},7,3], u8[0]) custom-call(y, w), custom_call_target="__cudnn$convBackwardInput", {how}
  dw = (f32[3,2,3,4], u8[0]) custom-call(x, y), custom_call_target="__cudnn$convBackwardFilter", {how}
  f0 = f32[2,{rows},{columns},4] get-tuple-element(f), index=0
  dx0 = f32[2,{size},7,3] get-tuple-element(dx), index=0
  dw0 = f32[3,2,3,4] get-tuple-element(dw), index=0
  ROOT t = (f32[2,{rows},{columns},4], f32[2,{size},7,3], f32[3,2,3,4]) tuple(f0, dx0, dw0)
}}
"""


@pytest.mark.parametrize(("stride", "low", "high", "dilation"), list(product((1, 2), (0, 1), (0, 2), (1, 2))))
def test_gradients_of_convolutions(stride: int, low: int, high: int, dilation: int) -> None:
    """<conv(x, w), y> = <x, dx> = <w, dw>, exactly for small integers: the gradients are the adjoints."""
    size = 9
    rows = (size + low + high - 2 * dilation - 1) // stride + 1
    window = f"size=3x2 stride={stride}x1 pad={low}_{high}x1_0 rhs_dilate={dilation}x1"
    how = (f"window={{{window}}}, dim_labels=b01f_01io->b01f, backend_config="
           '{"cudnn_conv_backend_config":{"conv_result_scale":1,"activation_mode":"kNone"}}')  # fmt: skip
    module = hloom.parse(CONVOLUTION.format(size=size, rows=rows, columns=7, how=how))
    x, w, y = arrays(module)
    f, dx, dw = hloom.evaluate(module, [x, w, y])
    assert np.vdot(f, y) == np.vdot(x, dx) == np.vdot(w, dw)


def test_a_convolution_with_bias_side_input_and_activation() -> None:
    config = '{"cudnn_conv_backend_config":{"conv_result_scale":2,"side_input_scale":3,"activation_mode":"kRelu"}}'
    module = hloom.parse(f"""HloModule m
ENTRY e {{
  x = f16[4,3,5] parameter(0), sharding={{devices=[4,1,1]<=[4]}}
  w = f16[2,3,1] parameter(1)
  b = f32[2] parameter(2)
  s = f16[4,2,5] parameter(3)
  c = (f16[4,2,5], u8[8]) custom-call(x, w, b, s), custom_call_target="__cudnn$convBiasActivationForward",
    window={{size=1}}, dim_labels=bf0_oi0->bf0, backend_config={config}
  ROOT r = f16[4,2,5] get-tuple-element(c), index=0
}}""")
    x, w, b, s = arrays(module)
    expected = np.maximum(2 * np.einsum("bfn,of->bon", x, w[..., 0]) + b[:, None] + 3 * s, 0)
    np.testing.assert_array_equal(hloom.evaluate(module, [x, w, b, s])[0], expected)
    assert hloom.collectives(hloom.partition(module)) == []


@pytest.mark.parametrize("descending", [False, True])
def test_sorts(descending: bool) -> None:
    module = hloom.parse(f"""HloModule m
ENTRY e {{
  k = f32[3,16] parameter(0), sharding={{devices=[1,2]<=[2]}}
  v = s32[3,16] parameter(1)
  c = (f32[3,16], s32[3,16], u8[7]) custom-call(k, v), custom_call_target="__cub$DeviceRadixSort",
    backend_config={{"descending":{str(descending).lower()}}}
  k0 = f32[3,16] get-tuple-element(c), index=0
  v0 = s32[3,16] get-tuple-element(c), index=1
  ROOT t = (f32[3,16], s32[3,16]) tuple(k0, v0)
}}""")
    keys, values = arrays(module)
    order = np.argsort(-keys if descending else keys, axis=1, kind="stable")
    for found in (hloom.evaluate(module, [keys, values]), hloom.simulate(hloom.partition(module), [keys, values])):
        np.testing.assert_array_equal(found[0], np.take_along_axis(keys, order, 1))
        np.testing.assert_array_equal(found[1], np.take_along_axis(values, order, 1))


def test_a_product_alone_is_rounded_as_it_is_written() -> None:
    text = """ENTRY e {
  x = bf16[8,16] parameter(0)
  w = bf16[16,4] parameter(1)
  ROOT g = (bf16[8,4], s8[64]) custom-call(x, w), custom_call_target="__cublas$gemm", backend_config={
    "gemm_backend_config":{"alpha_real":1,"beta":0,"epilogue":"DEFAULT","dot_dimension_numbers":{
    "lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}}}
}"""
    module = hloom.parse(text)
    assert expand_library_calls(module)
    dot, scratch = module.entry.root.operands
    assert (dot.opcode, str(dot.shape.element), scratch.opcode) == ("dot", "bf16", "custom-call")


def test_the_work_of_another_compiler_is_proved() -> None:
    """The chance of a mistake goes by the degrees of the ops that a call stands for."""
    text = product_of(matmul("BIAS"), BIAS)
    plain = text[: text.index("  g = ")] + """
  d = f32[8,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  h = f32[] constant(0.5)
  s = f32[8,4] broadcast(h), dimensions={}
  m = f32[8,4] multiply(d, s)
  a = f32[8,4] broadcast(b), dimensions={1}
  ROOT y = f32[8,4] add(m, a)
}
"""
    pairs = product((text, plain), repeat=2)
    verdicts = [hloom.prove(hloom.parse(one), hloom.partition(hloom.parse(other))) for one, other in pairs]
    assert all(v.is_equal for v in verdicts)
    assert len({v.chance for v in verdicts}) == 1
    wrong = hloom.partition(hloom.parse(plain.replace("constant(0.5)", "constant(0.25)")))
    assert hloom.prove(hloom.parse(text), wrong).outcome == "differs"
