"""From a heat kernel to an embedding: random matrix, polynomial, power iteration, publishing."""
