"""Tables as users have them: missing values, texts, dates and bools, alike in every format."""

import datetime
import warnings

import numpy as np
import pytest

import scalable_gpe as gpe
from scalable_gpe import cli
from scalable_gpe.errors import GPEWarning

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

HOW = {"n_components": 8, "n_neighbors": 8, "power": 4, "progress": False}
FORMATS = ("frame", "csv", "parquet")


def table(n_rows=60, seed=0):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(n_rows, 3))
    return pd.DataFrame(
        {
            "city": ["Paris", "Rome, IT"] * (n_rows // 2),
            "a": values[:, 0],
            "born": [datetime.date(2000, 1, 1 + number % 28) for number in range(n_rows)],
            "b": values[:, 1],
            "smokes": [number % 3 == 0 for number in range(n_rows)],
            "c": values[:, 2],
        },
        index=pd.Index([f"row {number}" for number in range(n_rows)], name="name"),
    )


def written(frame, form, folder):
    if form == "frame":
        return frame
    path = folder / f"table.{form}"
    frame.to_csv(path) if form == "csv" else frame.to_parquet(path)
    return gpe.read_points(path, index="name")


@pytest.mark.parametrize("form", FORMATS)
def test_one_error_names_all_columns_that_are_no_numbers(form, tmp_path):
    with pytest.raises(TypeError) as raised:
        gpe.embed(written(table(), form, tmp_path), **HOW)
    text = str(raised.value)
    assert all(f"'{name}'" in text for name in ("city", "born")) and "numeric_only=True" in text
    assert not any(f"'{name}'" in text for name in ("a", "b", "c", "smokes"))


@pytest.mark.parametrize("form", FORMATS)
def test_the_columns_of_numbers_are_taken_alone(form, tmp_path):
    frame = table()
    expected = gpe.embed(frame[["a", "b", "smokes", "c"]].to_numpy(float), **HOW)
    if form == "frame":
        points = frame
    else:
        path = tmp_path / f"table.{form}"
        frame.to_csv(path) if form == "csv" else frame.to_parquet(path)
        points = gpe.read_points(path, index="name", numeric_only=True)
        assert "without 'city', 'born'" in points.source
    result = gpe.embed(points, numeric_only=True, **HOW)
    assert result.feature_names.tolist() == ["a", "b", "smokes", "c"]
    assert result.points.tobytes() == expected.points.tobytes()
    assert result.names[5] == "row 5"


@pytest.mark.parametrize("form", [*FORMATS, "npy", "dask"])
def test_rows_with_missing_values_are_left_out(form, tmp_path):
    frame = table()[["a", "b", "c"]]
    frame.iloc[[3, 20, 21, 59], [0, 1, 2, 0]] = np.nan
    kept = np.flatnonzero(frame.notna().all(axis=1))
    expected = gpe.embed(frame.to_numpy()[kept], **HOW)
    X = frame.to_numpy()
    if form == "npy":
        np.save(tmp_path / "x.npy", X)
        X = tmp_path / "x.npy"
    elif form == "dask":
        X = pytest.importorskip("dask.array").from_array(X, chunks=(7, 3))
    else:
        X = written(frame, form, tmp_path)
    with pytest.raises(ValueError, match=r"rows 3, 20, 21, 59, columns .*missing='drop'"):
        gpe.embed(X, **HOW)
    result = gpe.embed(X, missing="drop", store=tmp_path / "run.zarr", **HOW)
    assert np.asarray(result.points[:]).tobytes() == expected.points.tobytes()
    assert result.report["n_dropped"] == 60 - len(kept) and expected.report["n_dropped"] == 0
    stored = gpe.open(tmp_path / "run.zarr")
    np.testing.assert_array_equal(stored.kept_rows, kept)
    assert len(expected.kept_rows) == len(kept)
    again = gpe.embed(X, missing="drop", store=tmp_path / "run.zarr", **HOW)
    assert again.report["finished_at"] == result.report["finished_at"]
    if form in FORMATS:
        assert stored.names.tolist() == [f"row {number}" for number in kept]
        out = pd.read_csv(gpe.export(stored, tmp_path / "out.csv"), index_col="name")
        assert out.index.tolist() == stored.names.tolist() and out.columns[0] == "gpe_1"
    new = np.random.default_rng(1).normal(size=(5, 3))
    np.testing.assert_array_equal(stored.transform(new), expected.transform(new))
    with pytest.raises(ValueError, match="NaN"):
        stored.transform(frame.to_numpy())


def test_weights_and_scales_are_those_of_the_kept_rows():
    X, weights = np.random.default_rng(0).normal(size=(60, 3)), np.linspace(1, 2, 60)
    X[[0, 30]] = np.nan
    kept = np.delete(np.arange(60), [0, 30])
    result = gpe.embed(X, missing="drop", scale="robust", sample_weight=weights, **HOW)
    expected = gpe.embed(X[kept], scale="robust", sample_weight=weights[kept], **HOW)
    assert result.points.tobytes() == expected.points.tobytes()


def test_a_sparse_matrix_loses_rows():
    from scipy.sparse import random as random_matrix

    X = random_matrix(100, 20, 0.5, "csr", random_state=0)
    X.data[5] = np.nan
    wrong = int(np.flatnonzero(np.isnan(X.toarray()).any(axis=1))[0])
    result = gpe.embed(X, missing="drop", **HOW)
    expected = gpe.embed(X[np.delete(np.arange(100), wrong)], **HOW)
    assert result.points.tobytes() == expected.points.tobytes()


def test_annotations_follow_the_kept_rows(tmp_path):
    anndata = pytest.importorskip("anndata")
    X = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    X[7, 2] = np.nan
    adata = anndata.AnnData(X, obs=pd.DataFrame({"kind": np.arange(50)}, index=[f"cell {i}" for i in range(50)]))
    adata.write_h5ad(tmp_path / "cells.h5ad")
    for source in (adata, tmp_path / "cells.h5ad"):
        result = gpe.embed(source, missing="drop", **HOW)
        out = anndata.read_h5ad(gpe.export(result, tmp_path / "out.h5ad", graph=False, overwrite=True))
        assert out.obs["kind"].tolist() == np.delete(np.arange(50), 7).tolist()
    with pytest.raises(ValueError, match="Drop the observations first"):
        gpe.tl.embed(adata, missing="drop", **HOW)


def test_too_little_is_left():
    X = np.where(np.arange(20).reshape(10, 2) % 3, np.nan, 1.0)
    X[:, 1] = np.where(np.isnan(X[:, 0]), 1.0, np.nan)
    with pytest.raises(ValueError, match="at least 2 rows; got 0"):
        gpe.embed(X, missing="drop")
    with pytest.raises(TypeError, match="it has no column of numbers"):
        gpe.embed(table()[["city", "born"]], numeric_only=True)
    with pytest.raises(ValueError, match="missing must be one of 'error', 'drop'; got 'skip'"):
        gpe.embed(np.ones((10, 2)), missing="skip")


def test_the_command_line_takes_the_same_table(tmp_path, capsys):
    frame = table()
    frame.iloc[4, 1] = np.nan
    frame.to_csv(tmp_path / "t.csv")
    words = ["embed", str(tmp_path / "t.csv"), str(tmp_path / "s.zarr"), "--index", "name", "-k", "8", "--power", "4"]
    assert cli.main(words) == 1
    assert "'city' holds 'Paris'" in (printed := capsys.readouterr().err) and "--numeric-only" in printed
    assert cli.main([*words, "--numeric-only"]) == 1
    assert "row 4, column 'a'. Drop these rows (--missing drop drops those with NaN)" in capsys.readouterr().err
    assert cli.main([*words, "--numeric-only", "--missing", "drop", "--scale", "standard", "-q"]) == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = gpe.open(tmp_path / "s.zarr")
    assert result.report["n_dropped"] == 1 and result.parameters["scale"] == "standard"
    frame.iloc[:3].to_csv(tmp_path / "new.csv")
    given = ["transform", str(tmp_path / "s.zarr"), str(tmp_path / "new.csv"), str(tmp_path / "out.csv")]
    assert cli.main([*given, "--index", "name", "--numeric-only"]) == 0
    np.testing.assert_allclose(pd.read_csv(tmp_path / "out.csv", index_col="name"), result.points[:3], rtol=1e-5)


@pytest.mark.parametrize("form", FORMATS)
def test_columns_that_are_left_out_are_named(form, tmp_path):
    frame = table()
    frame["visits"] = [str(number) for number in range(40)] + ["?"] + [str(number) for number in range(19)]
    frame["price"] = [f"{number},{number % 90 + 10}" for number in range(60)]
    frame["income"] = [f"{number},{number + 100}.5" for number in range(60)]
    if form == "csv":
        frame.to_csv(tmp_path / "t.csv")
        points = gpe.read_points(tmp_path / "t.csv", index="name", numeric_only=True)
    elif form == "parquet":
        frame.to_parquet(tmp_path / "t.parquet")
        points = gpe.read_points(tmp_path / "t.parquet", index="name", numeric_only=True)
    else:
        points = frame
    with pytest.warns(GPEWarning, match=r"columns left out.*: 'city', 'born', 'visits', 'price', 'income'"):
        result = gpe.embed(points, numeric_only=True, store=tmp_path / "run.zarr", **HOW)
    assert " ".join(result.report["warnings"]).count("'city'") == 1


def test_columns_are_named_where_another_run_made_the_graph(tmp_path):
    frame = table()[["city", "a", "b", "c"]]
    how = HOW | {"store": tmp_path / "run.zarr"}
    gpe.embed(frame[["a", "b", "c"]], **how)
    with pytest.warns(GPEWarning, match="columns left out, because they do not hold numbers alone: 'city'"):
        result = gpe.embed(frame, numeric_only=True, **(how | {"power": 8}))
    assert any("'city'" in text for text in result.report["warnings"])


@pytest.mark.parametrize("form", FORMATS)
def test_a_column_of_bools_with_holes_is_one_of_bools(form, tmp_path):
    frame = table()[["a", "b", "smokes"]].astype({"smokes": object})
    frame.iloc[[3, 7], 2] = None
    kept = np.flatnonzero(frame["smokes"].notna())
    expected = gpe.embed(frame.iloc[kept].to_numpy(float), **HOW)
    result = gpe.embed(written(frame, form, tmp_path), missing="drop", numeric_only=True, **HOW)
    assert result.feature_names.tolist() == ["a", "b", "smokes"]
    assert result.points.tobytes() == expected.points.tobytes()


def test_few_different_rows_are_said():
    X = np.arange(150.0)[:, None] % 4
    with pytest.warns(GPEWarning, match="only 4 different rows are left of 150"):
        gpe.embed(X, n_components=2, progress=False)


def test_repeated_row_names_are_counted(tmp_path):
    frame = table()[["a", "b"]]
    frame.index = pd.Index(["one", "two", *frame.index[2:-2], "one", "one"], name="name")
    with pytest.warns(GPEWarning, match="2 of 60 row names repeat others: 'one'"):
        gpe.embed(written(frame, "csv", tmp_path), **HOW)


def test_info_names_the_columns(tmp_path, capsys):
    gpe.embed(table()[["a", "b", "c"]], store=tmp_path / "run.zarr", **HOW)
    assert cli.main(["info", str(tmp_path / "run.zarr")]) == 0
    assert "'a', 'b', 'c'" in capsys.readouterr().out


def test_values_for_all_rows_of_the_input_are_those_of_the_kept_rows(tmp_path):
    plot = pytest.importorskip("scalable_gpe.plot")
    frame = table()
    frame.iloc[[3, 20, 59], 1] = np.nan
    result = gpe.embed(frame[["a", "b", "c"]], missing="drop", **HOW)
    kept = result.kept_rows
    city = pd.Series(frame["city"], dtype="category")
    for values in (frame["city"], frame["city"].tolist(), city, city.array):
        expected = result.propagate(np.asarray(values)[kept])
        np.testing.assert_array_equal(result.propagate(values).probabilities, expected.probabilities)
        assert plot.scatter(result, color=values) is not None
    names = [f"customer {number}" for number in range(60)]
    pages = [
        plot.interactive(result, names=some).save(tmp_path / "p.html").read_bytes()
        for some in (names, np.array(names)[kept])
    ]
    assert pages[0] == pages[1]
    with pytest.raises(ValueError, match="each of the 57 rows, or for each of the 60 of the input; got shape"):
        result.propagate(city[:-1].to_numpy())


@pytest.mark.parametrize("form", ["csv", "parquet", "h5ad"])
def test_labels_in_a_file_go_by_name(form, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    frame = table()
    frame.iloc[[3, 20], 1] = np.nan
    result = gpe.embed(frame[["a", "b", "c"]], missing="drop", store="run.zarr", **HOW)
    labels = pd.DataFrame({"kind": frame["city"], "count": np.arange(60) // 2}, index=frame.index)

    def probabilities(labels, *options):
        path, out = f"labels.{form}", "out.csv"
        if form == "h5ad":
            pytest.importorskip("anndata").AnnData(np.zeros((len(labels), 1)), obs=labels).write_h5ad(path)
        else:
            labels.to_csv(path) if form == "csv" else labels.to_parquet(path)
        words = ["propagate", "run.zarr", path, out, "--column", "kind", "--overwrite", "-q", *options]
        return pd.read_csv(out, index_col="name") if cli.main(words) == 0 else capsys.readouterr().err

    expected = result.propagate(frame["city"])
    mixed = labels.sample(frac=1, random_state=0)
    for given in (labels, mixed, mixed[mixed.index.isin(result.names)], labels.iloc[result.kept_rows]):
        np.testing.assert_allclose(probabilities(given), expected.probabilities[:], rtol=1e-5)
    if form != "h5ad":
        np.testing.assert_allclose(probabilities(mixed, "--index", "name"), expected.probabilities[:], rtol=1e-5)
        assert "goes by the names of rows, but" in probabilities(mixed, "--index", "count")
        two = mixed.assign(other=mixed.index.to_numpy()[::-1])
        assert "--index must say which column" in probabilities(two)
    other = labels.rename({"row 5": "stranger"}).sample(frac=1, random_state=0)
    probabilities(other)
    told = capsys.readouterr().err
    assert "3 of 60 names of" in told and "are in no row" in told  # two rows were dropped
    words = ["plot", "run.zarr", "p.png", "--what", "scatter", "--color", f"labels.{form}", "--column", "kind"]
    assert cli.main(words) == 1 and "1 of them have no value: 'row 5'" in capsys.readouterr().err  # a picture needs all


def test_new_rows_take_the_features_by_name(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    frame = table()
    result = gpe.embed(frame, numeric_only=True, store="run.zarr", **HOW)
    new = frame[["c", "city", "b", "smokes", "born", "a"]].iloc[:9]
    new.to_csv("new.csv"), new.to_parquet("new.parquet")
    for given in (new, "new.csv", "new.parquet"):
        np.testing.assert_array_equal(result.transform(given), result.points[:9])
    with pytest.raises(ValueError, match="it lacks 'b', 'smokes'"):
        result.transform(new[["a", "c"]])
    new.iloc[[2, 5], 0] = np.nan
    with pytest.raises(ValueError, match=r"Drop these rows, fill") as raised:
        result.transform(new)
    assert "missing=" not in str(raised.value)
    new.to_csv("new.csv")
    words = ["transform", "run.zarr", "new.csv", "out.csv", "--index", "name"]
    assert cli.main(words) == 1
    assert "column 'c'" in capsys.readouterr().err
    assert cli.main([*words, "--missing", "drop"]) == 0
    assert "2 of 9 new rows have missing values and are left out" in capsys.readouterr().err
    placed = pd.read_csv("out.csv", index_col="name")
    assert placed.index.tolist() == [f"row {number}" for number in (0, 1, 3, 4, 6, 7, 8)]
    np.testing.assert_allclose(placed, result.points[[0, 1, 3, 4, 6, 7, 8]], rtol=1e-5)


def test_a_line_with_other_cells_is_shown(tmp_path):
    lines = ["a,b", *["1,2"] * 40, "3", *["1,2"] * 5]
    (tmp_path / "ragged.csv").write_text("\n".join(lines))
    with pytest.raises(TypeError, match="Expected 2 columns, got 1: 3"):
        gpe.read_points(tmp_path / "ragged.csv")


def test_a_limit_without_a_unit_and_options_of_other_files_are_explained(tmp_path):
    with pytest.raises(ValueError, match="memory_limit=500 is 500 bytes; did you mean 500MB"):
        gpe.embed(np.eye(20), memory_limit="500")
    table().to_parquet(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"sep is about a .csv or .tsv file; .* is a parquet file"):
        gpe.read_points(tmp_path / "t.parquet", sep=";")


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_rows_without_names_keep_their_numbers_where_some_are_dropped(form, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    frame = table()[["a", "b", "c"]].reset_index(drop=True)
    frame.iloc[[5, 7], 1] = np.nan
    frame.to_csv("t.csv", index=False)
    result = gpe.embed("t.csv", missing="drop", store="run.zarr", **HOW)
    kept = [number for number in range(60) if number not in (5, 7)]
    frame.assign(kind=np.where(frame.a > 0, "right", "left"))[["kind"]].to_csv("kinds.csv", index=False)
    assert cli.main(["propagate", "run.zarr", "kinds.csv", f"labels.{form}"]) == 0
    assert "in the order of the rows, which have no names in the store" in capsys.readouterr().out
    gpe.export(result, f"points.{form}")
    assert cli.main(["transform", "run.zarr", "t.csv", f"new.{form}", "--missing", "drop", "-q"]) == 0
    for name in ("points", "labels", "new"):
        path = f"{name}.{form}"
        found = pd.read_csv(path, index_col="row") if form == "csv" else pd.read_parquet(path)
        assert found.index.name == "row" and found.index.tolist() == kept
    joined = frame.join(
        pd.read_csv("points.csv", index_col="row") if form == "csv" else pd.read_parquet("points.parquet")
    )
    assert joined["gpe_1"].isna().to_numpy().nonzero()[0].tolist() == [5, 7]


@pytest.mark.parametrize("form", FORMATS)
def test_names_that_are_whole_numbers_stay_so_in_an_export(form, tmp_path):
    """A table with numbers as its index is joined with an export of its rows."""
    frame = table()[["a", "b", "c"]].set_axis(pd.Index(np.arange(60) * 7 + 100_000, name="name"))
    frame.iloc[[3, 20], 0] = np.nan
    how = HOW | {"power": "all"}
    gpe.embed(written(frame, form, tmp_path), missing="drop", store=tmp_path / "run.zarr", **how)
    result = gpe.open(tmp_path / "run.zarr")
    exports = [gpe.export(result, tmp_path / name) for name in ("out.parquet", "out.csv")]
    placed = [pd.read_parquet(exports[0]), pd.read_csv(exports[1], index_col="name")]
    for one in placed:
        assert one.index.dtype == np.int64 and one.index.name == "name"
        assert frame.join(one, how="inner").shape == (58, 3 + 8)
    with pytest.raises(ValueError, match="or the name of a row as a text: '100021'"):
        result.pseudotime(100_021)


@pytest.mark.parametrize("form", ["frame", "parquet"])
def test_digits_that_are_texts_stay_so_in_an_export(form, tmp_path):
    frame = table()[["a", "b", "c"]].set_axis(pd.Index([str(number) for number in range(60)], name="name"))
    result = gpe.embed(written(frame, form, tmp_path), **HOW)
    placed = pd.read_parquet(gpe.export(result, tmp_path / "out.parquet"))
    assert placed.index.tolist() == frame.index.tolist()


@pytest.mark.parametrize("form", FORMATS)
def test_a_column_without_any_value_is_named(form, tmp_path):
    frame = table()[["a", "b", "c"]]
    frame["b"] = np.nan
    frame.iloc[3, 0] = np.nan
    with pytest.raises(ValueError, match=r"no row has a value in column 'b'\. Leave it out"):
        gpe.embed(written(frame, form, tmp_path), missing="drop", **HOW)


def test_an_identifier_among_the_features_is_named():
    frame = table()[["a", "b", "c"]]
    frame.insert(0, "customer_id", np.arange(60) + 1000)
    said = gpe.embed(frame, scale="standard", **HOW).report["warnings"]
    assert any("column 'customer_id' counts as a feature" in text for text in said)
    grid = frame.rename(columns={"customer_id": "grid"})
    assert not any(
        "counts as a feature" in text for text in gpe.embed(grid, scale="standard", **HOW).report["warnings"]
    )


def test_labels_of_a_name_that_several_rows_share_are_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    frame = table()[["a", "b", "c"]]
    frame.index = pd.Index(["twin", "twin", *frame.index[2:]], name="name")
    gpe.embed(frame, store="run.zarr", **HOW)
    pd.DataFrame({"name": ["twin", "row 4"], "kind": ["x", "y"]}).to_csv("few.csv", index=False)
    capsys.readouterr()
    for options in (["--index", "name"], []):
        assert cli.main(["propagate", "run.zarr", "few.csv", "out.csv", "--column", "kind", *options]) == 1
        assert "1 of them stand in several rows: 'twin'" in capsys.readouterr().err


def test_a_file_of_labels_that_repeats_names_is_refused(tmp_path, monkeypatch, capsys):
    """It went by position, or by its first rows."""
    monkeypatch.chdir(tmp_path)
    frame = table()
    result = gpe.embed(frame[["a", "b", "c"]], store="run.zarr", **HOW)
    labels = pd.DataFrame({"kind": frame["city"], "age": np.arange(60) % 7}, index=frame.index)
    mixed = labels.sample(frac=1, random_state=0)
    twice = mixed.set_axis(pd.Index([mixed.index[1], *mixed.index[1:]], name="name"))
    other = pd.concat([labels.assign(kind="wrong"), labels])  # begins with the rows of the store
    words = ["propagate", "run.zarr", "labels.csv", "out.csv", "--column", "kind", "--overwrite", "-q"]
    for wrong in (twice, other, pd.concat([labels, labels[:1]])):
        wrong.to_csv("labels.csv")
        assert cli.main(words) == 1
        assert "stand in several rows" in capsys.readouterr().err
    mixed.to_csv("labels.csv")
    assert cli.main(words) == 0
    expected = result.propagate(frame["city"]).probabilities
    np.testing.assert_allclose(pd.read_csv("out.csv", index_col="name"), expected, rtol=1e-5)


def test_estimate_reads_a_table_as_embed_does(tmp_path, capsys):
    frame = table()
    frame.iloc[[3, 20], 1] = np.nan
    frame.to_csv(tmp_path / "t.csv")
    words = ["estimate", str(tmp_path / "t.csv"), "--index", "name", "-k", "4", "--n-neighbors", "8"]
    assert cli.main(words) == 1 and "--numeric-only" in capsys.readouterr().err
    assert cli.main([*words, "--numeric-only", "--missing", "drop", "--scale", "standard"]) == 0
    assert "smallest --memory-limit" in capsys.readouterr().out
    assert gpe.estimate(frame, numeric_only=True, missing="drop", n_neighbors=8)["seconds"] > 0


@pytest.mark.parametrize("name", ["parts.parquet", "parts"])
def test_files_of_a_folder_are_read_by_number(name, tmp_path, monkeypatch):
    """As dask reads what it has written; labels in such a folder follow."""
    dd = pytest.importorskip("dask.dataframe")
    monkeypatch.chdir(tmp_path)
    frame = table(240)[["a", "b", "c"]].reset_index(drop=True)
    dd.from_pandas(frame, npartitions=12).to_parquet(name, write_index=False)
    assert (tmp_path / name / "part.10.parquet").exists()
    with pytest.warns(GPEWarning, match="are read by number, 2 before 10, as dask does"):
        result = gpe.embed(name, client=False, **HOW)
    expected = gpe.embed(frame, **HOW)
    np.testing.assert_array_equal(result.points, expected.points)
    labels = pd.DataFrame({"kind": ["x", "y"] * 120})
    dd.from_pandas(labels, npartitions=12).to_parquet("labels.parquet", write_index=False)
    gpe.embed(name, store="run.zarr", client=False, **HOW)
    assert cli.main(["propagate", "run.zarr", "labels.parquet", "out.npy", "--column", "kind", "-q"]) == 0
    np.testing.assert_allclose(np.load("out.npy"), expected.propagate(labels["kind"]).probabilities, rtol=1e-5)
    lazy = dd.from_pandas(labels, npartitions=3)["kind"]
    np.testing.assert_array_equal(result.propagate(lazy).codes, expected.propagate(labels["kind"]).codes)


@pytest.mark.parametrize("form", ["frame", "csv"])
@pytest.mark.parametrize("last", ["kept", "dropped"])
@pytest.mark.parametrize("ids", ["from one", "shuffled"])
def test_values_that_are_counted_are_never_taken_by_other_numbers(form, last, ids, tmp_path, monkeypatch, capsys):
    """The index 0, 1, ... of a column of the table is no name, though rows may have such numbers as names."""
    monkeypatch.chdir(tmp_path)
    frame = table()[["a", "b", "c"]]
    numbers = np.arange(1, 61) if ids == "from one" else np.random.default_rng(0).permutation(60)
    frame.index = pd.Index(numbers, name="name")
    frame.iloc[[3, 59 if last == "dropped" else 20], 0] = np.nan
    gpe.embed(written(frame, form, tmp_path), missing="drop", store="run.zarr", **HOW)
    result, values = gpe.open("run.zarr"), pd.Series(["x", "y", "z"] * 20)
    expected = result.propagate(values.to_numpy()).probabilities
    if ids == "from one" and last == "kept":
        np.testing.assert_array_equal(result.propagate(values).probabilities, expected)  # 60 is none of 0 to 59
    else:
        with pytest.raises(ValueError, match=r"rows are named so in another order\. Pass its values alone"):
            result.propagate(values)
    by_name = values.set_axis(frame.index).sample(frac=1, random_state=0)
    np.testing.assert_array_equal(result.propagate(by_name).probabilities, expected)
    same = values[result.kept_rows].set_axis(result.names.astype(int))  # the names, in the order of the rows
    np.testing.assert_array_equal(result.propagate(same).probabilities, expected)
    if ids == "shuffled":
        values.rename("kind").rename_axis("rownum").to_csv("labels.csv")
        assert cli.main(["propagate", "run.zarr", "labels.csv", "out.csv", "--column", "kind"]) == 1
        assert "counts its rows, and may hold names" in capsys.readouterr().err
