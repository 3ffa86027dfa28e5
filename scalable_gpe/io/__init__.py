"""Any input as rows, read block by block: files, arrays, tables."""
