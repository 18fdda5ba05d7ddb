"""Samples of fft: the four types, one to three dimensions, even and odd lengths, both precisions."""

from __future__ import annotations


def _fft(operand: str, result: str, kind: str, length: str) -> str:
    return f"""
HloModule m
ENTRY e {{
  x = {operand} parameter(0)
  ROOT r = {result} fft(x), fft_type={kind}, fft_length={{{length}}}
}}
"""


SAMPLES: dict[str, list[str]] = {
    "fft": [
        _fft("c64[3,8]", "c64[3,8]", "FFT", "8"),
        _fft("c64[2,3,4,5]", "c64[2,3,4,5]", "FFT", "3,4,5"),
        _fft("c128[7]", "c128[7]", "FFT", "7"),
        _fft("c64[4,6,5]", "c64[4,6,5]", "IFFT", "6,5"),
        _fft("f32[3,8]", "c64[3,5]", "RFFT", "8"),
        _fft("f64[4,3,7]", "c128[4,3,4]", "RFFT", "3,7"),
        _fft("f32[2,1]", "c64[2,1]", "RFFT", "1"),
        _fft("c64[3,5]", "f32[3,8]", "IRFFT", "8"),
        _fft("c64[2,3,4,4]", "f32[2,3,4,7]", "IRFFT", "3,4,7"),
        _fft("c64[0,4]", "c64[0,4]", "FFT", "4"),
        _fft("c64[3,0]", "c64[3,0]", "FFT", "1"),
        _fft("c64[0,4,0,1]", "c64[0,4,0,1]", "IFFT", "1,1,1"),
        _fft("c64[3,1]", "f32[3,0]", "IRFFT", "0"),
        "// xla: no\n" + _fft("c64[4,6]", "c64[4,6]", "FFT", "0"),  # zeros by its evaluator, anything on CPU
        "// xla: no\n" + _fft("c64[2,4,3]", "c64[2,4,3]", "IFFT", "0,3"),
    ]
}
