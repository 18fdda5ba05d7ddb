"""Makes pages of the site that no file has: the README as the first, the notebook, a page per command, and the API.

`mkdocs.yml` names this file as a hook. Links to files outside of docs/ become the names of these files, since the site
has the pages alone.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / ".import"))

import hloom  # noqa: E402
from hloom.cli.commands import COMMANDS, make_parser  # noqa: E402
from hloom.cli.parser import Parser  # noqa: E402

_LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]+)(#[^)]*)?\)")
_OUTSIDE = (".py", ".hlo", ".toml")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Adds the pages of the commands to the navigation."""
    for section in cast(list[dict[str, list[Any]]], config["nav"]):
        if "Commands" in section:
            section["Commands"] += [{f"hloom {name}": f"commands/{name}.md"} for name in COMMANDS]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the made pages."""
    pages = {"index.md": _first(), "api.md": _api(), "notebook.md": _notebook()}
    pages |= {f"commands/{name}.md": _command(name, parser) for name, parser in make_parser().commands.items()}
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replaces links to files that are no pages by the names of these files."""

    def kept(match: re.Match[str]) -> str:
        text, place, _ = match.groups()
        if not place.startswith("..") and not place.endswith(_OUTSIDE):
            return match[0]
        name = re.sub(r"^(\.\./)+", "", place)
        if files.get_file_from_path(name):  # a page of docs/ from a page below it
            return match[0]
        return text if Path(name).name in text else f"{text} (`{name}`)"

    return _LINK.sub(kept, markdown.replace("(tutorial.ipynb)", "(notebook.md)"))


def _notebook() -> str:
    """Returns the tutorial notebook with what its cells show."""
    parts: list[str] = []
    for cell in json.loads((ROOT / "docs" / "tutorial.ipynb").read_text())["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data: dict[str, list[str]] = output.get("data", {"text/plain": output.get("text", [])})
            html, plain = ("".join(data.get(kind, [])) for kind in ("text/html", "text/plain"))
            parts.append(html or f"```text\n{plain.rstrip()}\n```")
    return "\n\n".join(parts)


def _first() -> str:
    """Returns the README, with links from the folder of the pages."""
    text = (ROOT / "README.md").read_text()
    return text.replace("](docs/", "](").replace("](examples/", "](../examples/").replace("](passes/", "](../passes/")


def _command(name: str, parser: Parser) -> str:
    """Returns the page of a command, from its parser."""
    command = COMMANDS[name]
    lines = [f"# hloom {name}", "", f"{command.help[0].upper()}{command.help[1:]}.", ""]
    usage = " ".join(parser.complete().format_usage().split())
    lines += ["```text", usage.removeprefix("usage: "), "```", ""]
    lines += ["## Examples", "", "```sh", *command.examples, "```", "", "## Arguments", ""]
    return "\n".join([*lines, "| argument | meaning |", "| --- | --- |", *_rows(parser), ""])


def _rows(parser: Parser) -> Iterator[str]:
    """Yields a row for each argument of a command."""
    positional = [a for a in parser._actions if not a.option_strings]  # argparse has no public list of them
    for action in (*positional, *parser.options()):
        value = action.metavar or ("|".join(map(str, action.choices)) if action.choices else "")
        shown = "" if action.nargs == 0 else f" {value or action.dest.upper()}"
        name = ", ".join(action.option_strings) + shown if action.option_strings else str(value or action.dest)
        meaning = " ".join((action.help or "").replace("%(default)s", str(action.default)).replace("%%", "%").split())
        cells = (cell.replace("|", "\\|") for cell in (f"`{name}`", meaning))
        yield f"| {' | '.join(cells)} |"


def _api() -> str:
    """Returns the page of the public names, each made from its docstring."""
    places: dict[str, str] = hloom._PLACES  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
    lines = ["# API", "", "The names of `import hloom`. [Python](python.md) lists them by use.", ""]
    for name, place in sorted(places.items(), key=lambda item: item[0].lower()):
        module, _, attribute = place.partition(":")
        made = f"::: hloom.{module}.{attribute}" if attribute else f"A module: [hloom.{name}]({name}.md)."
        lines += [f"## {name}", "", made, ""]
    return "\n".join(lines)
