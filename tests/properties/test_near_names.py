"""Whatever key or name a person misspells by one letter, the message names it."""

import string

from ipusim.base.near_names import all_nearest, equal_name
from ipusim.base.units import UNITS
from ipusim.hardware.generations import GENERATIONS
from ipusim.hardware.machines import MACHINES
from ipusim.hardware.orders import ORDERS
from ipusim.runs.request.schema import json_schema
from ipusim.schedules.registry import names as schedule_names
from tests.effort import slowest

#: Names that a hint has at most: units are so short that more may be one mistake away.
MOST = 5


def mistaken(name):
    """Every name that one mistake makes of ``name``: a letter left out, twice or wrong, or two swapped."""
    for at, letter in enumerate(name):
        wrong = string.ascii_lowercase[(7 * at + ord(letter)) % 26]
        yield name[:at] + name[at + 1 :]
        yield name[: at + 1] + name[at:]
        yield name[:at] + wrong + name[at + 1 :]
        yield name[:at] + name[at + 1 : at + 2] + letter + name[at + 2 :]


def tables():
    """Every list of keys, and of names that a key takes, and those of machines, chips, schedules, orders and units."""
    found = {("AUTO", *ORDERS), tuple(MACHINES), tuple(schedule_names()), tuple(ipu.name for ipu in GENERATIONS)}
    found |= {tuple(units) for units, _ in UNITS.values()}

    def walk(node):
        if isinstance(node, dict):
            found.update(
                tuple(node[key]) for key in ("properties", "x-names") if isinstance(node.get(key), dict | list)
            )
        for each in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            walk(each)

    walk(json_schema())
    return sorted(found)


@slowest
def test_of_every_key_and_name_any_one_mistake_of_a_letter_leads_back():
    tried = 0
    for table in tables():
        for name in filter(lambda name: len(name) > 1, table):
            for wrong in {*mistaken(name)} - {*table, name}:
                # What is another name but for case and separators, or what others call one, leads there.
                if not equal_name(wrong, table):
                    near = all_nearest(wrong, table)
                    assert name in near or len(near) == MOST, (wrong, table)
                    tried += 1
    assert tried > 10_000
