"""The spectrum of A: Lanczos, spectral density, diffusion maps, the choice of the power."""
