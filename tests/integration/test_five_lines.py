"""The lines for a notebook on the page of tasks, executed in one: a dict, a shown Run, a DataFrame and a figure."""

import ast
import contextlib
import re
from base64 import b64decode, b64encode
from pathlib import Path

import nbformat
import pytest
from IPython.core.formatters import DisplayFormatter
from nbclient import NotebookClient

from tests.effort import rarest

PAGE = (Path(__file__).parents[2] / "scenarios" / "how_to.md").read_text()


def shown_by_ipython(sources):
    """Return the outputs of cells as a notebook has them, without the process that executes one."""
    names, outputs = {}, []
    for source in sources:
        *lines, last = ast.parse(source).body
        if not isinstance(last, ast.Expr):
            exec(source, names)
            outputs.append([])
            continue
        exec(compile(ast.Module(lines, []), "cell", "exec"), names)
        data, _ = DisplayFormatter().format(eval(compile(ast.Expression(last.value), "cell", "eval"), names))
        text = {kind: b64encode(of).decode() if isinstance(of, bytes) else of for kind, of in data.items()}
        outputs.append([nbformat.v4.new_output("execute_result", text)])
    return outputs


@pytest.fixture(scope="module", params=["shown", pytest.param("notebook", marks=rarest)])
def cells(request, tmp_path_factory):
    """The outputs of the page's five lines in three cells, and of a look at the run and its spans."""
    text = PAGE.split("## Use ipusim in a notebook")[1].split("\n## ")[0]
    (block,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    lines = list(filter(None, block.splitlines()))
    assert len(lines) == 5
    sources = ["\n".join(lines[:3]), "run", f"{lines[3]}\nspans", lines[4]]
    if request.param == "shown":
        with contextlib.chdir(tmp_path_factory.mktemp("shown")):
            return shown_by_ipython(sources)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    folder = tmp_path_factory.mktemp("notebook")
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
    return [cell.outputs for cell in notebook.cells]


def shown(outputs):
    (output,) = outputs
    assert output.output_type == "execute_result"
    return output.data


def test_a_run_shows_a_summary_and_its_trace(cells):
    assert cells[0] == []
    data = shown(cells[1])
    assert "bubble 27.3%" in data["text/html"]
    assert "33,000 cycles" in data["text/html"]
    assert b64decode(data["image/png"]).startswith(b"\x89PNG")


def test_spans_are_a_frame(cells):
    html = shown(cells[2])["text/html"]
    assert 'class="dataframe"' in html
    assert "<td>forward</td>" in html
    assert "<td>s0</td>" in html


def test_a_figure_is_a_picture(cells):
    assert b64decode(shown(cells[3])["image/png"]).startswith(b"\x89PNG")
