"""Page that compares simulated schedules with published values, rankings and closed forms."""

from __future__ import annotations

from ipusim.app.published.validation import ScheduleValidation
from ipusim.app.study.result import table_markdown


def published_schedules_page(result: ScheduleValidation) -> str:
    """Return the page as Markdown."""
    text = (
        "# Schedules, published and simulated\n\n"
        "Check here how well the schedules reproduce the literature: values from papers, projects and measurements, "
        "each computed again from its published inputs, point-to-point on devices that wait only for each other. "
        "`python -m reports` makes the page with `ipusim validate --schedules`, from the published "
        "[values](../ipusim/app/published/schedules.csv) and [closed forms](../ipusim/app/published/forms.csv). "
        "The command exits with 1 if a value or a form no longer follows; `--out DIR` writes each table as CSV.\n\n"
    )
    text += "".join(f"- {verdict}\n" for verdict in result.verdicts())
    for table, notes in result.parts():
        text += f"\n## {table.title}\n\n{table_markdown(table)}\n" + "".join(f"- {words}\n" for words in notes)
    return text
