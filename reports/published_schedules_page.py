"""Page that compares simulated schedules with published values, rankings and closed forms."""

from __future__ import annotations

from ipusim.app.published.validation import ScheduleValidation
from ipusim.app.study.result import table_markdown


def published_schedules_page(found: ScheduleValidation) -> str:
    """Return the page as Markdown."""
    text = (
        "# Schedules, published and simulated\n\n"
        "What `ipusim validate --schedules` prints: values that papers, projects and their measurements print of "
        "pipeline schedules, each computed anew from the inputs that are printed with it, in point-to-point on devices "
        "that wait for nothing but each other. Its exit code is 1 where a value or a form no longer follows. The "
        "values are [data](../ipusim/app/published/schedules.csv), and so are the "
        "[forms](../ipusim/app/published/forms.csv); `--out DIR` gets each table as CSV.\n\n"
    )
    text += "".join(f"- {verdict}\n" for verdict in found.verdicts())
    for table, notes in found.parts():
        text += f"\n## {table.title}\n\n{table_markdown(table)}\n" + "".join(f"- {words}\n" for words in notes)
    return text
