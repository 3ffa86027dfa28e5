"""Class probabilities of all rows from a few labelled ones, by solutions of (I - cA) X = B."""
