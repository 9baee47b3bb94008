"""Show results of studies in a notebook: sentences and tables above the main chart."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ipusim.app.notebook import html
from ipusim.app.notebook.checked import check_types
from ipusim.app.notebook.frames import rows_frame
from ipusim.app.render.figures import to_png
from ipusim.app.render.tables import Table
from ipusim.app.run_folder.folder import ResultsFolder
from ipusim.app.study.result import Result, folder_and_names

if TYPE_CHECKING:
    import pandas as pd


class ResultView:
    """Result with a display for notebooks."""

    def __init__(self, result: Result) -> None:
        """Show ``result``."""
        self._display = result

    def frame(self) -> pd.DataFrame:
        """Return the rows that the command of the same name prints with ``--csv``; needs pandas."""
        return rows_frame(self._display.rows())

    @check_types
    def save(self, folder: Path | str) -> Path:
        """Write the files of the command of the same name.

        Files are written together or not at all.

        Args:
            folder: target folder; or a single file to write, .json, .csv, .md, .parquet, .png, .svg or .pdf.

        Returns:
            The folder, or the file.

        Raises:
            OutputError: for a folder that cannot be written or is in use by another run.
            MissingPackageError: for Parquet without pyarrow.
        """
        target, names = folder_and_names(Path(folder), type(self._display))
        with ResultsFolder(target, names) as results:
            results.write(self._display.files(names))
        return Path(folder)

    @cached_property
    def _png(self) -> bytes | None:
        draw = next(iter(self._display.charts().values()), None)
        return None if draw is None else to_png(draw())

    def _repr_png_(self) -> bytes | None:
        return self._png

    def _repr_html_(self) -> str:
        parts = [*self._display.printout()]
        title = next((part.title for part in parts if isinstance(part, Table)), "")
        parts_html = [html.paragraph(part) if isinstance(part, str) else html.table(part) for part in parts]
        png = self._repr_png_()
        return f"<div>{''.join(parts_html)}{'' if png is None else html.picture(png, title)}</div>"
