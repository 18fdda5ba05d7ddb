"""Shows objects in notebooks. The HTML is made in `report/html/notebook.py`, which is loaded when it is asked for."""

from __future__ import annotations

from .late import late


class InNotebooks:
    """An object that notebooks show as a table, a picture or text, without scripts."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        text: str = late("report.html.notebook:notebook_html")(self)
        return text
