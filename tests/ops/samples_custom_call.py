"""Samples of custom-calls that Hloom knows, with the attributes they come with."""

from __future__ import annotations


def _identity(target: str, attributes: str = "") -> str:
    return (
        f"HloModule m ENTRY e {{ x = f32[4,6] parameter(0) "
        f'ROOT r = f32[4,6] custom-call(x), custom_call_target="{target}"{attributes} }}'
    )


SAMPLES: dict[str, list[str]] = {
    "custom-call": [
        _identity("Sharding", ', sharding={devices=[2,4]<=[8]}, backend_config="unspecified_dims=[1]"'),
        _identity("MoveToHost"),
        _identity("MoveToDevice"),
        """
HloModule m
ENTRY e {
  x = f32[3,9] parameter(0)
  ROOT r = (f32[3,4], s32[3,4]) custom-call(x), custom_call_target="TopK", api_version=API_VERSION_TYPED_FFI
}
""",
    ]
}
