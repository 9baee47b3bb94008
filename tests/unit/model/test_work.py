"""Vector work is counted by kind, and kinds add up as numbers do."""

from ipusim.model.work import NO_VECTOR_WORK, MeasuredWork, Product, VectorWork, Work, in_turn


def test_kinds_add_up_by_themselves():
    one, other = VectorWork(1, 2, 3, 4), VectorWork(10, 20, 30, 40)
    assert one + other == VectorWork(11, 22, 33, 44)
    assert (one + other) - other == one
    assert 3 * one == one * 3 == VectorWork(3, 6, 9, 12)
    assert not NO_VECTOR_WORK
    assert not 0 * one
    assert all(VectorWork(**{kind: 1}) for kind in ("elementwise", "reductions", "quotients", "transcendentals"))


def test_work_of_any_kind_is_something():
    asked = ({"products": (Product(1, 1, 1),)}, {"vector": VectorWork(quotients=1)}, {"sram_bytes": 1})
    assert Work(itemsize=2, compute_sets=3).is_nothing
    assert not any(Work(**each).is_nothing for each in (*asked, {"exchange_bytes": 1}))


def test_passes_in_turn_ask_for_the_sum_of_what_each_asks():
    parts = (
        Work((Product(2, 3, 4),), VectorWork(1, 2, 3, 4), 10, 20, compute_sets=2),
        MeasuredWork(cycles=7),
        Work((), VectorWork(5), 1, 2),
    )
    both = in_turn(parts, 2)
    assert (both.products, both.vector) == ((Product(2, 3, 4),), VectorWork(6, 2, 3, 4))
    assert (both.sram_bytes, both.exchange_bytes, both.compute_sets, both.itemsize) == (11, 22, 4, 2)
    assert both.parts == parts
