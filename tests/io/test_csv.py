"""Text tables: what was written is read, row for row; what can be read in two ways is refused."""

import csv

import numpy as np
import pytest

import scalable_gpe as gpe
from scalable_gpe import cli
from scalable_gpe.io import table_files
from scalable_gpe.io.columns import read_row_values
from scalable_gpe.io.files import read_points

pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pytestmark = pytest.mark.filterwarnings("ignore::scalable_gpe.errors.GPEWarning")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "t.csv"


def read(path, text, **options):
    path.write_text(text, encoding="utf-8", newline="")
    return read_points(path, **options)


def test_pandas_columns_without_names_are_a_header(path):
    X = np.random.default_rng(0).normal(size=(50, 3))
    for dtype in (np.float64, np.float32, np.int64):
        values = (10 * X).astype(dtype)
        for index in (False, True):
            pd.DataFrame(values).to_csv(path, index=index)
            points = read_points(path)
            np.testing.assert_array_equal(points.values.astype(dtype), values)
            assert (points.names is None) == (not index)
    assert "header" in read_points(path).source
    assert len(read_points(path, header=False, columns=[1, 2, 3]).values) == 51  # the reader's choice counts


def test_names_with_spaces_are_split_at_commas(path):
    text = "sepal length (cm),sepal width (cm)\n5.1,3.5\n4.9,3\n"
    assert read(path, text).values.tolist() == [[5.1, 3.5], [4.9, 3]]
    assert read(path, "sepal length (cm)\n5.1\n4.9\n").values.tolist() == [[5.1], [4.9]]
    assert read(path, "last, first\tage (years)\n1\t2\n", sep="\t").values.tolist() == [[1, 2]]
    assert read(path, "sepal length (cm),sepal width (cm)\n").shape == (0, 2)


AMBIGUOUS = {
    "a gap": "1,,2\n3,4,5\n",
    "a gap in front": ",1.5,2\n3,4,5\n",
    "a missing value": "NA,1,2\n3,4,5\n",
    "a row with its name": "cell 1,0.5,1.5\ncell 2,1,2\n",
    "one column that begins with 0": "0\n1\n2\n",
    "columns that count from 1": "1,2,3\n.5,.25,.125\n",
    "years": "2019,2020\n.5,.25\n",
}


SEPARATORS = {
    ";": ["a;b\n1.5;2\n3;4\n", "1,5;2,5\n3,5;4,5\n", "a;b\n1,5;2,5\n", "id;a\nx;1,5\ny;2\n", "1;2\n3;4"],
    "\t": ["a\tb\n1\t2\n", "last, first\tage (years)\n1\t2\n", "\ta\nx\t1\n"],
    "|": ["1.5|2|3\n4|5|6\n"],
    " ": ["1.5 2\n3 4\n"],
}


@pytest.mark.parametrize("sep", SEPARATORS)
def test_another_separator_than_the_ending_says_is_an_error(path, sep):
    for text in SEPARATORS[sep]:
        with pytest.raises((TypeError, ValueError), match=r"sep=|header="):
            read(path, text)
    with pytest.raises(TypeError, match=r"holds '1,2' \(cells end at '\\t'; sep= is another character\)"):
        read(path.with_suffix(".tsv"), "a,b\n1,2\n")
    with pytest.raises(TypeError, match="column 'a' holds '1,5'"):
        read(path, "a;b\n1,5;2\n", sep=";")  # decimal commas are not numbers


def test_what_looks_like_another_separator_may_be_none(path):
    assert read(path, "a;b,c d\n1,2\n").values.tolist() == [[1, 2]]
    assert read(path, "a;b,c\nx;y,2\n", drop=[0]).values.tolist() == [[2]]


@pytest.mark.parametrize("case", AMBIGUOUS)
def test_a_first_line_that_may_be_either_is_refused(path, case):
    with pytest.raises(ValueError, match="Pass header=True if it names the columns, header=False if it is a point"):
        read(path, AMBIGUOUS[case])


def test_the_caller_chooses(path):
    years = AMBIGUOUS["years"]
    assert read(path, years, header=True).values.tolist() == [[0.5, 0.25]]
    assert read(path, years, header=False).values.tolist() == [[2019, 2020], [0.5, 0.25]]
    assert np.isnan(read(path, AMBIGUOUS["a gap"], header=False).values[0, 1])
    named = read(path, AMBIGUOUS["a row with its name"], header=False, index=0)
    assert named.names.tolist() == ["cell 1", "cell 2"] and named.values.tolist() == [[0.5, 1.5], [1, 2]]
    assert read(path, "a,b,\n1,2,\n", columns=["a", 1]).values.tolist() == [[1, 2]]
    assert read(path, "1.5@2\n3@4\n", sep="@").values.tolist() == [[1.5, 2], [3, 4]]
    assert read(path, "0,1,2\n3,4,5\n", header=False).shape == (2, 3)
    counted = read(path, "name,0,1\nx,1,2\n", index="name")  # as pandas writes a named index
    assert counted.values.tolist() == [[1, 2]] and counted.names.tolist() == ["x"]


