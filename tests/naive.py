"""The paper again, simple and slow: plain loops over lists, nothing imported from the library."""

import math

EPS = 2.0**-53


def affinity(X, epsilon):
    n = len(X)
    return [[math.exp(-sum((a - b) ** 2 for a, b in zip(X[i], X[j])) / epsilon) for j in range(n)] for i in range(n)]


def local_scales(X, rank, factor):
    """sqrt(factor) times the distance to the rank-th nearest other (distinct) point."""
    out = []
    for x in X:
        others = sorted({tuple(y) for y in X} - {tuple(x)}, key=lambda y: math.dist(x, y))
        out.append(math.sqrt(factor) * math.dist(x, others[min(rank, len(others)) - 1]))
    return out


def local_affinity(X, sigma):
    n = len(X)
    return [[math.exp(-(math.dist(X[i], X[j]) ** 2) / (sigma[i] * sigma[j])) for j in range(n)] for i in range(n)]


def symmetric(K):
    n = len(K)
    q = [sum(row) for row in K]
    v = [sum(K[i][j] / (q[i] * q[j]) for j in range(n)) for i in range(n)]
    return [[K[i][j] / (q[i] * q[j]) / math.sqrt(v[i]) / math.sqrt(v[j]) for j in range(n)] for i in range(n)]


def sinkhorn(K, tol, max_iter=100_000):
    """The paper's iteration d <- K(1/d); the scaling is the geometric mean of the last two. And the products made."""
    n = len(K)
    d = [1.0] * n
    for products in range(1, max_iter + 1):
        after = [sum(K[i][j] / d[j] for j in range(n)) for i in range(n)]
        mean = [math.sqrt(a * b) for a, b in zip(d, after)]
        sums = [sum(K[i][j] / (mean[i] * mean[j]) for j in range(n)) for i in range(n)]
        if max(abs(s - 1) for s in sums) <= tol:
            return mean, products
        d = after
    raise RuntimeError("no convergence")


def bistochastic(K, tol=1e-14):
    d, _ = sinkhorn(K, tol)
    return [[K[i][j] / (d[i] * d[j]) for j in range(len(K))] for i in range(len(K))]


def weighted(K, w, normalization, tol=1e-14):
    """W^(1/2) S K S W^(1/2); s = 1/d with d <- sqrt(d K(w/d)), or s = 1/(q sqrt(v)) with q = K w and v = K(w/q)/q."""
    n = len(K)

    def sums(x):
        return [sum(K[i][j] * x[j] for j in range(n)) for i in range(n)]

    if normalization == "symmetric":
        q = sums(w)
        v = [a / b for a, b in zip(sums([a / b for a, b in zip(w, q)]), q)]
        s = [1 / (a * math.sqrt(b)) for a, b in zip(q, v)]
    else:
        d, error = [1.0] * n, 1.0
        while error > tol:
            after = sums([a / b for a, b in zip(w, d)])
            error = max(abs(a / b - 1) for a, b in zip(after, d))
            d = [math.sqrt(a * b) for a, b in zip(d, after)]
        s = [1 / a for a in d]
    return [[math.sqrt(w[i] * w[j]) * s[i] * K[i][j] * s[j] for j in range(n)] for i in range(n)]


def product(A, B):
    return [[sum(a * B[l][j] for l, a in enumerate(row)) for j in range(len(B[0]))] for row in A]


def power(A, p):
    out = A
    for _ in range(p - 1):
        out = product(A, out)
    return out


def gp_embedding(A, G, p):
    k = len(G[0])
    return [[value / math.sqrt(k) for value in row] for row in product(power(A, p), G)]


def distances(Y):
    n = len(Y)
    return [math.sqrt(sum((a - b) ** 2 for a, b in zip(Y[i], Y[j]))) for i in range(n) for j in range(i + 1, n)]


def diffusion_distances(A, p):
    return distances(power(A, p))


def bilipschitz(Y, d):
    dilations = [image / original for image, original in zip(distances(Y), d)]
    return max(dilations) / min(dilations)


def eigen(A):
    """Eigenvalues and eigenvectors (as lists) by Jacobi's rotations, largest first."""
    n = len(A)
    A = [list(row) for row in A]
    V = [[float(i == j) for j in range(n)] for i in range(n)]
    for _ in range(60):
        for p in range(n):
            for q in range(p + 1, n):
                if abs(A[p][q]) > 1e-300:
                    _rotate(A, V, p, q)
    order = sorted(range(n), key=lambda i: -A[i][i])
    return [A[i][i] for i in order], [[V[row][i] for row in range(n)] for i in order]


