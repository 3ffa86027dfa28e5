"""From neighbours to the heat kernel: bandwidth, truncated Gaussian kernel, normalisation."""