def test_columns_by_name_and_number(path, tmp_path):
    text = "id,a,note,b,a\nx,1,good,2,3\ny,4,bad,5,6\n"
    assert read(path, text, columns=["b", 1], index="id").values.tolist() == [[2, 1], [5, 4]]
    assert read(path, text, columns=["1", "3"]).values.tolist() == [[1, 2], [4, 5]]  # as the command line passes them
    frame = pd.DataFrame({"id": ["x", "y"], "a": [1.0, 4.0], "note": ["good", "bad"], "2": [2.0, 5.0]})
    frame.to_parquet(tmp_path / "t.parquet")
    points = read_points(tmp_path / "t.parquet", columns=["2", 1], index="id")  # a name comes before a number
    assert points.values.tolist() == [[2, 1], [5, 4]] and points.names.tolist() == ["x", "y"]
    for wrong, words in [
        ({"columns": ["a"]}, "two columns named 'a'"),
        ({"columns": ["b", 3]}, "each once"),
        ({"columns": ["id", "b"], "index": "id"}, "not the index"),
        ({"columns": []}, "at least one"),
        ({"columns": [7]}, "by name or by number from 0"),
        ({"columns": [-1]}, "by name or by number from 0"),
        ({"columns": ["nothing"]}, "got 'nothing'"),
        ({}, "of one name: 'a'. Rename one, or choose by number with read_points.columns="),
        ({"sep": ""}, "one character"),
        ({"sep": '"'}, "one character"),
    ]:
        with pytest.raises(ValueError, match=words):
            read(path, text, **wrong)
    for wrong in ({"columns": "b"}, {"columns": [1.5]}, {"index": True}, {"header": 1}):
        with pytest.raises(TypeError):
            read(path, text, **wrong)
    with pytest.raises(ValueError, match="Pass one of them"):
        read_points(tmp_path / "t.parquet", columns=["a"], key="a")


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_all_columns_of_text_are_named(ending, tmp_path):
    import pandas as pd

    frame = pd.DataFrame({"id": ["x", "y"], "a": [1, None], "kind": ["red", "blue"], "b": [2, 3], "site": [None, "N1"]})
    getattr(frame, f"to_{ending}")(tmp_path / f"t.{ending}", index=False)
    says = {"csv": ["holds 'x'", "holds 'red'", "holds 'N1'"], "parquet": ["has type .*string"] * 3}[ending]
    found = ", ".join(f"column {name!r} {one}" for name, one in zip(["id", "kind", "site"], says, strict=True))
    with pytest.raises(
        TypeError,
        match=found + r"\. Pass the column that holds the names of the rows, if any, as read_points.index=.; leave oth",
    ):
        read_points(tmp_path / f"t.{ending}")
    with pytest.raises(TypeError, match=r"column 'kind' .*, column 'site' .*read_points.drop="):
        read_points(tmp_path / f"t.{ending}", index="id")


def test_columns_to_drop(path, tmp_path):
    """A column of labels is left out by its name: nobody lists fifty others."""
    text = "id,a,kind,b\nx,1,red,2\ny,4,blue,5\n"
    with pytest.raises(TypeError, match=r"column 'kind' holds 'red'\. .*read_points.drop="):
        read(path, text, index="id")
    points = read(path, text, index="id", drop=["kind"])
    assert points.values.tolist() == [[1, 2], [4, 5]] and points.names.tolist() == ["x", "y"]
    assert read(path, text, drop=["id", 2]).values.tolist() == [[1, 2], [4, 5]]
    with pytest.raises(ValueError, match="Pass one of them"):
        read(path, text, columns=["a"], drop=["kind"])
    with pytest.raises(ValueError, match="leave no column"):
        read(path, text, index="id", drop=["a", "b", "kind"])
    with pytest.raises(ValueError, match="drop must be one of the columns"):
        read(path, text, drop=["color"])
    with pytest.raises(TypeError, match="must be a list"):
        read(path, text, drop="kind")
    pd.DataFrame({"a": [1, 4], "kind": ["red", "blue"], "b": [2, 5]}).to_parquet(tmp_path / "t.parquet")
    assert read_points(tmp_path / "t.parquet", drop=["kind"]).values.tolist() == [[1, 2], [4, 5]]
    with pytest.raises(ValueError, match=r"header is about a .csv or .tsv file"):
        read_points(tmp_path / "t.parquet", header=True)