def _rotate(A, V, p, q):
    theta = (A[q][q] - A[p][p]) / (2 * A[p][q])
    t = (1 if theta >= 0 else -1) / (abs(theta) + math.sqrt(theta * theta + 1))
    c = 1 / math.sqrt(t * t + 1)
    s = t * c
    for M in (A, V):
        for row in M:
            row[p], row[q] = c * row[p] - s * row[q], s * row[p] + c * row[q]
    for j in range(len(A)):
        A[p][j], A[q][j] = c * A[p][j] - s * A[q][j], s * A[p][j] + c * A[q][j]


def diffusion_map(A, k, t):
    values, vectors = eigen(A)
    columns = []
    for value, vector in zip(values[1 : k + 1], vectors[1 : k + 1]):
        sign = 1 if max(vector, key=abs) > 0 else -1
        columns.append([sign * value**t * entry for entry in vector])
    return [list(row) for row in zip(*columns)]


def philox(counter, key):
    """Philox4x32-10 as its authors define it: four 32-bit words from four, under two."""
    c, k = list(counter), list(key)
    for _ in range(10):
        first, second = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(second >> 32) ^ c[1] ^ k[0], second & 0xFFFFFFFF, (first >> 32) ^ c[3] ^ k[1], first & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def random_words(seed, row, group, stream):
    c = philox((row & 0xFFFFFFFF, row >> 32, group, stream), (seed & 0xFFFFFFFF, seed >> 32))
    return c[0] | c[1] << 32, c[2] | c[3] << 32


def gaussian_entry(seed, row, column):
    return normal(random_words(seed, row, column // 2, 0)[column % 2])


def bernoulli_entry(seed, row, column):
    low, high = random_words(seed, row, column // 128, 1)
    return 1.0 if ((low | high << 64) >> (column % 128)) & 1 else -1.0


def normal(word):
    """AS 241 (PPND16) at ((word >> 11) + 1/2) / 2^53, in the order of operations that the library promises."""
    q = ((word >> 11) - 2**52 + 0.5) * EPS
    if abs(q) <= 0.425:
        r = 0.180625 - q * q
        return q * _horner(_A, r) / _horner(_B, r)
    r = math.sqrt(minus_log(0.5 - abs(q)))
    tail = _horner(_C, r - 1.6) / _horner(_D, r - 1.6) if r <= 5 else _horner(_E, r - 5) / _horner(_F, r - 5)
    return math.copysign(tail, q)


def minus_log(p):
    m, exponent = math.frexp(p)
    if m < 0.7071067811865476:
        m, exponent = 2 * m, exponent - 1
    s = (m - 1) / (m + 1)
    series = _horner([1 / odd for odd in range(21, 0, -2)], s * s)
    return -2 * s * series - exponent * 0.6931471805599453


def _horner(coefficients, x):
    out = coefficients[0]
    for coefficient in coefficients[1:]:
        out = out * x + coefficient
    return out


# fmt: off
_A = [2509.0809287301226727, 33430.575583588128105, 67265.770927008700853, 45921.953931549871457,
      13731.693765509461125, 1971.5909503065514427, 133.14166789178437745, 3.3871328727963666080]
_B = [5226.495278852854561, 28729.085735721942674, 39307.89580009271061, 21213.794301586595867,
      5394.1960214247511077, 687.1870074920579083, 42.313330701600911252, 1.0]
_C = [7.74545014278341407640e-4, 0.0227238449892691845833, 0.24178072517745061177, 1.27045825245236838258,
      3.64784832476320460504, 5.7694972214606914055, 4.6303378461565452959, 1.42343711074968357734]
_D = [1.05075007164441684324e-9, 5.475938084995344946e-4, 0.0151986665636164571966, 0.14810397642748007459,
      0.68976733498510000455, 1.6763848301838038494, 2.05319162663775882187, 1.0]
_E = [2.01033439929228813265e-7, 2.71155556874348757815e-5, 0.0012426609473880784386, 0.026532189526576123093,
      0.29656057182850489123, 1.7848265399172913358, 5.4637849111641143699, 6.6579046435011037772]
_F = [2.04426310338993978564e-15, 1.4215117583164458887e-7, 1.8463183175100546818e-5, 7.868691311456132591e-4,
      0.0148753612908506148525, 0.13692988092273580531, 0.59983220655588793769, 1.0]
