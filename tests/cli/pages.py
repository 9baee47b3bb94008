"""The pages that the repository shows its readers, and the blocks in them."""

from reports import outputs
from reports.outputs import ROOT

#: Every page as text, by its path from the top.
PAGES = {
    str(path.relative_to(ROOT)): path.read_text()
    for folder, pattern in (
        (ROOT, "[A-Z]*.md"),
        (ROOT, "[a-z]*/README.md"),
        (ROOT, "[a-z]*/[a-z]*/README.md"),
        (ROOT / "scenarios", "*.md"),
        (ROOT / "reports", "*.md"),
    )
    for path in sorted(folder.glob(pattern))
}


def all_blocks(text):
    """Return language and content of every block of a page."""
    return [(block.language, block.content) for block in outputs.blocks(text)]


def blocks(text, language):
    """Return the blocks of a page that are in a language."""
    return [content for name, content in all_blocks(text) if name == language]


def commands(text):
    """Return the command lines that a page shows, each on one line."""
    return outputs.command_lines("".join(blocks(text, "console")))
