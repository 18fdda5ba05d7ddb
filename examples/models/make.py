"""Writes a model as HLO, or lists all of them.

    python examples/models/make.py                                              # all models
    python examples/models/make.py dense_fsdp --out step.hlo                    # small: for eight devices
    python examples/models/make.py dense_finalized --size paper --out 1t.hlo    # from shapes alone, for 512
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.setdefault("JAX_PLATFORMS", "cpu")  # only text is made: do not start an accelerator for it


def main() -> None:
    from models import MODELS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", choices=MODELS, metavar="NAME")
    parser.add_argument("--size", choices=("small", "paper"), default="small")
    parser.add_argument("--out", default="-", help="file to write, or - for standard output")
    arguments = parser.parse_args()
    if arguments.name is None:
        for name, model in MODELS.items():
            program = model.paper()
            devices = program.layout.devices
            print(f"{name:18} {program.parameters:17,} parameters, {devices:5,} devices ({model.source})")
        return
    model = MODELS[arguments.name]
    text = (model.small() if arguments.size == "small" else model.paper()).module.to_text()
    if arguments.out == "-":
        sys.stdout.write(text)
    else:
        Path(arguments.out).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
