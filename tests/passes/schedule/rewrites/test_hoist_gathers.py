"""Gathers leave loops where memory allows; the loops compute the same bits."""

from __future__ import annotations

import hloom
import pytest
from support.layer_loops import layers
from support.rewrites import collectives, differences, rewritten

PASS = "hoist-gathers"
ROOM = PASS + "{growth=100}"


@pytest.mark.parametrize("place", ["i", "back", "zero"])
@pytest.mark.parametrize("narrow", [False, True], ids=["f32", "bf16"])
def test_layers_of_a_stack(place: str, narrow: bool) -> None:
    """A layer at the counter, and one that is the same in all trips. Narrower layers are gathered as such."""
    text = layers(place=place)
    if narrow:
        text = text.replace("slice_ = f32[2,8] reshape(layer)",
                            "n = bf16[1,2,8] convert(layer)\n  slice_ = bf16[2,8] reshape(n)")  # fmt: skip
        text = text.replace("g = f32[8,8] all-gather(slice_)", "gg = bf16[8,8] all-gather(slice_)")
        text = text.replace("  p = f32[3,8] dot(x, g)", "  g = f32[8,8] convert(gg)\n  p = f32[3,8] dot(x, g)")
    module, remarks = rewritten(text, ROOM)
    assert collectives(module) == {"all-gather": 1, "reduce-scatter@body": 2}
    size = (8 * 8 if place == "zero" else 5 * 8 * 8) * (2 if narrow else 4)
    assert any(f"{size:,} bytes live as long as the loop" in r for r in remarks), remarks
    assert sum(c.buffer_bytes for c in hloom.collectives(module) if c.kind == "all-gather") == size
    assert differences(text, module, exact=True) == ""


def test_two_loops_share_a_gather() -> None:
    text = layers()
    second = text[text.index("body {"): text.index("ENTRY")].replace("body {", "body2 {").replace(
        "condition {", "condition2 {").replace("(w, i, zero", "(w, back, zero").replace("channel_id=", "channel_id=1")
    text = text.replace("ENTRY e {", second + "ENTRY e {").replace(
        "  ROOT t = (f32[3,8], f32[5,2,8], f32[2,8], s32[]) tuple(y, new, total, i)",
        "  again = (s32[], f32[3,8], f32[5,2,8], f32[5,2,8], f32[2,8]) tuple(start, y, w, new, total)\n"
        "  end2 = (s32[], f32[3,8], f32[5,2,8], f32[5,2,8], f32[2,8]) while(again), condition=condition2, body=body2\n"
        "  ROOT y2 = f32[3,8] get-tuple-element(end2), index=1",
    )  # fmt: skip
    module, _ = rewritten(text, ROOM)
    assert collectives(module)["all-gather"] == 1
    assert differences(text, module, exact=True) == ""
    sent = [sum(c.sent_bytes for c in hloom.collectives(m) if c.kind == "all-gather")
            for m in (hloom.parse(text), module)]  # fmt: skip
    assert sent[0] == 2 * sent[1]


def test_memory_decides() -> None:
    text = layers()
    peak = hloom.live_memory(hloom.parse(text)).peak
    module, remarks = rewritten(text, f"{PASS}{{growth={1279 / peak}}}")
    assert module.to_text() == hloom.parse(text).to_text()
    assert "1,280 bytes would live as long as it, 1,279 bytes are left" in remarks[0]
    module, _ = rewritten(text, f"{PASS}{{growth={1281 / peak}}}")
    assert collectives(module)["all-gather"] == 1


BY_COLUMNS = layers(gathered="half").replace(
    "  rows =", "  nil = f32[] constant(0)\n  h3 = f32[1,2,4] dynamic-slice(w, i, zero, i), "
    "dynamic_slice_sizes={1,2,4}\n  half = f32[2,4] reshape(h3)\n  rows =",
).replace("g = f32[8,8] all-gather", "wide = f32[2,16] all-gather").replace("dimensions={0}", "dimensions={1}", 1)
COLUMNS = BY_COLUMNS.replace(
    "  p =", "  wider = f32[4,16] pad(wide, nil), padding=0_2x0_0\n  g = f32[8,8] reshape(wider)\n  p ="
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (layers(gathered="rows"), "rows is no part"),
        (layers().replace("tuple(j, y, w, new, total)", "tuple(j, y, w2, new, total)").replace(
            "  ROOT t = (s32[], f32[3", "  w2 = f32[5,2,8] negate(w)\n  ROOT t = (s32[], f32[3", 1), "is no part"),
        (layers().replace("slice_ = f32[2,8] reshape(layer)",
                          "u = f32[4,4] reshape(layer)\n  slice_ = f32[2,8] reshape(u)"), "changes the dimension"),
        (COLUMNS, "is no part"),
    ],
    ids=["activations", "weights change", "other rows", "slice of the gathered dimension"],
)  # fmt: skip
def test_stays(text: str, why: str) -> None:
    module, remarks = rewritten(text, ROOM)
    assert module.to_text() == hloom.parse(text).to_text()
    assert any(why in r for r in remarks), remarks
