"""Inputs and outputs: any input as rows that are read block by block, and files for other tools."""
