"""New points in a finished embedding."""
