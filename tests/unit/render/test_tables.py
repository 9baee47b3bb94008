from ipusim.analysis.run_times import run_times_of
from ipusim.app.render.tables import ipu_table, summary_table


def cells(table):
    assert all(len(row) == len(table.header) for row in table.rows)
    return {row[0].strip(): row[1:] for row in table.rows}


def test_summary_table(lock_step):
    found = cells(summary_table(run_times_of(lock_step("grouped", mapping=(0, 1), count=4, sync=0, exchange=0))))
    assert found["makespan"] == ("1,500 cycles, 937.5 ns",)
    assert found["main"] == ("300 cycles, 187.5 ns",)
    assert found["bubble: idle / (IPUs x makespan)"] == ("20.0%",)
    assert found["effective batch size"] == ("16 x 4 = 64 samples",)
    assert found["pipeline and weight update"] == ("1,650 cycles, 1.031 us",)
    assert "IPUs without a stage" not in found


def test_summary_table_says_which_execution_and_which_ipus_idle(lock_step):
    timeline = lock_step("grouped", mapping=(0, 1, 2), count=6, ipus=(0, 1, 3, 2), executions=3)
    found = cells(summary_table(run_times_of(timeline, execution=1)))
    assert "makespan (execution 1 of 3)" in found
    assert found["IPUs without a stage"] == ("3",)


def test_ipu_table(lock_step):
    table = ipu_table(run_times_of(lock_step("sequential", mapping=(0, 1), count=2, ipus=(1, 0), sync=0, exchange=0)))
    assert table.rows[0] == ("0", "stage0", "50.0%", "0.0%", "0.0%", "0.0%", "0.0%", "0.0%", "50.0%")
