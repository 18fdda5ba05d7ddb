"""Writing programs of one op: samples, and templates (see `typed_programs`)."""

from __future__ import annotations


def one(
    opcode: str, operands: str, attributes: str = "", result: str = "", inputs: str = "plain", head: str = ""
) -> str:
    """A program of one op whose parameters have the space-separated shapes `operands`; `head` stands before the entry.

    A result shape is needed where it does not follow from the operands; `inputs` is explained in `oracle`.
    """
    shapes = operands.split()
    names = ", ".join(f"p{n}" for n in range(len(shapes)))
    more = f", {attributes}" if attributes else ""
    parameters = [f"p{n} = {s} parameter({n})" for n, s in enumerate(shapes)]
    return whole(head, *parameters, f"ROOT r = {result} {opcode}({names}){more}", inputs=inputs)


def whole(head: str, *lines: str, inputs: str = "plain") -> str:
    """A program of the computations `head` and an entry of these lines."""
    body = "\n".join(f"  {line}" for line in lines)
    return f"// inputs: {inputs}\n{head}ENTRY e {{\n{body}\n}}\n"
