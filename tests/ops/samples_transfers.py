"""Samples of infeed, outfeed, send and recv. A token parameter keeps tests away that would run them."""

from __future__ import annotations


def _program(*lines: str) -> str:
    return "// xla: no\nHloModule m\nENTRY e {\n  t = token[] parameter(0)\n  " + "\n  ".join(lines) + "\n}\n"


_SEND = _program(
    "x = f32[3]{0} parameter(1)",
    "s = (f32[3]{0}, u32[], token[]) send(x, t), channel_id=1",
    "ROOT d = token[] send-done(s), channel_id=1",
)
_SEND_TO_HOST = _program(
    "x = f32[3]{0} parameter(1)",
    "s = (f32[3]{0}, u32[], token[]) send(x, t), channel_id=2, is_host_transfer=true",
    "ROOT d = token[] send-done(s), channel_id=2, is_host_transfer=true",
)
_RECV = _program(
    "s = (f32[3]{0}, u32[], token[]) recv(t), channel_id=1",
    "ROOT d = (f32[3]{0}, token[]) recv-done(s), channel_id=1",
)

SAMPLES: dict[str, list[str]] = {
    "infeed": [
        _program("ROOT r = (f32[3]{0}, token[]) infeed(t)"),
        _program("ROOT r = ((f32[3]{0}, pred[]), token[]) infeed(t), infeed_config=\"a \\\"b\\\"\""),
    ],
    "outfeed": [
        _program("x = f32[3]{0} parameter(1)", "ROOT r = token[] outfeed(x, t), outfeed_shape=f32[3]{0}"),
        _program("x = f32[3]{0} parameter(1)", "y = (f32[3]{0}, f32[3]{0}) tuple(x, x)",
                 "ROOT r = token[] outfeed(y, t), outfeed_shape=(f32[3]{0}, f32[3]{0}), outfeed_config=\"abc\""),
    ],
    "send": [_SEND, _SEND_TO_HOST],
    "send-done": [_SEND, _SEND_TO_HOST],
    "recv": [_RECV],
    "recv-done": [_RECV],
}
