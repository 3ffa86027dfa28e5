"""Checks of user input, and the texts of errors: each names the argument, the rule, the value and a way out."""

import pickle
import warnings

import numpy as np
import pytest

from scalable_gpe import checks
from scalable_gpe.errors import ConvergenceWarning, DamageError, warn


def test_large_finite_entries_pass():
    """A sum of the block overflows; its entries are finite."""
    checks.check_finite(np.full((4, 4), 1.7e308))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_offending_rows_are_named(value):
    X = np.zeros((200_000, 1), np.float32)
    X[[7, 150_000, 150_001]] = value
    with pytest.raises(ValueError, match=r"X must be finite.*; NaN, infinity or more in rows 7, 150000, 150001"):
        checks.check_finite(X)
    with pytest.raises(ValueError, match=r"data must be finite.*; NaN, infinity or more in rows 1150000, 1150001"):
        checks.check_finite(X[100_000:], "data", first_row=1_100_000)


def test_many_offending_rows_are_counted():
    with pytest.raises(ValueError, match=r"rows 0, 1, 2, 3, 4 and 5 more"):
        checks.check_finite(np.full((10, 1), np.nan))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: checks.check_positive(0, "epsilon"), ValueError, "epsilon must be a positive.*got 0"),
        (lambda: checks.check_positive(float("nan"), "epsilon"), ValueError, "epsilon must be a positive"),
        (lambda: checks.check_positive(float("inf"), "epsilon"), ValueError, "epsilon must be a positive"),
        (
            lambda: checks.check_positive("1", "epsilon"),
            TypeError,
            r"epsilon must be.*got '1' \(str\)",
        ),
        (lambda: checks.check_positive(True, "epsilon"), TypeError, "epsilon must be"),
        (lambda: checks.check_fraction(95, "recall"), ValueError, "recall must be above 0 and at most 1; got 95"),
        (lambda: checks.check_count(1.0, "n_jobs"), TypeError, "n_jobs must be a whole number"),
        (lambda: checks.check_count(np.True_, "n_jobs"), TypeError, "n_jobs must be a whole number"),
        (lambda: checks.check_count(9, "n_neighbors", maximum=8), ValueError, "n_neighbors must be at most 8; got 9"),
        (lambda: checks.check_count(1, "n_rows", minimum=2), ValueError, "n_rows must be at least 2; got 1"),
        (lambda: checks.check_powers([]), ValueError, "power must hold different powers"),
        (lambda: checks.check_powers([2, 2]), ValueError, "power must hold different powers"),
        (lambda: checks.check_powers([2, 0]), ValueError, "power must be at least 1"),
        (lambda: checks.check_powers("64"), ValueError, "power must be a whole number, 'all', or several"),
        (
            lambda: checks.check_powers("auto"),
            ValueError,
            "'all', or several of them; got 'auto'",
        ),
        (
            lambda: checks.check_powers([4, "auto"]),
            ValueError,
            "'all', or several of them; got 'auto'",
        ),
        (lambda: checks.check_powers(2.5), TypeError, "power must be a whole number"),
        (lambda: checks.check_powers(True), TypeError, "power must be a whole number"),
        (
            lambda: checks.check_choice("l1", ("a", "b"), "metric"),
            ValueError,
            "one of 'a', 'b'; got 'l1'",
        ),
        (lambda: checks.check_choice(3, ("a", "b"), "metric"), TypeError, "metric must be one of 'a', 'b'; got 3"),
        (lambda: checks.check_random_state(True), TypeError, "random_state must be a whole number"),
        (lambda: checks.check_random_state(1.5), TypeError, "random_state must be a whole number"),
        (lambda: checks.check_random_state(-1), ValueError, "random_state must be at least 0"),
        (lambda: checks.check_selection([[1]], 2, "rows"), TypeError, "rows must be a slice or a 1-D array"),
        (lambda: checks.check_selection([5], 2, "rows"), ValueError, "rows must lie between 0 and 1; got 5"),
    ],
)
def test_bad_input(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_good_input_comes_back():
    assert checks.check_positive(np.float32(0.5), "epsilon") == 0.5
    assert checks.check_fraction(1, "recall") == 1.0
    assert checks.check_count(np.int64(8), "n_rows", maximum=8) == 8
    assert checks.check_powers(64) == (64,)
    assert checks.check_powers(range(1, 4)) == (1, 2, 3)
    assert checks.check_choice("a", ("a", "b"), "metric") == "a"
    assert checks.check_random_state(2**64 - 1) == 2**64 - 1


def test_random_states():
    assert checks.check_random_state(None) != checks.check_random_state(None)
    assert checks.check_random_state(np.random.default_rng(3)) == checks.check_random_state(np.random.default_rng(3))
    legacy = np.random.RandomState(3)
    assert checks.check_random_state(legacy) != checks.check_random_state(legacy)


def test_selections():
    assert checks.check_selection(None, 3, "rows").tolist() == [0, 1, 2]
    assert checks.check_selection(slice(-1, None, -2), 5, "rows").tolist() == [4, 2, 0]
    assert checks.check_selection([], 5, "rows").tolist() == []
    assert checks.check_selection(np.array([4, 4], np.uint8), 5, "rows").tolist() == [4, 4]


# --- texts of errors and warnings -----------------------------------------------------------------


def test_warnings_point_at_the_caller_and_return_their_text():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        text = warn("tol was not reached", ConvergenceWarning)
    assert type(text) is str and text == "tol was not reached"
    (one,) = caught
    assert one.filename == __file__ and str(one.message) == text


def test_damage_survives_pickling():
    error = pickle.loads(pickle.dumps(DamageError("array 'a' is damaged", "a")))
    assert error.array == "a" and "computes the damaged stage again" in str(error)
