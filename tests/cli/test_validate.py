"""`ipusim validate`: the aims that it holds, its tables, a person's own rows, and what is wrong with them."""

import csv
import re

import matplotlib.image
import pytest

from ipusim.app.fidelity import validation
from ipusim.app.fidelity.product_rows import PRODUCTS_FILE, ProductRow, read_rows
from tests.cli.commands import answer, ipusim, refusal

HEADER = "m,k,n,dtype,TFLOP/s\n"


OWN = "own.csv"


def test_both_types_are_within_seven_per_cent_on_average_and_fifteen_at_worst_seen_or_unseen(validate):
    validated = validate.found.products
    assert [each.row for each in validated] == [*read_rows(PRODUCTS_FILE)]
    assert len(validated) == 40
    assert validate.found.is_fitted
    for dtype in ("fp16", "fp32"):
        of = [each for each in validated if each.row.dtype == dtype]
        for errors in ([abs(each.error) for each in of], [abs(each.unseen_error) for each in of]):
            assert sum(errors) / len(errors) < 0.07
            assert max(errors) < 0.15


def test_a_folder_gets_all_tables_and_pictures(tmp_path, monkeypatch, validate):
    monkeypatch.setattr(validation, "validation_of", lambda *asked: {(None,) * 3: validate.found}[asked])
    done = ipusim("validate", "--out", tmp_path / "out")
    assert done.stdout.rstrip().endswith(
        "out: products.csv, products.png, throughputs.csv, throughputs.png, micro_benchmarks.csv"
    )
    printed = [*validate.found.printout()]
    assert validate.found.fitted_rates in printed
    assert validate.found.sensitivities in printed
    with (tmp_path / "out" / "micro_benchmarks.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["unit"] for row in rows} == {"us", "ms", "GB/s", "cycles"}
    assert all(row["simulated"] for row in rows)


def test_rows_of_ones_own_are_held_against_the_same_rates_and_nothing_is_fitted_to_them(own, validate):
    path = own("source,N,m,k,dtype,tflop/s,note\nmine,256,1024,1024,half,44.65,twice as slow\n\n")
    done = answer("validate", "--products", path, columns="")
    modelled = re.search(r"1024 x 1024 x 256 +fp16 +89\.3 +([\d.]+)", validate.done.stdout)[1]
    assert re.search(rf"1024 x 1024 x 256 +fp16 +44\.65 +{modelled} +\+\d+\.\d%\s*\n", done)
    assert "unseen" not in done
    assert "Nothing was fitted to these rows." in done


def test_on_another_chip_the_same_cycles_take_another_time(own):
    path = own(HEADER + "1024,1024,256,fp32,30\n")
    on = {chip: ipusim("validate", "--products", path, "--ipu", chip, columns="").stdout for chip in ("bow", "GC200")}
    bow, gc200 = (float(re.search(r"fp32 +30 +([\d.]+)", text)[1]) for text in on.values())
    assert bow / gc200 == pytest.approx(1.85 / 1.33, rel=1e-3)
    assert "1472 tiles of one GC200 at 1.33 GHz" in on["GC200"]
    assert "icro-benchmark" not in on["bow"]


def test_a_folder_gets_the_table_and_the_picture(own, tmp_path):
    path = own(HEADER + "1024,1024,256,fp32,30\n300,200,1,fp16,0.05\n")
    done = ipusim("validate", "--products", path, "--out", tmp_path / "out")
    assert done.stdout.rstrip().endswith("out: products.csv, products.png")
    with (tmp_path / "out" / "products.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["n"] for row in rows] == ["256", "1"]
    for row in rows:
        assert float(row["modelled_TFLOP/s"]) / float(row["TFLOP/s"]) - 1 == pytest.approx(
            float(row["error"]), abs=1e-3
        )
    assert matplotlib.image.imread(tmp_path / "out" / "products.png").shape[1] == 1800
    assert ProductRow(300, 200, 1, "fp16", 0.05) in read_rows(tmp_path / "out" / "products.csv")


def test_all_problems_of_a_file_are_said_at_once_with_row_and_column(own):
    path = own(HEADER + "1,0,3,fp8,-1\n1,2\n")
    assert refusal("validate", "--products", path).splitlines() == [
        f"{path}:2: column k: expected a whole number from 1 to 10000000, got '0'",
        f"{path}:2: column dtype: expected fp16 or fp32, got 'fp8'",
        f"{path}:2: column TFLOP/s: expected a number above 0, got '-1'",
        f"{path}:3: column n: expected a whole number from 1 to 10000000, got ''",
        f"{path}:3: column dtype: expected fp16 or fp32, got ''",
        f"{path}:3: column TFLOP/s: expected a number above 0, got ''",
    ]
    path = own(HEADER)
    text = f"{path}: expected from 1 to 100000 rows below the names of the columns, got 0\n"
    assert refusal("validate", "--products", path) == text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--products", "none.csv"], "none.csv: expected a file, got no such file"),
        (["--schedules", "--ipu", "BOW"], "--ipu: expected either this option or --schedules, got both"),
        (["--ipu", "BOW"], "--ipu: expected measured products of this chip, in --products, got none"),
        (["--ipu", "Bo", "--products", "x"], "--ipu: unknown IPU 'Bo': expected GC2, GC200 or BOW; did you mean BOW?"),
    ],
)
def test_wrong_options_end_with_one_line_and_exit_code_2(options, message):
    done = ipusim("validate", *options)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (2, "", message)
