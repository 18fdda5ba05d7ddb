"""Makes the pictures of the docs in docs/pictures/ from runs.

    python docs/make_pictures.py [--page]

Tests compare them with what the script makes now. `--page` also takes the picture of a page, which needs Chromium and
its chromedriver, and which no two machines draw alike.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / folder) for folder in (".import", "tests") if str(ROOT / folder) not in sys.path]

import hloom  # noqa: E402
from hloom.report.html.pictures import tiles_picture, timeline_picture  # noqa: E402
from support.browser import Browser  # noqa: E402

FOLDER = ROOT / "docs" / "pictures"
PAGE = FOLDER / "page.png"
_STEP = ROOT / "examples" / "transformer_train.hlo"
_MACHINE = "h100"
_SIZE = 1280, 860


def pictures() -> dict[str, str]:
    """Returns the pictures that are text, by the names of their files."""
    tiles = tiles_picture(hloom.parse_shape("f32[8,6]"), hloom.Sharding.over(hloom.Mesh.of(x=2, y=3), "y", "x"))
    return {"tiles.svg": f"{tiles}\n",
            "timeline.svg": f"{timeline_picture(hloom.forecast(hloom.load(_STEP), _MACHINE).schedule)}\n"}  # fmt: skip


def take_page() -> None:
    """Writes the picture of the page of a training step."""
    page = hloom.page(hloom.load(_STEP), _MACHINE, schedule=True)
    with TemporaryDirectory() as folder, Browser(*_SIZE) as browser:
        path = Path(folder) / "step.html"
        page.save(path)
        browser.open(path, "?theme=light", "#value=dot_general.62")
        browser.picture(PAGE, *_SIZE)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in pictures().items():
        (FOLDER / name).write_text(text)
    if "--page" in sys.argv[1:]:
        take_page()
