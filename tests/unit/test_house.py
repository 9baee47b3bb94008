"""The shape of the package: which modules import which, and how long they are."""

import ast
import statistics

import grimp
import networkx as nx

from tests.prose import risen, statements
from tests.scenarios import ROOT


def test_no_circle_of_modules_imports_each_other() -> None:
    """Imports within functions and for type checking count: what two modules know of each other belongs in one."""
    graph = grimp.build_graph("ipusim", cache_dir=None)
    imports = nx.DiGraph(
        (module, found) for module in graph.modules for found in graph.find_modules_directly_imported_by(module)
    )
    assert imports.has_edge(
        "ipusim.model.functions.python_layer", "ipusim.model.functions.counting"
    )  # within a function
    assert [sorted(circle) for circle in nx.strongly_connected_components(imports) if len(circle) > 1] == [], (
        "modules import each other: move what both need into one of them, or below both"
    )


def test_no_module_is_long_and_no_function_but_one_of_graphcores_signature():
    modules = {path: path.read_text() for path in (ROOT / "ipusim").rglob("*.py")}
    lengths = {path: len(text.splitlines()) for path, text in modules.items()}
    assert {str(path): length for path, length in lengths.items() if length > 400} == {}, (
        "a module of more than 400 lines: divide it by what its parts know"
    )
    median = statistics.median(lengths.values())
    assert median <= 120, f"half of all modules have more than {median} lines: divide those that were added to"
    functions = [
        (node.end_lineno - node.lineno + 1, node.name)
        for text in modules.values()
        for node in statements(ast.parse(text))
        if isinstance(node, ast.FunctionDef)
    ]
    assert [name for length, name in functions if length > 60] == ["pipeline"], (
        "a function of more than 60 lines: divide it"
    )


#: Checks of the house: pages, docstrings and the shape of the package, which anybody's change may fail.
CHECKS = (
    *("unit/test_house.py", "unit/test_api.py", "unit/test_docstrings.py", "integration/test_examples.py"),
    *("cli/test_readme.py", "cli/test_reports.py", "cli/test_figures_page.py", "golden/test_rows.py"),
)


def test_checks_of_the_house_say_what_to_do() -> None:
    """A count that is compared, or a page with what is made, has a message: "366 == 367" helps nobody."""
    silent = []
    for name in CHECKS:
        path = ROOT / "tests" / name
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Assert) and node.msg is None and counts(node.test):
                silent.append(f"tests/{name}:{node.lineno}")
    assert silent == [], "give these a message that says what to run or to change"


def counts(test: ast.expr) -> bool:
    """Tell whether a test compares a count with a number or a count, or a page with what is made."""
    words = {
        getattr(node.func, "id", getattr(node.func, "attr", ""))
        for node in ast.walk(test)
        if isinstance(node, ast.Call)
    }
    return isinstance(test, ast.Compare) and bool(words & {"len", "sum", "count", "figures_page", "gallery_page"})


def test_prose_becomes_no_harder_to_read() -> None:
    assert risen() == [], (
        "name the subject in these sentences in place of pointers such as that, which, it, what; "
        "python -m tests.prose lowers the table where a room became easier"
    )
