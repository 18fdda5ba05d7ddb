"""Samples of custom-calls that Hloom knows, with the attributes they come with."""

from __future__ import annotations


def _identity(target: str, attributes: str = "") -> str:
    return (
        f"HloModule m ENTRY e {{ x = f32[4,6] parameter(0) "
        f'ROOT r = f32[4,6] custom-call(x), custom_call_target="{target}"{attributes} }}'
    )


def _sparse(element: str, dense: str, result: str, index: str = "s32") -> str:
    """A matrix of 5 rows with 7 elements and one of padding; a row is empty, a column comes twice in one row."""
    return f"""// as: dot
HloModule m
ENTRY e {{
  values = {element}[8] parameter(0)
  rows = {index}[6] constant({{0, 2, 2, 5, 6, 7}})
  columns = {index}[8] constant({{0, 3, 1, 1, 5, 4, 2, 0}})
  dense = {element}[{dense}] parameter(1)
  ROOT r = {element}[{result}] custom-call(values, rows, columns, dense),
    custom_call_target="cpu_csr_sparse_dense_ffi", api_version=API_VERSION_TYPED_FFI, backend_config={{}}
}}
"""


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
        _sparse("f32", "6", "5"),
        _sparse("s32", "6,4", "5,4"),
        _sparse("c128", "6,4", "5,4", "s64"),
    ]
}