@pytest.mark.parametrize("seed", range(8))
def test_what_is_written_is_read_back(seed, tmp_path, monkeypatch):
    """Random tables by pandas, numpy and csv: every number and every row, through several batches."""
    monkeypatch.setattr(table_files, "_BLOCK", 2**12)
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(int(rng.integers(200, 500)), int(rng.integers(1, 7)))) * 10.0 ** rng.integers(-300, 300)
    delimiter = ",;\t|"[seed % 4]
    path = tmp_path / ("t.tsv" if delimiter == "\t" else "t.csv")
    words = ["a b", "c,d", 'say "e"', "f;g", "h\ni", "j\tk", "l|m"]
    frame = pd.DataFrame(X, columns=words[: X.shape[1]] if seed % 2 else None)
    names = [f"row, {number} \n;" for number in range(len(X))]
    frame.to_csv(path, sep=delimiter, index=False)
    options = {} if delimiter in ",\t" else {"sep": delimiter}
    header = True if X.shape[1] == 1 else None
    np.testing.assert_array_equal(read_points(path, header=header, **options).values, X)
    frame.set_axis(pd.Index(names, name="the name")).to_csv(path, sep=delimiter, quoting=csv.QUOTE_ALL)
    points = read_points(path, index="the name", header=header, **options)
    np.testing.assert_array_equal(points.values, X)
    assert points.names.tolist() == names
    np.savetxt(path, X, delimiter=delimiter, fmt="%.17g")
    np.testing.assert_array_equal(read_points(path, **options).values, X)
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=delimiter, lineterminator="\n").writerows([words[: X.shape[1]], *X.tolist()])
    np.testing.assert_array_equal(read_points(path, **options).values, X)


def test_a_wide_table(path):
    """Its lines are longer than a cell may be."""
    names = [f"gene {number:07d}" for number in range(12_000)]
    points = read(path, ",".join(names) + "\n" + ",".join(["1"] * 12_000) + "\n")
    assert points.shape == (1, 12_000) and points.feature_names.tolist() == names


def test_a_damaged_gz_is_not_called_a_full_disk(path):
    import gzip

    data = bytearray(gzip.compress(b"".join(b"%d,%d\n" % (n, n * n) for n in range(10**6)), 1))
    data[-100:] = bytes(100)
    path.with_suffix(".csv.gz").write_bytes(data)
    with pytest.raises(ValueError, match="cannot be read"):
        read_points(path.with_suffix(".csv.gz"))


def test_the_command_line_chooses(tmp_path, capsys):
    circle, store = gpe.datasets.circle(60), str(tmp_path / "run.zarr")
    path = str(tmp_path / "t.csv")
    frame = pd.DataFrame(np.column_stack([circle, np.arange(60)])).assign(name="x")
    frame.to_csv(path, index=False, header=["2018", "2019", "2020", "name"], sep=";")
    size = ["-k", "2", "--power", "2", "--n-neighbors", "5", "-q"]
    assert cli.main(["embed", path, store, *size]) == 1
    assert "(cells end at ','; --sep is another character)" in capsys.readouterr().err
    assert cli.main(["embed", path, store, *size, "--sep", ";"]) == 1
    assert "Pass --header if it names the columns, --no-header if it is a point" in capsys.readouterr().err
    chosen = ["--header", "--delimiter", ";", "--columns", "0", "2019"]
    assert cli.main(["embed", path, store, *size, *chosen]) == 0
    expected = gpe.embed(circle, n_components=2, power=2, n_neighbors=5, progress=False).points[:]
    np.testing.assert_array_equal(gpe.open(store).points[:], expected)
    assert cli.main(["audit", store, "--input", path, "--sep", ";"]) == 1  # takes the same options
    assert "Pass --header if" in capsys.readouterr().err


def test_colours_from_other_separators(path):
    path.write_text("kind;size\nround;1,5\nflat;2\n", encoding="utf-8")
    with pytest.raises(TypeError, match="Expected 1 columns, got 2: round;1,5"):
        read_row_values(str(path), "kind")
    path.write_text("kind;size\nround;1\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"column= must name one of 'kind;size' of .*; got 'kind'"):
        read_row_values(str(path), "kind")
    path.write_text("kind,size\nround,1\nflat,2\n", encoding="utf-8")
    assert read_row_values(str(path), "kind")[0].tolist() == ["round", "flat"]
    path.write_text("a,a\n1,2\n", encoding="utf-8")
    with pytest.raises(ValueError, match="and only one"):
        read_row_values(str(path), "a")[0]
