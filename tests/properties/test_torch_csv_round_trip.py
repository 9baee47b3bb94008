"""Whatever passes each IPU runs in whatever order, torch's CSV carries them there and back."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from ipusim.pipeline.ops import Op, Pass
from ipusim.pipeline.order import Order
from ipusim.pipeline.shape import PlanShape
from ipusim.schedules.torch_csv import read_schedule, write_torch_csv


@st.composite
def orders(draw: st.DrawFn) -> Order:
    """Orders of any passes that could be, legal or not: whole, in halves, or forward alone."""
    stages, count, ipus = (draw(st.integers(1, most)) for most in (6, 5, 4))
    mapping = tuple(draw(st.lists(st.integers(0, ipus - 1), min_size=stages, max_size=stages)))
    training = draw(st.booleans())
    ways: dict[int, list[Op]] = {}
    for stage, ipu in enumerate(mapping):
        for micro_batch in range(count):
            halves = draw(st.booleans())
            backward = (Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT) if halves else (Pass.BACKWARD,)
            for kind in (Pass.FORWARD, *(backward if training else ())):
                ways.setdefault(ipu, []).append(Op(kind, stage, micro_batch))
    passes = {ipu: draw(st.permutations(ways[ipu])) for ipu in sorted(ways)}
    return Order.from_passes("drawn", PlanShape(mapping=mapping, micro_batches=count, training=training), passes)


@given(orders())
def test_an_order_goes_through_a_file_unchanged(order: Order) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "drawn.csv"
        path.write_bytes(write_torch_csv(order).encode())
        found = read_schedule(path, path.name)
    assert found.written == order.shape
    again = found.order(order.shape)
    assert again.passes.tolist() == order.passes.tolist()
    assert again.fifo_depths == order.fifo_depths
