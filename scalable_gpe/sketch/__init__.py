"""From a heat kernel to an embedding: random matrix, polynomial, eigenvectors, new points."""
