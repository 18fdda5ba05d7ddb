"""Lists the convolutions among the programs of the calibration: of images and volumes, and gradients of these."""

from __future__ import annotations

from collections.abc import Iterator

_IMAGES = (
    ("f32", 2, 16, 8, 16, 16), ("f32", 1, 32, 4, 4, 16), ("bf16", 2, 12, 16, 16, 16), ("bf16", 4, 64, 4, 4, 4),
    ("f32", 2, 96, 8, 4, 4), ("f32", 4, 64, 16, 16, 4), ("f32", 1, 128, 8, 8, 4), ("bf16", 2, 128, 4, 4, 4),
)  # fmt: skip
"""Type, images, side, channels of the image and of the result, and how many convolutions."""

_VOLUMES = (("f32", (20, 20, 20), 4, 8), ("bf16", (26, 14, 26), 8, 4))
"""Type, sides, channels of the volume and of the result; also of the gradients of the volume and of the weights."""

_WINDOW = "window={size=3x3x3 pad=1_1x1_1x1_1"


def convolutions() -> Iterator[tuple[str, list[str], list[tuple[str, str]]]]:
    """Yields the type of each program, its parameters, and its results as shapes and texts of ops."""
    for element, count, side, channels, made, times in _IMAGES:
        image, out = (f"{element}[{count},{side},{side},{c}]" for c in (channels, made))
        text = "convolution(x, k), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f"
        parameters = [f"k = {element}[3,3,{channels},{made}] parameter(0)", f"x = {image} parameter(1)"]
        yield element, parameters, [(out, text)] * times
    for element, sides, channels, made in _VOLUMES:
        (image, out), weight = (_volume(element, sides, c) for c in (channels, made)), f"{element}[3,3,3"
        size = "x".join(map(str, sides))
        for left, right, result, text in (
            (image, f"{weight},{channels},{made}]", out, f"{_WINDOW}}}, dim_labels=b012f_012io->b012f"),
            (out, f"{weight},{channels},{made}]", image,
             f"{_WINDOW} rhs_reversal=1x1x1}}, dim_labels=b012f_012oi->b012f"),
            (image, out, f"{weight},{channels},{made}]",
             f"window={{size={size} pad=1_1x1_1x1_1}}, dim_labels=f012b_i012o->012bf"),
        ):  # fmt: skip
            parameters = [f"k = {right} parameter(0)", f"x = {left} parameter(1)"]
            yield element, parameters, [(result, f"convolution(x, k), {text}")]


def _volume(element: str, sides: tuple[int, ...], channels: int) -> str:
    return f"{element}[1,{','.join(map(str, sides))},{channels}]"
